"""Plots of the searches that `python -m bench strategies` ran. matplotlib is imported only when something is drawn.

A strategy has the same colour and dashes in every plot, and stands beside its line or row by name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.strategies.cases import Searched, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 120
_DASHES = ("-", "--", "-.", ":")
_FINE_PCT, _COARSE_PCT = 0.1, 1.0  # of regret: below it a scale is linear, above it logarithmic
_APART = 0.24  # of a row's height: between the numbers of trials at one cap
_KEPT = 130  # size of the ring around the cap that was kept
_REGRET = {"curves": "regret of the recommended cap, %", "jobs": "regret of the finished job, search and all, %"}


def draw(searched: Sequence[Searched], folder: Path) -> None:
    """Write into a folder, for each metric: outcome-METRIC.png, the regret of every search; regret-METRIC.png, how it
    falls with the probes; and CURVE-METRIC.png, the first seed's trials below each curve."""
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    for metric in dict.fromkeys(found.row.metric for found in searched):
        some = [found for found in searched if found.row.metric == metric]
        of = {strategy: group for strategy, _, group in grouped(some)}
        _draw_outcome(metric, of, folder / f"outcome-{metric}.png")
        _draw_regret(metric, of, folder / f"regret-{metric}.png")
        for curve in dict.fromkeys(found.row.curve for found in some):
            first = {name: next(found for found in group if found.row.curve == curve) for name, group in of.items()}
            _draw_curve(f"{curve}, {metric}", first, folder / f"{curve.replace('/', '-')}-{metric}.png")


def _draw_outcome(metric: str, of: Mapping[str, Sequence[Searched]], path: Path) -> None:
    """A row per strategy: a dot per search, a bar at their mean."""
    figure, axes = _figure(height=1.2 + 0.42 * len(of))
    for row, group in enumerate(of.values()):
        regrets = np.array([found.row.regret_pct for found in group])
        spread = row + np.linspace(-0.25, 0.25, len(regrets))
        axes.plot(regrets, spread, ".", color=_style(row)[0], markersize=6, alpha=0.5)
        axes.plot([regrets.mean()] * 2, [row - 0.38, row + 0.38], color="black", linewidth=2)
        axes.annotate(f"{regrets.mean():.2f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    _rows(axes, list(of))
    axes.annotate("mean", (1.01, -1), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axes.set_xscale("symlog", linthresh=_COARSE_PCT)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set(xlabel=_REGRET[next(iter(of.values()))[0].row.mode], title=f"{metric}: every search, and the mean")
    axes.grid(axis="x", alpha=0.3)
    _save(figure, path)


def _draw_regret(metric: str, of: Mapping[str, Sequence[Searched]], path: Path) -> None:
    """The mean regret of the best cap tried so far against the probes; at each line's end, of the kept cap."""
    figure, axes = _figure(height=5.0)
    for place, (strategy, group) in enumerate(of.items()):
        longest = max(found.row.probes for found in group)
        means = np.mean([_best_so_far(found, longest) for found in group], axis=0)
        colour, dashes = _style(place)
        axes.plot(range(longest + 1), means, dashes, color=colour, label=strategy)
        axes.plot(longest, means[-1], "o", color=colour, markersize=5)
    axes.set_xscale("function", functions=(np.sqrt, np.square))  # most searches are short, and one is long
    axes.set_yscale("symlog", linthresh=_FINE_PCT)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xticks([0, 1, 2, 3, 5, 10, 20, 30, 40])
    axes.set(xlabel="probes beyond the baseline", ylabel="mean regret of the best cap so far, %", title=metric)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    _save(figure, path)


def _best_so_far(found: Searched, probes: int) -> list[float]:
    """The regret of the best cap tried after 0, 1, … probes, percent; after the last of them, the final cap's."""
    drive = found.drive
    tried = [drive.grid[-1], *(trial.cap_w for trial in drive.trials)]
    best = np.minimum.accumulate([drive.regret_pct(cap_w) for cap_w in tried]).tolist()
    return [*best[:-1], *[drive.regret_pct(drive.final_w)] * (probes + 2 - len(best))]


def _draw_curve(title: str, of: Mapping[str, Searched], path: Path) -> None:
    """The true cost of every cap, and below it a row per strategy with its trials, numbered; a ring is the kept cap."""
    from matplotlib import pyplot

    rows = len(of)
    figure, (cost, trials) = pyplot.subplots(
        2, 1, sharex=True, figsize=(10, 4 + 0.45 * rows), height_ratios=(3, max(1.0, 0.45 * rows)), layout="constrained"
    )
    drive = next(iter(of.values())).drive
    cost.plot(drive.grid, drive.costs, color="grey")
    best = int(np.argmin(drive.costs))
    cost.plot(drive.grid[best], drive.costs[best], "k*", markersize=10, label=f"best: {drive.grid[best]:g} W")
    for row, found in enumerate(of.values()):
        colour = _style(row)[0]
        measured = [(trial.cap_w, trial.cost) for trial in found.drive.trials if trial.cost is not None]
        cost.plot(*zip(*measured, strict=True) if measured else ([], []), ".", color=colour, markersize=5, alpha=0.7)
        seen: Counter[float] = Counter()
        for number, trial in enumerate(found.drive.trials, start=1):
            place = (trial.cap_w, row + _APART * seen[trial.cap_w])
            trials.annotate(str(number), place, ha="center", va="center", fontsize=7.5, color=colour)
            seen[trial.cap_w] += 1
        trials.scatter(found.drive.final_w, row, s=_KEPT, facecolors="none", edgecolors=colour)
    cost.set(ylabel="cost, 1 at the highest cap", title=f"{title}: true cost, trials and kept caps")
    cost.set_ylim(top=min(float(drive.costs.max()) * 1.02, 2.5 * float(drive.costs.min())))
    cost.legend(loc="upper right")
    _rows(trials, list(of))
    trials.set_ylim(rows - 0.3, -0.6)
    trials.set(xlabel="cap, W")
    for axes in (cost, trials):
        axes.grid(axis="x", alpha=0.3)
    _save(figure, path)


def _style(place: int) -> tuple[str, str]:
    """Colour and dashes of the strategy at that place."""
    return f"C{place % 10}", _DASHES[place % len(_DASHES)]


def _figure(height: float) -> "tuple[Figure, Axes]":
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9.5, height), layout="constrained")


def _rows(axes: "Axes", names: Sequence[str]) -> None:
    """A row per name, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _save(figure: "Figure", path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
