"""What is known of a recurring job, for text, page and JSON, and its picture."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autocap import __version__
from autocap.plugins.recur.events import scaled
from autocap.plugins.recur.policy import Belief, Outcome, Recurrence, Saved, belief, cheapest, more, saved
from autocap.plugins.recur.record import JobSettings, KeptRecurrence, past
from autocap.reports.document import Document, Fact, Sentences, Table
from autocap.reports.figures.model import Axis, Colour, Floats, Marker, Picture, Plot, Points, Style, spanning
from autocap.reports.rendering import Presentation
from autocap.reports.wording.run import EMULATED
from autocap.wire.codec import encode
from autocap.wire.json_lines import Json

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.VERMILION, Colour.PURPLE, Colour.SKY)
_MOST_ROWS = 200  # of a table, the latest
_SURE = 2.0  # standard errors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """All that is shown. costs: of `kept`, in their order. factor: by which costs are divided; unit: then."""

    name: str
    settings: JobSettings
    kept: Sequence[KeptRecurrence]
    costs: Sequence[Recurrence]
    thought: Sequence[Belief]
    factor: float
    unit: str

    @property
    def gpus(self) -> str:
        return ", ".join(dict.fromkeys(gpu for one in self.kept for gpu in one.gpus))

    @property
    def label(self) -> str:
        return EMULATED if "(emulated)" in self.gpus else ""

    @property
    def saved(self) -> "Saved | None":
        return saved(self.costs, self.thought, self.settings.rules.default)

    def cost(self, cost: float | None) -> str:
        return "" if cost is None else f"{cost / self.factor:.4g}"

    def mean(self, one: Belief) -> str:
        return f"{self.cost(one.mean)}{_error(None if one.stderr is None else one.stderr / self.factor)}"


def present(name: str, settings: JobSettings, kept: Sequence[KeptRecurrence]) -> Presentation:
    """The state of a recurring job."""
    metric = settings.measured_by
    costs = past(kept, metric)
    factor, unit = scaled(max([one.cost or 0.0 for one in costs], default=0.0), metric.unit or "")
    shown = _Shown(
        name=name,
        settings=settings,
        kept=kept,
        costs=costs,
        thought=belief(costs, settings.rules),
        factor=factor,
        unit=unit,
    )
    return Presentation(document=_document(shown), pictures=lambda: (_picture(shown),), result=_result(shown))


def _document(shown: _Shown) -> Document:
    settings, headline = shown.settings, _headline(shown)
    return Document(
        kicker=" · ".join(["autocap recur", *([shown.gpus] if shown.gpus else [])]),
        headline=headline,
        remarks=(),
        aim=f"minimising {settings.metric.name} over a whole run, {len(shown.kept)} recurrences",
        label=shown.label,
        facts=tuple(_facts(shown)),
        warnings=(),
        body=(Sentences(lines=_lines(shown, headline)), _beliefs(shown), _rows(shown)),
        job=(("command", shlex.join(settings.command)), ("target", settings.target)),
        version=__version__,
    )


def _lines(shown: _Shown, headline: str) -> tuple[str, ...]:
    found = shown.saved
    lines = [headline]
    if found is not None:
        share = f"{_percent(found.a_run, found.a_run_stderr)} of a run's cost"
        lines.append(f"saved against the default {shown.settings.rules.default}: {share}; {_so_far(shown, found)}")
    return (*lines, *([shown.label] if shown.label else []))


def _percent(share: float, error: float) -> str:
    return f"{100 * share:.1f}{_error(100 * error)} %"


def _error(error: float | None) -> str:
    """None where nothing is known of it."""
    return "" if error is None or not error < math.inf else f" ± {float(f'{error:.2g}'):g}"


def _headline(shown: _Shown) -> str:
    """What costs least, and whether that is told from the others by more than the errors of both."""
    target, best = shown.settings.target, cheapest(shown.thought)
    if best is None:
        return f"{shown.name}: no batch size has reached {target} yet"
    costs = f"{shown.mean(best)} {shown.unit} to {target}"
    others = [one for one in shown.thought if one.mean is not None and one is not best and one.pruned is None]
    if not others:
        return f"{shown.name}: batch size {best.batch_size} costs {costs}, and no other has reached it"
    least = f"{shown.name}: batch size {best.batch_size} costs least"
    near = min(others, key=lambda one: more(one, best)[0] - _SURE * more(one, best)[1])
    extra, error = more(near, best)
    if extra > _SURE * error:
        return f"{least}, {costs}"
    return f"{least} so far, {costs}; {near.batch_size} costs {_percent(extra, error)} more, which may be chance"


def _facts(shown: _Shown) -> Iterator[Fact]:
    best = cheapest(shown.thought)
    if best is not None:
        yield Fact(name="cheapest batch size", value=str(best.batch_size), note=f"{shown.mean(best)} {shown.unit}")
    found = shown.saved
    if found is not None:
        yield Fact(
            name="saved against the default",
            value=f"{_percent(found.a_run, found.a_run_stderr)} a run",
            note=_so_far(shown, found),
        )
    reached = sum(one.outcome is Outcome.REACHED for one in shown.kept)
    yield Fact(name="recurrences", value=str(len(shown.kept)), note=f"of which {reached} reached the target")


def _so_far(shown: _Shown, found: Saved) -> str:
    error = _error(found.so_far_stderr / shown.factor)
    return f"{shown.cost(found.so_far)}{error} {shown.unit} so far, what was spent in vain and in searches taken off"


def _beliefs(shown: _Shown) -> Table:
    best = cheapest(shown.thought)
    rows = []
    for one in shown.thought:
        mine = [each for each in shown.kept if each.batch_size == one.batch_size]
        remarks = ["cheapest"] * (one is best) + ["default"] * (one.batch_size == shown.settings.rules.default)
        rows.append(
            (
                str(one.batch_size),
                str(len(mine)),
                str(one.n),
                shown.mean(one),
                _cap(mine),
                ", ".join([*remarks, *([] if one.pruned is None else [one.pruned])]),
            )
        )
    return Table(
        heading="Batch sizes",
        note="mean cost to the target without searches for a cap, ± its standard error",
        titles=("batch size", "runs", "reached", f"cost {shown.unit}", "cap W", ""),
        rows=tuple(rows),
        spare=(4,),
    )


def _cap(kept: Sequence[KeptRecurrence]) -> str:
    """The cap that was kept last."""
    caps_w = [one.cap_w for one in kept if one.outcome is Outcome.REACHED]
    return "" if not caps_w or caps_w[-1] is None else f"{caps_w[-1]:g}"


def _rows(shown: _Shown) -> Table:
    rows = [
        (
            str(one.number),
            one.started_at,
            str(one.batch_size),
            str(one.outcome),
            shown.cost(of_past.cost),
            "" if one.spent is None else f"{one.spent.time_s:.0f}",
            "" if one.cap_w is None else f"{one.cap_w:g}",
            one.reason,
        )
        for one, of_past in zip(shown.kept, shown.costs, strict=True)
    ]
    return Table(
        heading="Recurrences",
        note=f"the latest {_MOST_ROWS} of {len(rows)}" if len(rows) > _MOST_ROWS else "",
        titles=("", "started", "batch size", "outcome", f"cost {shown.unit}", "s", "cap W", ""),
        rows=tuple(rows[-_MOST_ROWS:]),
        left=(1, 3),
        spare=(1, 6, 5),
    )


def _result(shown: _Shown) -> Json:
    best = cheapest(shown.thought)
    recurrences: list[Json] = []
    for one, of_past in zip(shown.kept, shown.costs, strict=True):
        fields = encode(one)
        assert isinstance(fields, dict)
        known = {"cost": of_past.cost, "cost_stderr": of_past.cost_stderr, "search_cost": of_past.search_cost}
        recurrences.append({**fields, **known})
    return {
        "schema": 1,
        "autocap_version": __version__,
        "name": shown.name,
        "target": shown.settings.target,
        "command": list(shown.settings.command),
        "metric": encode(shown.settings.metric),
        "unit": shown.settings.measured_by.unit,
        "rules": encode(shown.settings.rules),
        "cheapest": None if best is None else best.batch_size,
        "saved": None if shown.saved is None else encode(shown.saved),
        "batch_sizes": [encode(one) for one in shown.thought],
        "recurrences": recurrences,
    }


def _picture(shown: _Shown) -> Picture:
    """What each recurrence cost, and what is thought of each batch size."""
    known = [one.cost for one in shown.costs if one.cost is not None]
    reaching = [one.mean + (one.stderr or 0.0) for one in shown.thought if one.mean is not None]
    y = spanning(f"cost, {shown.unit}", [_floats([*known, *reaching]) / shown.factor], low=0.0)
    marks = [mark for index, size in enumerate(shown.settings.rules.batch_sizes) for mark in _of(shown, size, index)]
    last = max([one.number for one in shown.kept], default=0)
    over_time = Plot(
        title=None,
        x=Axis(label="recurrence", low=-0.5, high=last + 0.5),
        y=y,
        marks=tuple(marks),
        share=1.2,
    )
    return Picture(
        name=f"recur-{shown.name}",
        title="What each recurrence cost",
        caption=f"Cost to '{shown.settings.target}' by recurrence, and its mean for each batch size with its standard "
        "error. A ring is a recurrence that ended without the target: its cost is what was spent in vain.",
        panels=(over_time, _means(shown, y)),
        note=shown.label,
    )


def _of(shown: _Shown, size: int, index: int) -> Iterator[Points]:
    """The recurrences with one batch size: those that reached the target, and those that did not."""
    for reached, marker, label in ((True, Marker.DISC, str(size)), (False, Marker.RING, f"{size}, in vain")):
        mine = [
            (one.number, one.cost)
            for one in shown.costs
            if one.batch_size == size and one.cost is not None and (one.outcome is Outcome.REACHED) is reached
        ]
        if mine:
            numbers, costs = zip(*mine, strict=True)
            yield Points(
                name=label,
                style=Style(colour=_COLOURS[index % len(_COLOURS)], marker=marker),
                x=_floats(numbers),
                y=_floats(costs) / shown.factor,
            )


def _means(shown: _Shown, y: Axis) -> Plot:
    """The mean of each batch size."""
    marks = []
    for index, one in enumerate(shown.thought):
        if one.mean is not None:
            marks.append(
                Points(
                    name=None,
                    style=Style(colour=_COLOURS[index % len(_COLOURS)], marker=Marker.SQUARE),
                    x=_floats([one.batch_size]),
                    y=_floats([one.mean]) / shown.factor,
                    y_error=_floats([np.nan if one.stderr is None else one.stderr]) / shown.factor,
                    labels=(shown.cost(one.mean),),
                )
            )
    sizes = _floats(shown.settings.rules.batch_sizes)
    return Plot(title="Mean by batch size", x=spanning("batch size", [sizes]), y=y, marks=tuple(marks))


def _floats(numbers: Sequence[float]) -> Floats:
    return np.asarray(numbers, dtype=np.float64)
