"""What is known of a recurring job, for text, page and JSON, and its picture."""

import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from autocap.metrics import Metric
from autocap.recur.cost import UNITS
from autocap.recur.policy import Belief, Outcome, belief
from autocap.recur.record import JobSettings, KeptRecurrence, past
from autocap.reports.document import Document, Fact, Sentences, Table
from autocap.reports.figures.layout import spanning
from autocap.reports.figures.model import Axis, Colour, Floats, Line, Marker, Picture, Plot, Points, Style
from autocap.reports.rendering import Presentation
from autocap.reports.wording.recurring import amount
from autocap.runlog.codec import Json, encode
from autocap.version import __version__

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.VERMILION, Colour.PURPLE, Colour.SKY)
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 2))
_MOST_ROWS = 200  # of a table, the latest


def present(name: str, settings: JobSettings, kept: Sequence[KeptRecurrence]) -> Presentation:
    """The state of a recurring job."""
    metric = settings.measured_by
    thought = belief(past(kept, metric), settings.rules)
    return Presentation(
        document=_document(name, settings, kept, thought),
        pictures=lambda: (_picture(name, settings, kept, thought),),
        result=_result(name, settings, kept, thought),
    )


def _document(name: str, settings: JobSettings, kept: Sequence[KeptRecurrence], thought: Sequence[Belief]) -> Document:
    unit = UNITS[settings.metric.name]
    best = cheapest(thought)
    gpus = ", ".join(dict.fromkeys(gpu for one in kept for gpu in one.gpus))
    headline = f"{name}: no batch size has reached {settings.target} yet"
    if best is not None and best.mean is not None:
        headline = f"{name}: batch size {best.batch_size} costs least, {_mean(best)} {unit} to {settings.target}"
    label = "EMULATED power: modelled, not measured" if "(emulated)" in gpus else ""
    body: list[Sentences | Table] = [
        Sentences(lines=(headline, *([label] if label else []))),
        _beliefs(settings, thought, kept, unit),
        _rows(kept, settings.measured_by, unit),
    ]
    return Document(
        kicker=" · ".join(["autocap recur", *([gpus] if gpus else [])]),
        headline=headline,
        remarks=(),
        aim=f"minimising {settings.metric.name} over a whole run, {len(kept)} recurrences",
        label=label,
        facts=tuple(_facts(kept, thought, unit)),
        warnings=(),
        body=tuple(body),
        job=(("command", shlex.join(settings.command)), ("target", settings.target)),
        version=__version__,
    )


def cheapest(thought: Sequence[Belief]) -> Belief | None:
    """The batch size with the lowest mean cost that is not pruned; `None` before one has reached the target."""
    known = [one for one in thought if one.mean is not None and one.pruned is None]
    return min(known, key=lambda one: one.mean or 0.0, default=None)


def _facts(kept: Sequence[KeptRecurrence], thought: Sequence[Belief], unit: str) -> Iterator[Fact]:
    best = cheapest(thought)
    if best is not None:
        yield Fact(name="cheapest batch size", value=str(best.batch_size), note=f"{_mean(best)} {unit}")
    reached = sum(one.outcome is Outcome.REACHED for one in kept)
    yield Fact(name="recurrences", value=str(len(kept)), note=f"of which {reached} reached the target")


def _beliefs(settings: JobSettings, thought: Sequence[Belief], kept: Sequence[KeptRecurrence], unit: str) -> Table:
    best = cheapest(thought)
    rows = []
    for one in thought:
        mine = [each for each in kept if each.batch_size == one.batch_size]
        remarks = ["cheapest"] * (one is best) + ["default"] * (one.batch_size == settings.rules.default)
        rows.append(
            (
                str(one.batch_size),
                str(len(mine)),
                str(one.n),
                "" if one.mean is None else _mean(one),
                _caps(mine),
                ", ".join([*remarks, *([f"not tried: {one.pruned}"] if one.pruned else [])]),
            )
        )
    return Table(
        heading="Batch sizes",
        note="± is a standard error",
        titles=("batch size", "runs", "counted", f"cost {unit}", "cap W", ""),
        rows=tuple(rows),
        spare=(4,),
    )


def _caps(kept: Sequence[KeptRecurrence]) -> str:
    """The cap that was kept last."""
    caps_w = [one.cap_w for one in kept if one.outcome is Outcome.REACHED]
    return "" if not caps_w or caps_w[-1] is None else f"{caps_w[-1]:g}"


