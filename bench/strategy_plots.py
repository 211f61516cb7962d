"""Plots of the searches on curves. matplotlib is imported only when something is drawn."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.curve_cases import Searched


def draw(searched: Sequence[Searched], folder: Path) -> None:
    """Write regret-METRIC.png, and CURVE-METRIC.png of the first seed's searches, into a folder."""
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    for metric in dict.fromkeys(found.row.metric for found in searched):
        some = [found for found in searched if found.row.metric == metric]
        _draw_regret(some, folder / f"regret-{metric}.png")
        for curve in dict.fromkeys(found.row.curve for found in some):
            name = f"{curve.replace('/', '-')}-{metric}.png"
            _draw_curve([found for found in some if found.row.curve == curve], folder / name)


def _draw_regret(searched: Sequence[Searched], path: Path) -> None:
    """The mean regret of the cheapest cap tried so far against the probes, a line per strategy."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for strategy in dict.fromkeys(found.row.strategy for found in searched):
        some = [found for found in searched if found.row.strategy == strategy]
        longest = max(found.row.probes for found in some)
        regrets = np.array([_best_so_far(found, longest) for found in some])
        axes.plot(range(longest + 1), regrets.mean(axis=0), ".-", label=strategy)
    axes.set(xlabel="probes beyond the baseline", ylabel="mean regret of the best cap tried, %", yscale="symlog")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _best_so_far(found: Searched, probes: int) -> list[float]:
    """The regret of the best cap tried after 0, 1, … probes, percent; after its last the one that was kept."""
    drive = found.drive
    tried = [drive.grid[-1], *(trial.cap_w for trial in drive.trials)]
    best = np.minimum.accumulate([drive.regret_pct(cap_w) for cap_w in tried]).tolist()
    return [*best[:-1], *[found.row.regret_pct] * (probes + 2 - len(best))]


def _draw_curve(searched: Sequence[Searched], path: Path) -> None:
    """A curve's true cost, and on it the trials of each strategy, numbered, for the first seed."""
    from matplotlib import pyplot

    first = min(found.row.seed for found in searched)
    figure, axes = pyplot.subplots(figsize=(8, 5))
    drive = searched[0].drive
    axes.plot(drive.grid, drive.costs, color="grey", label="true cost")
    for place, found in enumerate([found for found in searched if found.row.seed == first]):
        tried = [(trial.cap_w, trial.cost) for trial in found.drive.trials if trial.cost is not None]
        if not tried:
            continue
        caps_w, costs = zip(*tried, strict=True)
        (dots,) = axes.plot(
            caps_w, costs, "o", markersize=4, label=f"{found.row.strategy}: {found.row.final_cap_w:g} W"
        )
        for number, (cap_w, cost) in enumerate(tried, start=1):
            offset = (4, 4 + 8 * place)
            axes.annotate(
                str(number), (cap_w, cost), offset, textcoords="offset points", fontsize=7, color=dots.get_color()
            )
    axes.set(xlabel="cap, W", ylabel=f"{searched[0].row.metric}, 1 at the highest cap", title=searched[0].row.curve)
    axes.set_ylim(top=min(float(drive.costs.max()) * 1.02, 2.5 * float(drive.costs.min())))
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
