"""A run over time: its states and trials, draw and limits, and the time per iteration."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autocap.events import BaselineMeasured, Decided, Event, Followed, Quoted, State, TrialEnded, TrialStarted
from autocap.events.quote import CARBON, KINDS
from autocap.events.settled import settled
from autocap.knobs import Knob
from autocap.records import Measurement, TrialState
from autocap.reports.figures.model import (
    Axis,
    Band,
    Bar,
    Colour,
    Floats,
    Line,
    Mark,
    Marker,
    Picture,
    Plot,
    Points,
    Row,
    Rows,
    Style,
    spanning,
)
from autocap.reports.summary.record import StateSpan, Summary
from autocap.reports.summary.summarise import all_of
from autocap.runlog.columns import Samples

BUCKETS = 700  # stretches of time, about as many as a screen is wide
_GAP = 5.0  # times the usual distance; a longer one between readings is a gap
_DRAW, _SPREAD = Style(colour=Colour.INK, width=1.0), Style(colour=Colour.MUTED)
_CAP = Style(colour=Colour.VERMILION, width=4.0)
_ENFORCED = Style(colour=Colour.BLUE, width=1.5, dash=(6, 6))
_STATE, _TRIAL = Style(colour=Colour.MUTED), Style(colour=Colour.SKY)
_STEPS = Style(colour=Colour.MUTED, width=1.0)
_BASELINE = Style(colour=Colour.INK, marker=Marker.DIAMOND)
_COMPLETE, _PRUNED = Style(colour=Colour.SKY), Style(colour=Colour.SKY, marker=Marker.RING)
_KEPT = Style(colour=Colour.VERMILION, marker=Marker.STAR)
_UNITS = ((600.0, 1.0, "s"), (3 * 3600.0, 60.0, "min"), (3 * 86400.0, 3600.0, "h"), (math.inf, 86400.0, "days"))
_SEARCH_SHARE = 0.4  # of the run: a search that took less is shown again by itself
_AFTER = 0.15  # of the search: what is shown of the time after it
_MOST_TRIALS = 1000  # the last that are shown
_COUNTS = 300  # stretches of steps whose time is drawn
_TAIL_PCT = 2.0  # of those, on either side, that an axis need not show
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """The stretch that is shown, seconds, and the unit it is shown in."""

    start_s: float
    end_s: float
    unit_s: float
    unit: str

    @property
    def axis(self) -> Axis:
        return Axis(
            label=f"time since the start, {self.unit}", low=self.start_s / self.unit_s, high=self.end_s / self.unit_s
        )

    def __call__(self, t_s: Floats) -> Floats:
        return t_s / self.unit_s


def timelines(summary: Summary, events: Sequence[Event], samples: Samples, note: str) -> list[Picture]:
    """The whole run, and its search once more where that is a small part of it. note: as in Picture."""
    end_s = max(events[-1].t_s, float(samples.t_s[-1]) if len(samples.t_s) else 0.0, 1.0)
    whole = _timeline("timeline", "The run", summary, events, samples, (0.0, end_s), note)
    searched_s = _search(summary.states)
    if searched_s is None or searched_s[1] - searched_s[0] > _SEARCH_SHARE * end_s:
        return [whole]
    alone = _timeline("search", "The search alone", summary, events, samples, searched_s, note)
    return [whole, replace(alone, folded=True)]


def _search(states: Sequence[StateSpan]) -> tuple[float, float] | None:
    """From the first baseline to a while after the last search, seconds; `None` where none was made."""
    starts = [span.start_s for span in states if span.name == State.BASELINE]
    ends = [span.end_s for span in states if span.name in (State.SEARCHING, State.CONFIRMING)]
    if not starts or not ends or ends[-1] <= starts[0]:
        return None
    return starts[0], ends[-1] + _AFTER * (ends[-1] - starts[0])


def _timeline(
    name: str,
    title: str,
    summary: Summary,
    events: Sequence[Event],
    samples: Samples,
    span_s: tuple[float, float],
    note: str,
) -> Picture:
    unit_s, unit = next((seconds, unit) for longest_s, seconds, unit in _UNITS if span_s[1] <= longest_s)
    clock = _Clock(start_s=span_s[0], end_s=span_s[1], unit_s=unit_s, unit=unit)
    inside = (samples.t_s >= span_s[0]) & (samples.t_s <= span_s[1])
    gpus = len(summary.device.gpus) if summary.device else 1
    values = value_plots(summary, events, clock.axis, span_s)
    return Picture(
        name=name,
        title=title,
        caption=_caption(summary, gpus, samples.notes, valued=bool(values)),
        panels=(
            Rows(x=clock.axis, rows=tuple(_rows(summary, events, clock))),
            _power(summary, samples, inside, clock, "power, W" + (f", sum of {gpus} devices" if gpus > 1 else "")),
            *values,
            _periods(summary.knob, events, samples, inside, clock),
        ),
        one_x=True,
        note=note,
    )


def _caption(summary: Summary, gpus: int, notes: Sequence[str], *, valued: bool) -> str:
    limits = "The cap is the power limit that is requested, the enforced limit what the device says holds."
    if not summary.knob.is_power_limit:
        limits = "The power limit is what is requested, the enforced limit what the device says holds."
    sentences = [limits]
    if gpus > 1:
        sentences.append(f"Power and limits are the sums of {gpus} devices.")
    if summary.trials:
        tried = "A bar in the row of trials is one trial, with its cap; a hollow one was ended early or failed."
        sentences.append(summary.knob.said(tried))
    if valued:
        followed = "Below is what a kilowatt-hour cost or emitted; at a point on it the caps followed."
        sentences.append(summary.knob.said(followed))
    sentences.append("A point at the bottom is the mean of a window as long as its bar, with its standard error.")
    return " ".join([*sentences, *(f"Of the samples: {note}." for note in notes)])


def _rows(summary: Summary, events: Sequence[Event], clock: _Clock) -> Iterator[Row]:
    knob = summary.knob
    for state in State:
        bars = tuple(_bar(span.start_s, span.end_s, clock) for span in summary.states if span.name == state)
        if bars and state is not State.DONE:
            yield Row(name=state.lower(), style=_STATE, bars=tuple(bar for bar in bars if bar is not None))
    trials = [
        _bar(
            *(start_s, end.t_s, clock),
            hollow=end.trial.state is not TrialState.COMPLETE,
            label=knob.bare(end.trial.setting),
        )
        for start_s, end in _trials(events)
    ]
    if trials:
        yield Row(name=knob.beside("trials"), style=_TRIAL, bars=tuple(bar for bar in trials if bar is not None))


def _bar(start_s: float, end_s: float, clock: _Clock, *, hollow: bool = False, label: str = "") -> Bar | None:
    start_s, end_s = max(start_s, clock.start_s), min(end_s, clock.end_s)
    if start_s > end_s:
        return None
    return Bar(start=start_s / clock.unit_s, end=end_s / clock.unit_s, hollow=hollow, label=label)


def _trials(events: Sequence[Event]) -> Iterator[tuple[float, TrialEnded]]:
    """Each trial's start, seconds, and its end."""
    some = [event for event in settled(events) if isinstance(event, TrialStarted | TrialEnded)]
    for one, other in pairwise(some[-2 * _MOST_TRIALS :]):
        if isinstance(one, TrialStarted) and isinstance(other, TrialEnded):
            yield one.t_s, other


