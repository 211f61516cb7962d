"""A picture of one period estimate that shows why it was accepted or not: the signal with its cycles and what was left
out of them, the waveform folded from each half of it, and the detector's score over all periods it could have had.

Dashes, hatching and markers carry what colour does, so that it survives a grey printer.
"""

import io
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import Cycles, PeriodEstimate, Verdict, count, detect
from autocap.progress.period.candidates import find, screen
from autocap.progress.period.series import prepare
from autocap.reports.plots import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_SIZE_IN = (11.0, 9.0)
_DPI = 110
_WIDE = 110
_DARK, _MID, _GREY, _BLUE, _ORANGE = "0.15", "0.60", "0.80", "#1f4e9a", "#c8500a"
_ZOOM_CYCLES = 10.0
_MOST_TICKS = 300
_BINS = 40
_CHUNK = 10_000  # points that are drawn at once: a day's trace is too much for one path
_FEWEST_CYCLES = 8.0
_SHORTEST_UPDATES = 2.2
_RESOLVED_UPDATES = 3.0
_SCORE_STEP = 0.008  # between candidates, relative; a score's peak is several times as wide
_MULTIPLES = ((1 / 3, "1/3"), (1 / 2, "1/2"), (2.0, "×2"), (3.0, "×3"), (4.0, "×4"))
_LEAST_SCORE = -0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What is drawn.

    accepted: the verdict is periodic. cycles: followed along the signal, or `None`. period_s: at which the waveform is
    folded, accepted or not. grid_s, score: candidate periods and how much of the signal repeats with each, shape (n,).
    candidates_s: those the detector looked at more closely.
    """

    accepted: bool
    cycles: Cycles | None
    period_s: float | None
    grid_s: Floats
    score: Floats
    candidates_s: tuple[float, ...]


def draw(t_s: Floats, power_w: Floats, *, update_s: float, estimate: PeriodEstimate, title: str) -> bytes:
    """An estimate as a PNG file.

    t_s, power_w: the readings it was made from, shape (n,). update_s: of the sensor. title: the estimate in words; its
    reason is put under it. Raises PlotsUnavailable without matplotlib.
    """
    require()
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot: nothing here may open a window or keep a figure alive

    view = _look(t_s, power_w, update_s, estimate)
    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
    grid = figure.add_gridspec(3, 2)
    _signal(figure.add_subplot(grid[0, :]), t_s, power_w, view)
    _zoom(figure.add_subplot(grid[1, :]), t_s, power_w, view)
    _folded(figure.add_subplot(grid[2, 0]), t_s, power_w, view)
    _scores(figure.add_subplot(grid[2, 1]), view, update_s)
    reason = textwrap.fill(estimate.reason, _WIDE)
    figure.suptitle(f"{title}\n{reason}", fontsize="medium")
    file = io.BytesIO()
    with rc_context({"agg.path.chunksize": _CHUNK}):
        figure.savefig(file, format="png")
    return file.getvalue()


def rehearse() -> None:
    """Draw the estimate of a short square wave, which loads all that detecting and drawing need. Raises as `draw`."""
    t_s = np.arange(0.0, 40.0, 0.1)
    power_w = np.where(t_s % 2.0 < 1.2, 200.0, 100.0)
    estimate = detect(t_s, power_w, update_s=0.1, window_s=0.0)
    draw(t_s, power_w, update_s=0.1, estimate=estimate, title="rehearsal")


def _look(t_s: Floats, power_w: Floats, update_s: float, estimate: PeriodEstimate) -> _View:
    """All that is asked of the detector beyond its estimate."""
    period_s, cycles = estimate.period_s, None
    if period_s is not None:
        cycles = count(estimate, t_s, power_w, update_s=update_s, window_s=0.0)
    grid_s, score, found = np.empty(0), np.empty(0), list[float]()
    series = prepare(t_s, power_w, update_s=update_s, window_s=0.0)
    if series is not None:
        shortest_s = _SHORTEST_UPDATES * max(update_s, series.step_s)
        longest_s = max(series.span_s / _FEWEST_CYCLES, 1.5 * shortest_s)
        found = find(series, shortest_s=shortest_s, longest_s=longest_s)
        steps = int(np.log(longest_s / shortest_s) / _SCORE_STEP) + 2
        even_s = np.geomspace(shortest_s, longest_s, steps)
        grid_s = np.unique(np.concatenate((even_s, found, [] if period_s is None else [period_s])))
        score = np.array([screen(series.busy_s, series.y, float(period)) for period in grid_s])
    if period_s is None and len(grid_s):
        period_s = float(grid_s[int(np.argmax(score))])  # shows why even the best of them is none
    return _View(
        accepted=estimate.verdict is Verdict.PERIODIC,
        cycles=cycles,
        period_s=period_s,
        grid_s=grid_s,
        score=score,
        candidates_s=tuple(found),
    )


def _signal(axes: "Axes", t_s: Floats, power_w: Floats, view: _View) -> None:
    axes.plot(t_s, power_w, color=_DARK, linewidth=0.7)
    axes.set(xlabel="time (s)", ylabel="power (W)")
    axes.set_title("the signal", loc="left")
    axes.margins(x=0)
    if view.cycles is None:
        return
    _shade(axes, view.cycles)
    ends_s = _ends(view.cycles)
    if len(ends_s) <= _MOST_TICKS:
        label = "cycle boundaries" if view.accepted else "cycles as tried, not accepted"
        axes.plot(ends_s, np.zeros(len(ends_s)), "|", color=_ORANGE, transform=axes.get_xaxis_transform(),
                  markersize=12, clip_on=False, label=label)  # fmt: skip
    _key(axes)


def _zoom(axes: "Axes", t_s: Floats, power_w: Floats, view: _View) -> None:
    """Some cycles from the middle, reading by reading."""
    axes.set(xlabel="time (s)", ylabel="power (W)")
    if len(t_s) == 0:
        axes.set_title("no readings", loc="left")
        return
    if view.period_s is None:
        title, span_s = "its middle", 0.2 * float(np.ptp(t_s))
    else:
        title = f"its middle: {_ZOOM_CYCLES:g} times {view.period_s:.4g} s"
        span_s = _ZOOM_CYCLES * view.period_s
    axes.set_title(title, loc="left")
    middle_s = _middle(t_s, view.cycles)
    near = np.abs(t_s - middle_s) <= span_s / 2
    axes.plot(t_s[near], power_w[near], color=_DARK, linewidth=0.8, marker="o", markersize=2.5)
    axes.set_xlim(middle_s - span_s / 2, middle_s + span_s / 2)
    if view.cycles is not None:
        _shade(axes, view.cycles)
        for end_s in _ends(view.cycles):
            if abs(end_s - middle_s) <= span_s / 2:
                axes.axvline(end_s, color=_ORANGE, linestyle="--", linewidth=1.0)


def _folded(axes: "Axes", t_s: Floats, power_w: Floats, view: _View) -> None:
    """Each half by itself: what repeats looks alike in both."""
    axes.set(xlabel="phase (cycles)", ylabel="power (W)")
    if view.period_s is None:
        axes.set_title("no period to fold at", loc="left")
        axes.set_axis_off()
        return
    phase, inside = _phase(t_s, view)
    way = "along the cycles" if view.cycles is not None else "evenly"
    axes.set_title(f"folded {way} of {view.period_s:.4g} s", loc="left")
    order = np.flatnonzero(inside)
    axes.plot(phase[order], power_w[order], ".", color=_MID, markersize=3, zorder=1)
    styles = ((_BLUE, "-", "first half"), (_ORANGE, "--", "second half"))
    for half, (colour, style, label) in zip(np.array_split(order, 2), styles, strict=True):
        centres, means = _binned(phase[half], power_w[half])
        axes.plot(centres, means, color=colour, linestyle=style, linewidth=1.6, label=label, zorder=2)
    axes.set_xlim(0.0, 1.0)
    _key(axes)


def _scores(axes: "Axes", view: _View, update_s: float) -> None:
    """How much repeats with each period; a multiple of the period scores as well, a part of it does not."""
    if len(view.grid_s) == 0:
        axes.set_title("too short or too even to score periods", loc="left")
        axes.set_axis_off()
        return
    axes.set_title("score", loc="left")
    axes.set(xlabel="candidate period (s)", ylabel="share that repeats")
    score = np.maximum(view.score, _LEAST_SCORE)
    axes.semilogx(view.grid_s, score, color=_DARK, linewidth=0.8)
    known = np.array(view.candidates_s)
    axes.plot(known, np.interp(known, view.grid_s, score), "o", markerfacecolor="none", color=_BLUE, label="candidates")
    axes.set_xlim(view.grid_s[0], view.grid_s[-1])
    axes.set_ylim(_LEAST_SCORE, 1.15)
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    alias_s = _RESOLVED_UPDATES * update_s
    if alias_s > view.grid_s[0]:
        axes.axvspan(view.grid_s[0], alias_s, facecolor=_GREY, alpha=0.5, hatch="\\\\", edgecolor="0.6",
                     linewidth=0, label="under 3 updates")  # fmt: skip
    if view.period_s is not None:
        axes.axvline(view.period_s, color=_ORANGE, linewidth=1.6, label="accepted" if view.accepted else "not accepted")
        for multiple, name in _MULTIPLES:
            place = multiple * view.period_s
            if view.grid_s[0] <= place <= view.grid_s[-1]:
                axes.axvline(place, color=_ORANGE, linestyle=":", linewidth=1.0)
                axes.text(place, 1.07, name, ha="center", va="center", fontsize="small", backgroundcolor="white")
    _key(axes)


def _key(axes: "Axes") -> None:
    """The legend, above the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        axes.legend(handles, labels, loc="lower right", bbox_to_anchor=(1.01, 0.98), ncols=len(labels), frameon=False,
                    fontsize="small", columnspacing=1.0, handletextpad=0.4)  # fmt: skip


