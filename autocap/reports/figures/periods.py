"""A picture of one period estimate that shows why it was accepted or not: the signal with its cycles and what was left
out of them, some cycles reading by reading, the waveform folded from each half of the signal, and how much of the
signal repeats with each period that it could have."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import Cycles, PeriodEstimate, Verdict, count
from autocap.progress.period.candidates import find, screen
from autocap.progress.period.series import prepare
from autocap.reports.figures.model import (
    Axis,
    Band,
    Colour,
    Floats,
    Line,
    Mark,
    Marker,
    Picture,
    Plot,
    Points,
    Style,
    spanning,
)
from autocap.reports.figures.timeline import envelope

_SIGNAL = Style(colour=Colour.INK, width=0.8)
_LEFT_OUT = Style(colour=Colour.MUTED)
_END = Style(colour=Colour.VERMILION, dash=(4, 3), width=1.0)
_PERIOD = Style(colour=Colour.VERMILION, width=1.6)
_MULTIPLE = Style(colour=Colour.VERMILION, dash=(1, 3), width=1.0)
_HALVES = (("first half", Style(colour=Colour.BLUE)), ("second half", Style(colour=Colour.ORANGE, dash=(6, 3))))
_CANDIDATE = Style(colour=Colour.BLUE, marker=Marker.RING)
_ZOOM_CYCLES = 10.0
_MOST_ENDS = 60  # of cycles, which a panel can tell apart
_BINS = 40
_FEWEST_CYCLES = 8.0
_SHORTEST_UPDATES, _RESOLVED_UPDATES = 2.2, 3.0
_SCORE_STEP = 0.008  # between candidates, relative; a score's peak is several times as wide
_MULTIPLES = (1 / 3, 1 / 2, 2.0, 3.0, 4.0)
_LEAST_SCORE = -0.1


def period_picture(
    name: str, title: str, t_s: Floats, power_w: Floats, update_s: float, found: PeriodEstimate
) -> Picture:
    """name: of its file. title: the estimate in words. t_s, power_w: the readings that it was made from, seconds and
    watts, shape (n,). update_s: of the sensor."""
    cycles, accepted = None, found.verdict is Verdict.PERIODIC
    if found.period_s is not None:
        cycles = count(found, t_s, power_w, update_s=update_s, window_s=0.0)
    scored, period_s = _scored(t_s, power_w, update_s, found.period_s, accepted=accepted)
    panels = [_signal("the signal", t_s, power_w, cycles, accepted=accepted)]
    if period_s is not None and len(t_s):
        near = np.abs(t_s - _middle(t_s, cycles)) <= _ZOOM_CYCLES / 2 * period_s
        middle = f"its middle, {_ZOOM_CYCLES:g} times {period_s:.4g} s"
        panels += [_signal(middle, t_s[near], power_w[near], cycles, accepted=accepted)] if near.any() else []
        panels.append(_folded(t_s, power_w, cycles, period_s))
    return Picture(name=name, title=title, caption=found.reason, panels=(*panels, *scored), columns=2)


def _signal(title: str, t_s: Floats, power_w: Floats, cycles: Cycles | None, *, accepted: bool) -> Plot:
    """Power over time, with the ends of its cycles where they can be told apart."""
    drawn, x, y = envelope(t_s, power_w), spanning("time, s", [t_s]), spanning("power, W", [power_w])
    marks: list[Mark] = [
        Band(name=None, style=_SIGNAL, x=drawn.x, low=drawn.low, high=drawn.high),
        Line(name=None, style=_SIGNAL, x=drawn.x, y=drawn.mean),
    ]
    if cycles is not None:
        left_out = np.array([span for span in cycles.excluded if span[1] > x.low and span[0] < x.high])
        if len(left_out):
            marks.insert(0, _area("not part of the pattern", left_out, y))
        ends_s = _ends(cycles)
        ends_s = ends_s[(ends_s >= x.low) & (ends_s <= x.high)]
        if len(ends_s) <= _MOST_ENDS:
            marks.append(_uprights("ends of cycles" if accepted else "cycles as tried, not accepted", _END, ends_s, y))
    return Plot(title=title, x=x, y=y, marks=tuple(marks))


def _folded(t_s: Floats, power_w: Floats, cycles: Cycles | None, period_s: float) -> Plot:
    """Each half by itself: what repeats looks alike in both."""
    phase, inside = _phase(t_s, cycles, period_s)
    marks = []
    for half, (name, style) in zip(np.array_split(np.flatnonzero(inside), 2), _HALVES, strict=True):
        bins = np.minimum((phase[half] * _BINS).astype(int), _BINS - 1)
        sizes = np.bincount(bins, minlength=_BINS)
        used = np.flatnonzero(sizes)
        means = np.bincount(bins, power_w[half], minlength=_BINS)[used] / sizes[used]
        marks.append(Line(name=name, style=style, x=(used + 0.5) / _BINS, y=means))
    way = "along the cycles" if cycles is not None else "evenly"
    y = spanning("power, W", [line.y for line in marks])
    x = Axis(label="phase, cycles", low=0.0, high=1.0)
    return Plot(title=f"folded {way} of {period_s:.4g} s", x=x, y=y, marks=tuple(marks))


def _scored(
    t_s: Floats, power_w: Floats, update_s: float, period_s: float | None, *, accepted: bool
) -> tuple[list[Plot], float | None]:
    """How much repeats with each period (a multiple of the period scores as well, a part of it does not), and the
    period, or where there is none the best of those: it shows why even that is none. Nothing of a signal too short."""
    series = prepare(t_s, power_w, update_s=update_s, window_s=0.0)
    if series is None:
        return [], period_s
    shortest_s = _SHORTEST_UPDATES * max(update_s, series.step_s)
    longest_s = max(series.span_s / _FEWEST_CYCLES, 1.5 * shortest_s)
    looked_at_s = find(series, shortest_s=shortest_s, longest_s=longest_s)
    even_s = np.geomspace(shortest_s, longest_s, int(np.log(longest_s / shortest_s) / _SCORE_STEP) + 2)
    grid_s = np.unique(np.concatenate((even_s, looked_at_s, [] if period_s is None else [period_s])))
    score = np.maximum([screen(series.busy_s, series.y, float(one_s)) for one_s in grid_s], _LEAST_SCORE)
    best_s = float(grid_s[int(np.argmax(score))]) if period_s is None else period_s
    x = Axis(label="candidate period, s", low=float(grid_s[0]), high=float(grid_s[-1]), log=True)
    y = Axis(label="share that repeats", low=_LEAST_SCORE, high=1.1)
    known, multiples = np.array(looked_at_s, dtype=np.float64), best_s * np.array(_MULTIPLES)
    marks: list[Mark] = [
        Line(name=None, style=_SIGNAL, x=grid_s, y=score),
        _uprights("accepted" if accepted else "not accepted", _PERIOD, np.array([best_s]), y),
        _uprights("1/3, 1/2, 2, 3, 4 times it", _MULTIPLE, multiples, y),
        Points(name="candidates", style=_CANDIDATE, x=known, y=np.interp(known, grid_s, score)),
    ]
    if x.low < _RESOLVED_UPDATES * update_s:
        marks.insert(0, _area("under 3 updates", np.array([[x.low, min(_RESOLVED_UPDATES * update_s, x.high)]]), y))
    return [Plot(title="score", x=x, y=y, marks=tuple(marks))], best_s


def _uprights(name: str, style: Style, x: Floats, y: Axis) -> Line:
    """Lines from the bottom to the top, shape (n,)."""
    nowhere = np.full(len(x), np.nan)
    ends = np.tile([y.low, y.high, np.nan], len(x))
    return Line(name=name, style=style, x=np.column_stack((x, x, nowhere)).ravel(), y=ends)


def _area(name: str, spans: Floats, y: Axis) -> Band:
    """Stretches of x from the bottom to the top, shape (n, 2)."""
    x = np.column_stack((spans, np.full(len(spans), np.nan))).ravel()
    low, high = np.tile([y.low, y.low, np.nan], len(spans)), np.tile([y.high, y.high, np.nan], len(spans))
    return Band(name=name, style=_LEFT_OUT, x=x, low=low, high=high)


def _spans(cycles: Cycles) -> list[slice]:
    """The stretches that are counted: between two of them time goes on and the count does not."""
    stands = (np.diff(cycles.count) <= 1e-9) & (np.diff(cycles.t_s) > 1e-9)
    breaks = [0, *(int(place) + 1 for place in np.flatnonzero(stands)), len(cycles.t_s)]
    return [slice(start, end) for start, end in pairwise(breaks) if end - start > 2]


def _ends(cycles: Cycles) -> Floats:
    """Where cycles end: all counted moments but the first and the last of each stretch."""
    inner = [cycles.t_s[span][1:-1] for span in _spans(cycles)]
    return np.concatenate(inner) if inner else np.empty(0)


def _middle(t_s: Floats, cycles: Cycles | None) -> float:
    """The middle of the longest stretch that is counted, or of the signal."""
    spans = [] if cycles is None else [cycles.t_s[span] for span in _spans(cycles)]
    longest = max(spans, key=lambda times: float(np.ptp(times)), default=t_s)
    return float(longest[0] + longest[-1]) / 2


def _phase(t_s: Floats, cycles: Cycles | None, period_s: float) -> tuple[Floats, NDArray[np.bool_]]:
    """The phase of each reading, 0 to 1, and whether it belongs to the pattern; shape (n,)."""
    if cycles is None:
        return ((t_s - t_s[0]) / period_s) % 1.0, np.ones(len(t_s), dtype=np.bool_)
    phase, inside = np.zeros(len(t_s)), np.zeros(len(t_s), dtype=np.bool_)
    for span in _spans(cycles):
        times_s, counts = cycles.t_s[span], cycles.count[span]
        here = (t_s >= times_s[0]) & (t_s <= times_s[-1])
        phase[here] = (np.interp(t_s[here], times_s, counts) - counts[1]) % 1.0
        inside |= here
    return phase, inside
