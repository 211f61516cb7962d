"""What became of the limits of a job's devices, one by one and node by node."""

from collections.abc import Sequence

from autocap.reports.document import Table
from autocap.reports.summary.record import DeviceSummary, GpuSummary

_FATES = {True: "put back", False: "not on record as put back", None: "left to the node, not known here"}


def of_devices(device: DeviceSummary) -> Table:
    """Each device's power limits, watts: what it accepts, what was found, what was left."""
    rows = [
        (
            f"{gpu.index} of {gpu.node}" if gpu.node else str(gpu.index),
            gpu.name,
            f"{gpu.cap_min_w:g}–{gpu.cap_max_w:g}",
            f"{gpu.cap_default_w:g}",
            _watts(gpu.cap_original_w),
            _watts(gpu.cap_final_w),
            _FATES[gpu.restored] if gpu.restored is not None or gpu.cap_final_w is None else "left to the budget",
        )
        for gpu in device.gpus
    ]
    titles = ("GPU", "name", "range W", "default W", "found W", "left W", "the limit found on arrival")
    return Table(heading="Power limits", titles=titles, rows=tuple(rows), left=(1,), page_only=True, folded=True)


def of_nodes(device: DeviceSummary) -> Table | None:
    """Each node of the job with its devices and what became of their limits; `None` where there is only one."""
    by_node: dict[str, list[GpuSummary]] = {}
    for gpu in device.gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    if len(by_node) < 2:
        return None
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
    return Table(heading="Nodes", titles=titles, rows=tuple(rows), left=(0, 2))


def _of_node(gpus: Sequence[GpuSummary]) -> str:
    fates = [gpu.restored for gpu in gpus]
    if len(set(fates)) == 1 and fates[0] is not False:
        return f"all {_FATES[fates[0]]}" if fates[0] else _FATES[fates[0]]
    return f"{fates.count(True)} of {len(gpus)} on record as put back"


def _watts(limit_w: float | None) -> str:
    return "unknown" if limit_w is None else f"{limit_w:g}"
