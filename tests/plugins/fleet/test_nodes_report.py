"""A job on several nodes: a row a node in the report, and each device's node in the result."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from autocap.plugins.fleet.reports.nodes import section
from autocap.reports.document import Table
from autocap.reports.summary.record import DeviceSummary, GpuSummary
from autocap.reports.wording import granted


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
