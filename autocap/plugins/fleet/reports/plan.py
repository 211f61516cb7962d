"""What a budget would do to planned jobs, as a table and a picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autocap.plugins.fleet.budget.plan import Outcome
from autocap.reports.document import Document, Sentences, Table
from autocap.reports.figures.model import Axis, Colour, Line, Marker, Picture, Plot, Points, Style

TITLES = ("budget", "W", "shared by", "mean %", "worst %", "spread %", "work %", "energy %", "peak W", "short s")
_STYLES = {
    "fair": Style(colour=Colour.BLUE),
    "throughput": Style(colour=Colour.ORANGE, marker=Marker.SQUARE, dash=(5, 2)),
    "energy": Style(colour=Colour.GREEN, marker=Marker.TRIANGLE, dash=(1.5, 2)),
    "uniform": Style(colour=Colour.VERMILION, marker=Marker.RING, dash=(6, 2, 1.5, 2)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBudget:
    """One budget, shared by one rule. budget_w: watts; of what all jobs ask for at one time it is that fraction."""

    budget_w: float
    fraction: float
    rule: str
    outcome: Outcome


def document(planned: Sequence[PlannedBudget], jobs: int, asked_w: float) -> Document:
    """A row a budget and rule."""
    lines = (
        f"{jobs} jobs, which ask for {asked_w:.0f} W at most at one time",
        "slowdowns are of whole jobs against their baselines; the spread is that of jobs that run at one time",
    )
    table = Table(
        heading="what each budget would do",
        note="by the jobs' curves, nothing was measured",
        titles=TITLES,
        rows=tuple(_row(one) for one in planned),
        left=(2,),
        spare=(TITLES.index("short s"), TITLES.index("peak W")),
    )
    return Document(headline="Budget", body=(Sentences(lines=lines), table))


def _row(one: PlannedBudget) -> tuple[str, ...]:
    outcome = one.outcome
    return (
        f"{one.fraction:.0%}",
        f"{one.budget_w:.0f}",
        one.rule,
        f"{100 * float(outcome.slowdown.mean()):.2f}",
        f"{100 * float(outcome.slowdown.max()):.2f}",
        f"{100 * outcome.spread:.2f}",
        f"{100 * outcome.throughput:.2f}",
        f"{100 * outcome.energy:.2f}",
        f"{outcome.peak_w:.0f}",
        f"{outcome.short_s:.0f}",
    )


def as_json(planned: Sequence[PlannedBudget]) -> list[dict[str, float | str]]:
    """A record a budget and rule; seconds, watts, and ratios to the baselines."""
    return [
        {
            "budget_w": one.budget_w,
            "fraction": one.fraction,
            "rule": one.rule,
            "slowdown_mean": float(one.outcome.slowdown.mean()),
            "slowdown_worst": float(one.outcome.slowdown.max()),
            "slowdown_spread": one.outcome.spread,
            "throughput": one.outcome.throughput,
            "energy": one.outcome.energy,
            "wall_s": one.outcome.wall_s,
            "peak_w": one.outcome.peak_w,
            "short_s": one.outcome.short_s,
        }
        for one in planned
    ]


def picture(planned: Sequence[PlannedBudget]) -> Picture:
    """The worst and the mean slowdown, and the energy, against the budget; a line a rule."""
    panels = (
        _panel(planned, "worst job", "slowdown, %", lambda outcome: 100 * float(outcome.slowdown.max())),
        _panel(planned, "mean of the jobs", "slowdown, %", lambda outcome: 100 * float(outcome.slowdown.mean())),
        _panel(planned, "energy of all", "of the baselines', %", lambda outcome: 100 * outcome.energy),
    )
    return Picture(
        name="budget",
        title="What a power budget would do",
        caption="Slowdowns and energy of planned jobs against the budget, by how it is shared.",
        panels=panels,
        columns=3,
        note="planned, not measured",
    )


def _panel(planned: Sequence[PlannedBudget], title: str, label: str, of: Callable[[Outcome], float]) -> Plot:
    marks: list[Line | Points] = []
    highest = 0.0
    for rule in dict.fromkeys(one.rule for one in planned):
        rows = sorted((one for one in planned if one.rule == rule), key=lambda one: one.budget_w)
        x, y = np.array([one.budget_w for one in rows]), np.array([of(one.outcome) for one in rows])
        highest = max(highest, float(y.max()))
        style = _STYLES[rule]
        marks += [Line(name=None, style=style, x=x, y=y), Points(name=rule, style=style, x=x, y=y)]
    widest_w = max(one.budget_w for one in planned)
    narrow_w = min(one.budget_w for one in planned)
    room_w = 0.05 * (widest_w - narrow_w) or 0.05 * widest_w
    return Plot(
        title=title,
        x=Axis(label="budget, W", low=narrow_w - room_w, high=widest_w + room_w),
        y=Axis(label=label, low=0.0, high=1.08 * highest or 1.0),
        marks=tuple(marks),
    )
