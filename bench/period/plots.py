"""Plots of the period benchmark. matplotlib is imported only when something is drawn."""

from collections.abc import Sequence
from pathlib import Path

from bench.period.cases import OURS, SLOWDOWNS, Row
from bench.period.rivals import RIVALS


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Write period-errors.png and period-ratios.png into a folder."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for method in (*RIVALS, OURS):
        points = [row for row in rows if row.kind == "absolute" and row.method == method and row.error is not None]
        axes.loglog(
            [row.updates for row in points],
            [max(100 * abs(row.error or 0.0), 1e-3) for row in points],
            "." if method == OURS else "x",
            label=method,
            alpha=0.6,
        )
    axes.axvline(3, color="grey", linestyle=":")
    axes.set(xlabel="period, sensor updates", ylabel="error against the nearest multiple, %")
    axes.legend()
    figure.savefig(folder / "period-errors.png", dpi=120)
    pyplot.close(figure)

    figure, axes = pyplot.subplots(figsize=(8, 5))
    ratios = [row for row in rows if row.kind == "ratio" and row.error is not None]
    errors = [[100 * (row.error or 0.0) for row in ratios if row.slowdown == slowdown] for slowdown in SLOWDOWNS]
    axes.boxplot(errors, tick_labels=[f"+{slowdown - 1:.0%}" for slowdown in SLOWDOWNS])
    axes.set(xlabel="slowdown", ylabel="error of the ratio, %")
    figure.savefig(folder / "period-ratios.png", dpi=120)
    pyplot.close(figure)