def _shade(axes: "Axes", cycles: Cycles) -> None:
    for number, (start_s, end_s) in enumerate(cycles.excluded):
        label = "not part of the pattern" if number == 0 else None
        axes.axvspan(start_s, end_s, facecolor=_GREY, alpha=0.6, hatch="//", edgecolor="0.5", linewidth=0, label=label)


def _spans(cycles: Cycles) -> list[slice]:
    """The stretches that are counted: between two of them time goes on and the count does not."""
    stands = (np.diff(cycles.count) <= 1e-9) & (np.diff(cycles.t_s) > 1e-9)
    breaks = [0, *(int(place) + 1 for place in np.flatnonzero(stands)), len(cycles.t_s)]
    return [slice(start, end) for start, end in pairwise(breaks) if end - start > 2]


def _ends(cycles: Cycles) -> Floats:
    """Where cycles end: all counted moments but the first and the last of each stretch."""
    inner = [cycles.t_s[span][1:-1] for span in _spans(cycles)]
    return np.concatenate(inner) if inner else np.empty(0)


def _phase(t_s: Floats, view: _View) -> tuple[Floats, NDArray[np.bool_]]:
    """The phase of each reading, 0 to 1, and whether it belongs to the pattern; shape (n,)."""
    if view.cycles is None or view.period_s is None:
        return ((t_s - t_s[0]) / (view.period_s or 1.0)) % 1.0, np.ones(len(t_s), dtype=np.bool_)
    phase, inside = np.zeros(len(t_s)), np.zeros(len(t_s), dtype=np.bool_)
    for span in _spans(view.cycles):
        times_s, counts = view.cycles.t_s[span], view.cycles.count[span]
        here = (t_s >= times_s[0]) & (t_s <= times_s[-1])
        phase[here] = (np.interp(t_s[here], times_s, counts) - counts[1]) % 1.0
        inside |= here
    return phase, inside


def _middle(t_s: Floats, cycles: Cycles | None) -> float:
    """The middle of the longest stretch that is counted, or of the signal."""
    spans = [] if cycles is None else [cycles.t_s[span] for span in _spans(cycles)]
    longest = max(spans, key=lambda times: float(np.ptp(times)), default=t_s)
    return float(longest[0] + longest[-1]) / 2


def _binned(phase: Floats, power_w: Floats) -> tuple[Floats, Floats]:
    """Centres of the phase bins that hold readings, and the mean of each."""
    bins = np.minimum((phase * _BINS).astype(int), _BINS - 1)
    sizes = np.bincount(bins, minlength=_BINS)
    used = np.flatnonzero(sizes)
    return (used + 0.5) / _BINS, np.bincount(bins, power_w, minlength=_BINS)[used] / sizes[used]