def _rows(kept: Sequence[KeptRecurrence], metric: Metric, unit: str) -> Table:
    rows = []
    for one, of_past in list(zip(kept, past(kept, metric), strict=True))[-_MOST_ROWS:]:
        cost = "" if of_past.cost is None else f"{of_past.cost:.4g}"
        rows.append(
            (
                str(one.number),
                one.started_at,
                str(one.batch_size),
                str(one.outcome),
                cost,
                "" if one.spent is None else f"{one.spent.time_s:.0f}",
                "" if one.spent is None else f"{one.spent.energy_j:.0f}",
                "" if one.cap_w is None else f"{one.cap_w:g}",
                one.reason,
            )
        )
    return Table(
        heading="Recurrences",
        note=f"the latest {_MOST_ROWS} of {len(kept)}" if len(kept) > _MOST_ROWS else "",
        titles=("", "started", "batch size", "outcome", f"cost {unit}", "s", "J", "cap W", ""),
        rows=tuple(rows),
        left=(1, 3),
        spare=(1, 7, 5, 6),
    )


def _mean(one: Belief) -> str:
    assert one.mean is not None
    return f"{one.mean:.4g}" if one.stderr is None else f"{one.mean:.4g} ± {one.stderr:.2g}"


def _result(name: str, settings: JobSettings, kept: Sequence[KeptRecurrence], thought: Sequence[Belief]) -> Json:
    costs = past(kept, settings.measured_by)
    best = cheapest(thought)
    recurrences: list[Json] = []
    for one, of_past in zip(kept, costs, strict=True):
        fields = encode(one)
        assert isinstance(fields, dict)
        recurrences.append({**fields, "cost": of_past.cost, "cost_stderr": of_past.cost_stderr})
    return {
        "schema": 1,
        "autocap_version": __version__,
        "name": name,
        "target": settings.target,
        "command": list(settings.command),
        "metric": encode(settings.metric),
        "unit": UNITS[settings.metric.name],
        "rules": encode(settings.rules),
        "cheapest": None if best is None else best.batch_size,
        "batch_sizes": [encode(one) for one in thought],
        "recurrences": recurrences,
    }


def _picture(name: str, settings: JobSettings, kept: Sequence[KeptRecurrence], thought: Sequence[Belief]) -> Picture:
    """What each recurrence cost, and what is thought of each batch size."""
    unit = UNITS[settings.metric.name]
    costs = past(kept, settings.measured_by)
    known = [one for one in costs if one.cost is not None]
    y = spanning(f"cost, {unit}", [_floats([one.cost or 0.0 for one in known])], low=0.0)
    marks: list[Points | Line] = []
    for index, size in enumerate(settings.rules.batch_sizes):
        colour = _COLOURS[index % len(_COLOURS)]
        mine = [one for one in known if one.batch_size == size]
        for reached, marker, label in (
            (True, Marker.DISC, f"batch size {size}"),
            (False, Marker.RING, f"{size}, in vain"),
        ):
            shown = [one for one in mine if (one.outcome is Outcome.REACHED) is reached]
            if shown:
                marks.append(
                    Points(
                        name=label,
                        style=Style(colour=colour, marker=marker),
                        x=_floats([one.number for one in shown]),
                        y=_floats([one.cost or 0.0 for one in shown]),
                    )
                )
    last = max([one.number for one in kept], default=0)
    over_time = Plot(
        title="What each recurrence cost",
        x=Axis(label="recurrence", low=-0.5, high=last + 0.5),
        y=y,
        marks=tuple(marks),
        share=1.2,
    )
    return Picture(
        name=f"recur-{name}",
        title="What each recurrence cost",
        caption=f"Cost to '{settings.target}' by recurrence, and the mean of what counts for each batch size with its "
        "standard error. A ring is a recurrence that ended without the target: its cost is what was spent in vain.",
        panels=(over_time, _means(settings, thought, unit, y)),
    )


def _means(settings: JobSettings, thought: Sequence[Belief], unit: str, y: Axis) -> Plot:
    """The mean of each batch size, side by side in their order."""
    marks = []
    for index, one in enumerate(thought):
        if one.mean is not None:
            marks.append(
                Points(
                    name=None,
                    style=Style(colour=_COLOURS[index % len(_COLOURS)], marker=Marker.SQUARE),
                    x=_floats([one.batch_size]),
                    y=_floats([one.mean]),
                    y_error=_floats([np.nan if one.stderr is None else one.stderr]),
                    labels=(amount(one.mean, unit),),
                )
            )
    sizes = _floats(settings.rules.batch_sizes)
    return Plot(title="Mean by batch size", x=spanning("batch size", [sizes]), y=y, marks=tuple(marks))


def _floats(numbers: Sequence[float]) -> Floats:
    return np.asarray(numbers, dtype=np.float64)