def _power(summary: Summary, samples: Samples, inside: Bools, clock: _Clock, label: str) -> Plot:
    t_s = samples.t_s[inside]
    marks: list[Mark] = []
    requested = "cap" if summary.knob.is_power_limit else "power limit"
    limits = ((requested, _CAP, samples.requested_w), ("enforced limit", _ENFORCED, samples.enforced_w))
    for name, style, values in limits:
        x, y = changes(t_s, values[inside])
        if np.isfinite(y).any():
            marks.append(Line(name=name, style=style, x=clock(x), y=y, stepped=True))
    seen = envelope(t_s, samples.power_w[inside])
    if np.any(seen.high > seen.low):
        marks.insert(
            0, Band(name="lowest to highest draw", style=_SPREAD, x=clock(seen.x), low=seen.low, high=seen.high)
        )
    if len(seen.x):
        mean = "mean draw" if len(marks) and isinstance(marks[0], Band) else "draw"
        marks.append(Line(name=mean, style=_DRAW, x=clock(seen.x), y=seen.mean))
    tops = [mark.high if isinstance(mark, Band) else mark.y for mark in marks]
    return Plot(title=None, x=clock.axis, y=spanning(label, tops, low=0.0), marks=tuple(marks), share=1.6)


def _periods(knob: Knob, events: Sequence[Event], samples: Samples, inside: Bools, clock: _Clock) -> Plot:
    """The time per iteration of every window, and, where steps are counted, between counts."""
    x, period_s = _step_times(samples.steps[inside], samples.step_t_s[inside])
    marks: list[Mark] = []
    if len(x):
        marks.append(Line(name="from the steps", style=_STEPS, x=clock(x), y=period_s))
    events = settled(events)
    trials = [event.trial for event in all_of(TrialEnded, events)]
    windows: tuple[tuple[str, Style, list[Measurement | None]], ...] = (
        ("baseline", _BASELINE, [event.measurement for event in all_of(BaselineMeasured, events)]),
        ("trial", _COMPLETE, [trial.measurement for trial in trials if trial.state is TrialState.COMPLETE]),
        ("trial ended early", _PRUNED, [trial.measurement for trial in trials if trial.state is TrialState.PRUNED]),
        (
            knob.said("kept cap"),
            _KEPT,
            [event.measurement for event in all_of(Decided, events) if event.setting is not None],
        ),
    )
    for name, style, measured in windows:
        shown = [m for m in measured[-_MOST_TRIALS:] if m and clock.start_s <= _middle_s(m) <= clock.end_s]
        if shown:
            marks.append(_points(name, style, shown, clock))
    base = next((event.measurement for event in all_of(BaselineMeasured, events)), None)
    label = "time per iteration, s"
    if base is not None and base.is_relative:
        label = "time per iteration over the baseline's, low confidence"
        marks = [_over(mark, base.period_s) if isinstance(mark, Points) else mark for mark in marks]
    tops = [mark.y for mark in marks if isinstance(mark, Points)]
    if len(period_s):
        tops.append(np.percentile(period_s, [_TAIL_PCT, 100 - _TAIL_PCT]))
    return Plot(title=None, x=clock.axis, y=spanning(label, tops), marks=tuple(marks))


