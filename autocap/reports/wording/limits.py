"""What became of the limits of a job's devices."""

from autocap.reports.document import Table
from autocap.reports.summary.record import DeviceSummary

FATES = {True: "put back", False: "not on record as put back", None: "left to the node, not known here"}


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
            FATES[gpu.restored] if gpu.restored is not None or gpu.cap_final_w is None else "left to the budget",
        )
        for gpu in device.gpus
    ]
    titles = ("GPU", "name", "range W", "default W", "found W", "left W", "the limit found on arrival")
    return Table(heading="Power limits", titles=titles, rows=tuple(rows), left=(1,), page_only=True, folded=True)


def _watts(limit_w: float | None) -> str:
    return "unknown" if limit_w is None else f"{limit_w:g}"
