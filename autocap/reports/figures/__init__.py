"""The pictures of a run or a sweep, built from its records; renderers only draw them."""

from collections.abc import Sequence

from autocap.events import Event
from autocap.reports.figures.caps import caps, of_run, tradeoff
from autocap.reports.figures.model import Picture
from autocap.reports.figures.timeline import timelines
from autocap.reports.summary.record import Summary
from autocap.reports.wording.numbers import LOW_CONFIDENCE
from autocap.reports.wording.run import EMULATED
from autocap.runlog.columns import Samples

__all__ = ["pictures"]


def pictures(summary: Summary, events: Sequence[Event], samples: Samples) -> list[Picture]:
    """All that there is to show of a run; nothing of a job that was never measured."""
    if summary.device is None:
        return []
    note = "; ".join([EMULATED] * summary.device.emulated + [LOW_CONFIDENCE] * summary.is_relative)
    curve = of_run(summary, events)
    known = [] if curve is None or len(curve.measured) + len(curve.predicted) < 2 else [curve]
    shown = [tradeoff(known, note), *caps(known, note)] if known else []
    return [*timelines(summary, events, samples, note), *shown]