def _points(name: str, style: Style, measured: Iterable[Measurement], clock: _Clock) -> Points:
    rows = np.array([(_middle_s(m), m.period_s, m.duration_s / 2, m.period_s * m.period_rel_stderr) for m in measured])
    return Points(
        name=name, style=style, x=clock(rows[:, 0]), y=rows[:, 1], x_error=clock(rows[:, 2]), y_error=rows[:, 3]
    )


def _over(points: Points, seconds: float) -> Points:
    error = points.y_error
    return replace(points, y=points.y / seconds, y_error=None if error is None else error / seconds)


def _step_times(steps: Floats, step_t_s: Floats) -> tuple[Floats, Floats]:
    """Seconds per step between counts that are some steps apart, at the middle of each stretch."""
    known = np.isfinite(steps) & np.isfinite(step_t_s)
    counts, first = np.unique(steps[known], return_index=True)
    ends_s = step_t_s[known][first]
    if len(counts) < 3:
        return np.empty(0), np.empty(0)
    picked = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), _COUNTS)).astype(int))
    counts, ends_s = counts[picked], ends_s[picked]
    return (ends_s[1:] + ends_s[:-1]) / 2, np.diff(ends_s) / np.diff(counts)


def _middle_s(measurement: Measurement) -> float:
    return measurement.start_s + measurement.duration_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Shape (n,) each: the middle of a stretch, and what was read in it; NaN between stretches without a reading."""

    x: Floats
    low: Floats
    mean: Floats
    high: Floats


def envelope(x: Floats, y: Floats) -> Envelope:
    """The envelope of readings y at ascending x, both of shape (n,), in at most BUCKETS stretches of equal length, so
    that no peak of days of samples is lost. Readings that are not numbers are gaps; fewer readings than two a stretch
    are given as they are."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    rows = np.stack([x, y, y, y])
    if len(x) >= 2 * BUCKETS and x[-1] > x[0]:
        bucket = np.minimum((BUCKETS * (x - x[0]) / (x[-1] - x[0])).astype(int), BUCKETS - 1)
        starts = np.flatnonzero(np.diff(bucket, prepend=-1))
        sums = np.add.reduceat(rows[:2], starts, axis=1) / np.diff(starts, append=len(x))
        rows = np.stack([sums[0], np.minimum.reduceat(y, starts), sums[1], np.maximum.reduceat(y, starts)])
    middles, low, mean, high = _broken(rows)
    return Envelope(x=middles, low=low, mean=mean, high=high)


