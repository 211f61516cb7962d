"""The report on a budget that was held, from its events."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event, record_kind
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.reports.document import history, present_budget
from autocap.records import CapRange, GpuInfo
from autocap.reports import html, text
from autocap.runlog.columns import Samples
from autocap.runlog.event_log import line_of, read_events

GPUS = tuple(
    GpuInfo(index=n, uuid=f"GPU-{n}", name="Card", cap_range=CapRange(min_w=100, max_w=300, default_w=300))
    for n in range(3)
)


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
