"""The section on the nodes of a job in the report of its run."""

from collections.abc import Iterator, Sequence

from autocap.events import Event
from autocap.reports.document import Table
from autocap.reports.summary.record import GpuSummary, Summary
from autocap.reports.wording.granted import FATES


def section(summary: Summary, events: Sequence[Event]) -> Iterator[Table]:
    """Each node of the job with its devices and what became of their limits; nothing where there is only one."""
    by_node: dict[str, list[GpuSummary]] = {}
    for gpu in () if summary.device is None else summary.device.gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    if len(by_node) < 2:
        return
    rows = []
    for node, gpus in by_node.items():
        found = sorted({gpu.cap_original_w for gpu in gpus if gpu.cap_original_w is not None})
        rows.append(
            (
                node,
                str(len(gpus)),
                ", ".join(dict.fromkeys(gpu.name for gpu in gpus)),
                "–".join(f"{limit_w:g}" for limit_w in dict.fromkeys([*found[:1], *found[-1:]])) or "unknown",
                _of_node(gpus),
            )
        )
    titles = ("node", "GPUs", "name", "found W", "the limits found on arrival")
    yield Table(heading="Nodes", titles=titles, rows=tuple(rows), left=(0, 2))


def _of_node(gpus: Sequence[GpuSummary]) -> str:
    fates = [gpu.restored for gpu in gpus]
    if len(set(fates)) == 1 and fates[0] is not False:
        return f"all {FATES[fates[0]]}" if fates[0] else FATES[fates[0]]
    return f"{fates.count(True)} of {len(gpus)} on record as put back"