def changes(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A signal that holds its value, such as a limit, by its changes alone, and its end."""
    if not len(x):
        return x, y
    same = (y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1]))
    kept = np.flatnonzero(np.concatenate(([True], ~same)))
    kept = np.union1d(kept, [len(x) - 1])
    return x[kept], y[kept]


def _broken(rows: Floats) -> Floats:
    """Times and values, shape (4, n), with NaN put into each gap in time, so that no line is drawn across it."""
    x = rows[0]
    if len(x) < 3:
        return rows
    apart = np.diff(x)
    gaps = np.flatnonzero(apart > _GAP * np.median(apart)) + 1
    unknown = np.full((4, len(gaps)), np.nan)
    unknown[0] = (x[gaps - 1] + x[gaps]) / 2
    return np.insert(rows, gaps, unknown, axis=1)


_VALUE = Style(colour=Colour.BLUE, width=1.5)
_MOVED = Style(colour=Colour.VERMILION, marker=Marker.DISC)
_MOST_MOVES = 1000  # the last that are shown


def value_plots(summary: Summary, events: Sequence[Event], x: Axis, span_s: tuple[float, float]) -> list[Plot]:
    """One of each kind that was read as it changed. x: the axis; span_s: what it shows, seconds."""
    return [plot for kind in KINDS if (plot := _value_plot(summary, events, kind, x, span_s)) is not None]


def _value_plot(
    summary: Summary, events: Sequence[Event], kind: str, x: Axis, span_s: tuple[float, float]
) -> Plot | None:
    quoted = [event for event in events if isinstance(event, Quoted) and event.kind == kind]
    if all(event.value is None for event in quoted):
        return None
    unit_s = span_s[1] / x.high
    values = [np.nan if event.value is None else event.value for event in quoted]
    at_s = np.array([*(event.t_s for event in quoted), max(span_s[1], quoted[-1].t_s)])
    line = Line(name=None, style=_VALUE, x=at_s / unit_s, y=np.array([*values, values[-1]]), stepped=True)
    marks: list[Mark] = [line]
    moves = [event for event in events if isinstance(event, Followed) and event.kind == kind]
    shown = [move for move in moves[-_MOST_MOVES:] if span_s[0] <= move.t_s <= span_s[1]]
    if shown:
        moved_s, moved_at = np.array([(move.t_s, move.value) for move in shown]).T
        marks.append(Points(name=summary.knob.said("caps moved"), style=_MOVED, x=moved_s / unit_s, y=moved_at))
    money = summary.books.currency if summary.books is not None and summary.books.currency else "money"
    label = "g CO₂ per kWh" if kind == CARBON else f"{money} per kWh"
    return Plot(title=None, x=x, y=spanning(label, [line.y]), marks=tuple(marks), share=0.8)
