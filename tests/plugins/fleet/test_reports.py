"""The reports on a budget that was held and on a job on several nodes; what is exported of a budget, over HTTP."""

import re
import socket
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from autocap import events
from autocap.errors import ExporterError, RunDirectoryError
from autocap.events import Event, record_kind
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.protocol import JobStanding, Standing
from autocap.plugins.fleet.manager.opening import values_of
from autocap.plugins.fleet.reports.document import history, present_budget
from autocap.plugins.fleet.reports.nodes import section
from autocap.records import CapRange, GpuInfo
from autocap.reports import html, text
from autocap.reports.document import Table
from autocap.reports.prometheus.exporter import MEANINGS, BudgetExporter
from autocap.reports.summary.record import DeviceSummary, GpuSummary
from autocap.reports.wording import granted
from autocap.runlog.columns import Samples
from autocap.runlog.event_log import line_of, read_events
from tests.reports.test_prometheus import port

GPUS = tuple(
    GpuInfo(index=n, uuid=f"GPU-{n}", name="Card", cap_range=CapRange(min_w=100, max_w=300, default_w=300))
    for n in range(3)
)
__all__ = ["port"]  # the fixture

JOB = JobStanding(
    name="train.py 7", devices=("A", "B"), tuned=True, pid=7, cap_w=210.0, lowest_w=100.0, draw_w=400.0, slowdown=0.05,
    slowdown_stderr=0.01, ceiling_w=250.0,
)  # fmt: skip
STANDING = Standing(
    budget_w=1200.0, policy="fair", reserved_w=3.0, room_w=17.0, power_w=900.0, short_w=0.0, pause=(), jobs=(JOB,),
    free=("C",), record="", pid=1,
)  # fmt: skip


def log() -> list[Event]:
    def granted(t_s: float, name: str, cap_w: float) -> Event:
        return budget.CapGranted(t_s=t_s, name=name, cap_w=cap_w)

    def held(t_s: float, cap_w: float, slowdown: float) -> Event:
        return budget.CapHeld(t_s=t_s, name="a", cap_w=cap_w, slowdown=slowdown, slowdown_stderr=0.01)

    return [
        budget.BudgetStarted(
            t_s=0.0, autocap_version="1", started_at="2026-01-31T12:00:00+01:00", pid=7, budget_w=800.0, policy="fair",
            gpus=GPUS, original_w=(300.0, 300.0, 300.0),
        ),
        budget.BudgetReserved(t_s=0.0, reserved_w=100.0),
        budget.JobJoined(t_s=0.0, name="a", uuids=("GPU-0", "GPU-1"), pid=1, tuned=True),
        granted(0.0, "free GPU 2", 100.0),
        granted(0.0, "a", 300.0),
        held(0.0, 300.0, 0.0),
        budget.BudgetChanged(t_s=10.0, budget_w=600.0, policy="throughput", why="root asked for it"),
        granted(10.0, "a", 200.0),
        held(10.0, 180.0, 0.2),  # its tuner holds less than it may
        budget.CapLowered(t_s=10.5, name="a", cap_w=200.0, after_s=0.5),
        budget.JobJoined(t_s=15.0, name="b", uuids=("GPU-2",), pid=2, tuned=False),
        budget.JobJoined(t_s=18.0, name="a", uuids=("GPU-0", "GPU-1"), pid=1, tuned=False),
        budget.JobLeft(t_s=20.0, name="a", why="it computes no more"),
        events.Warned(t_s=20.0, text="something"),
        *(events.LimitRestored(t_s=21.0, uuid=gpu.uuid, final=300.0, restored=gpu.index > 0) for gpu in GPUS),
        events.RunEnded(t_s=21.0, ended_because="root asked for it"),
    ]  # fmt: skip


def samples(power_w: Sequence[float]) -> Samples:
    t_s = np.arange(len(power_w), dtype=float)
    nothing = np.full(len(power_w), np.nan)
    return Samples(
        t_s=t_s, power_w=np.array(power_w), requested_w=nothing, enforced_w=nothing, steps=nothing, step_t_s=nothing
    )


def test_a_job_is_slowed_down_as_its_caps_say_over_its_time() -> None:
    found = history(log())
    (first, second) = found.jobs
    assert first.mean_slowdown(first.left_s or 0.0) == pytest.approx((0.1, 0.01))
    assert second.mean_slowdown(21.0) is None
    assert (first.left_s, second.left_s) == (20.0, None)
    assert (first.tuned, second.tuned) == (True, False)  # its tuner went before it


def test_what_is_granted_counts_all_devices_once() -> None:
    assert [watts for _, watts in history(log()).charged] == [100.0, 700.0, 500.0]


def test_what_is_above_the_budget_is_what_no_sensor_error_explains() -> None:
    found = history(log())
    # 700 W may be drawn, and 500 W from 10 s on; 5 % of that, or 5 W a sensor, may be its error.
    power = found.power(samples([700.0, 734.0, 740.0, 700.0] + [700.0] * 6 + [600.0] + [500.0] * 5))
    assert (power.above_s, power.most_w) == (pytest.approx(2.0), pytest.approx(75.0))
    assert power.above_j == pytest.approx(5.0 + 75.0)
    assert found.power(samples([])) is None


