"""Limits in words: what a power budget gave a run and what that made of it, and what became of each device's."""

import math
from collections.abc import Sequence

from autocap.events import Event, Granted, HeldMeasured
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import Measurement
from autocap.reports.document import Table
from autocap.reports.summary.record import DeviceSummary, Summary
from autocap.reports.wording.numbers import change, common_caps


def sentence(granted: Granted, noun: str) -> str:
    """noun: what a device is called."""
    if granted.ceiling_w is None:
        return "the budget sets no ceiling any more"
    return f"the budget gives up to {granted.ceiling_w:g} W per {noun}"


def left(final_w: float, found: str, noun: str) -> str:
    """What becomes of the limits of a job whose tuning ends before the budget does. found: the limits found."""
    return f"the budget goes on: it gives each {noun} up to {final_w:g} W now, and puts {found} back when it ends"


def back(summary: Summary) -> str:
    """What became of the limits of a run that kept no cap, as a clause."""
    gpus = () if summary.device is None else summary.device.gpus
    if any(gpu.restored is None and gpu.cap_final_w is not None for gpu in gpus):
        return "and the budget has the limit"
    if any(gpu.restored is None for gpu in gpus):
        count = sum(gpu.restored is None for gpu in gpus)
        return f"and what became of the limit found on arrival is not known of {count} of {len(gpus)} GPUs"
    if not all(gpu.restored for gpu in gpus):
        return "the limit found on arrival is not on record as put back everywhere"
    return "the limit found on arrival was put back"


def remarks(events: Sequence[Event], found_w: Sequence[float | None], baseline: Measurement | None) -> list[str]:
    """What the budget gave over the whole run, where the baseline was measured if not at the limits found on arrival,
    and what was held last that the budget forced; nothing of a run that was under none. baseline: the last one."""
    ceilings_w = [event.ceiling_w for event in events if isinstance(event, Granted)]
    if not ceilings_w:
        return []
    finite_w = [watts for watts in ceilings_w if watts is not None]
    ends = dict.fromkeys(f"{watts:g}" for watts in (min(finite_w), max(finite_w))) if finite_w else ()
    span = f"at most {'–'.join(ends)} W" if ends else "no limit"
    last = "no limit" if ceilings_w[-1] is None else f"{ceilings_w[-1]:g} W"
    out = [f"the budget gave each device {span}, at the end {last}"]
    if baseline is None:
        return out
    if any(was_w is not None and at_w < was_w for at_w, was_w in zip(baseline.setting, found_w, strict=False)):
        out.append(
            f"the baseline is that of {common_caps(baseline.setting)} W, the most that the budget gave then, and not "
            "of the limit found on arrival"
        )
    held = [event.measurement for event in events if isinstance(event, HeldMeasured)]
    if held:
        shown = held[-1]
        slower_pct = 100 * (shown.period_s / baseline.period_s - 1)
        error_pct = 100 * math.hypot(shown.period_rel_stderr, baseline.period_rel_stderr)
        at = common_caps(shown.setting)
        out.append(f"measured at {at} W while the budget held it there: time {change(slower_pct, error_pct)}")
    return out


FATES = {True: "put back", False: "not on record as put back", None: "left to the node, not known here"}


def of_devices(device: DeviceSummary, knob: Knob = POWER_LIMIT) -> Table:
    """Each device's power limits, watts: what it accepts, what was found, what was left; the last two of another knob
    where that was turned."""
    rows = [
        (
            f"{gpu.index} of {gpu.node}" if gpu.node else str(gpu.index),
            gpu.name,
            f"{gpu.cap_min_w:g}–{gpu.cap_max_w:g}",
            f"{gpu.cap_default_w:g}",
            _bare(gpu.cap_original_w, knob),
            _bare(gpu.cap_final_w, knob),
            FATES[gpu.restored] if gpu.restored is not None or gpu.cap_final_w is None else "left to the budget",
        )
        for gpu in device.gpus
    ]
    unit = knob.unit_shown
    titles = (
        *("GPU", "name", "range W", "default W", f"found {unit}".rstrip(), f"left {unit}".rstrip()),
        knob.said("the limit found on arrival"),
    )
    return Table(
        heading="Power limits" if knob.is_power_limit else f"Power limits, and the {knob.name}",
        titles=titles,
        rows=tuple(rows),
        left=(1,),
        page_only=True,
        folded=True,
    )


def _bare(setting: float | None, knob: Knob) -> str:
    return "unknown" if setting is None else knob.bare(setting)