def test_text_and_page_say_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"".join(map(line_of, log())))
    found = read_events(tmp_path)
    assert found == log()
    assert record_kind(found) == "budget"
    report = present_budget(tmp_path, found)
    shown = "\n".join(text.lines(report.document))
    assert "800/600 W for 2 jobs on 3 GPUs: what was drawn is not on record" in shown
    assert "shared by policy throughput; ended: root asked for it; limits found that are back: 2 of 3" in shown
    assert re.search(r"^ *a +2 .* 180 +200 +20\.0 ± 1\.0 +10\.0 ± 1\.0$", shown, re.M)
    assert re.search(r"^ *0 +800 +as it began\n +10 +600 +root asked for it$", shown, re.M)
    page = html.page(report.document, report.pictures())
    assert "Power against the budget" in page
    assert "something" in page
    assert isinstance(report.result, dict)
    assert report.result["restored"] is False


def test_without_a_start_there_is_no_report() -> None:
    with pytest.raises(RunDirectoryError, match="no start of a budget"):
        history(log()[1:])


def scraped(port: int, standing: Standing | None) -> dict[str, tuple[dict[str, str], float]]:
    """What is exported of it, by metric."""
    at = f"http://127.0.0.1:{port}/metrics"
    with (
        closing(BudgetExporter("127.0.0.1", port, lambda: values_of(standing))),
        urllib.request.urlopen(at, timeout=20) as answer,
    ):
        families = text_string_to_metric_families(answer.read().decode())
    return {one.name: (one.labels, one.value) for family in families for one in family.samples}


def test_every_metric_has_its_value(port: int) -> None:
    found = scraped(port, STANDING)
    assert set(found) == set(MEANINGS)
    assert found["autocap_budget_watts"] == ({"policy": "fair"}, 1200.0)
    assert found["autocap_budget_job_slowdown_ratio"] == ({"job": "train.py 7", "tuned": "true"}, 0.05)


def test_what_is_not_known_is_left_out(port: int) -> None:
    unknown = replace(STANDING, power_w=None, jobs=(replace(JOB, draw_w=None),))
    for standing, missing in (
        (None, set(MEANINGS)),
        (unknown, {"autocap_budget_power_watts", "autocap_budget_job_power_watts"}),
    ):
        assert set(MEANINGS) - set(scraped(port, standing)) == missing


def test_a_port_that_is_taken_is_told(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(ExporterError, match="cannot listen on"):
            BudgetExporter("127.0.0.1", port, lambda: {})


def gpu(index: int, node: str, *, restored: bool | None = True, original_w: float | None = 250.0) -> GpuSummary:
    return GpuSummary(
        index=index,
        uuid=f"GPU-{node}-{index}",
        name="H200" if node == "a" else "A100",
        cap_min_w=100.0,
        cap_max_w=300.0,
        cap_default_w=250.0,
        cap_original_w=original_w,
        cap_final_w=original_w,
        restored=restored,
        node=node,
    )


def shown(device: DeviceSummary) -> list[Table]:
    return list(section(SimpleNamespace(device=device), ()))  # type: ignore[arg-type]


def test_a_row_a_node() -> None:
    device = DeviceSummary(
        kind="nvml",
        emulated=False,
        gpus=(
            gpu(0, "a"),
            gpu(1, "a", original_w=200.0),
            gpu(0, "b", restored=False),
            gpu(1, "b"),
            gpu(0, "c", restored=None),
        ),
    )
    (table,) = shown(device)
    assert not table.page_only
    assert table.rows == (
        ("a", "2", "H200", "200–250", "all put back"),
        ("b", "2", "A100", "250", "1 of 2 on record as put back"),
        ("c", "1", "A100", "250", "left to the node, not known here"),
    )
    assert [row[0] for row in granted.of_devices(device).rows] == ["0 of a", "1 of a", "0 of b", "1 of b", "0 of c"]


def test_one_machine_has_no_such_table() -> None:
    device = DeviceSummary(kind="nvml", emulated=False, gpus=(replace(gpu(0, "a"), node=""),))
    assert shown(device) == []
    assert granted.of_devices(device).rows[0][0] == "0"


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        ((True, True), "the limit found on arrival was put back"),
        ((True, None), "and what became of the limit found on arrival is not known of 1 of 2 GPUs"),
        ((True, False), "the limit found on arrival is not on record as put back everywhere"),
    ],
)
def test_only_what_was_read_is_said_to_be_back(fates: tuple[bool | None, ...], said: str) -> None:
    gpus = tuple(
        replace(gpu(index, "a", restored=fate), cap_final_w=None if fate is None else 250.0)
        for index, fate in enumerate(fates)
    )
    assert granted.back(SimpleNamespace(device=SimpleNamespace(gpus=gpus))) == said  # type: ignore[arg-type]
