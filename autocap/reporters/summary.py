"""A run as text for a terminal: what `telling` says, line by line."""

import io

from rich.console import Console
from rich.table import Table

from autocap import telling
from autocap.summary import Summary

_WIDTH = 120


def lines(summary: Summary, width: int = _WIDTH) -> list[str]:
    """What the run came to, line by line, without colour."""
    if summary.baseline is None:
        return [*_heading(summary), "no baseline was measured, so there is nothing to compare"]
    table = _drawn(telling.trials(summary, summary.baseline), width)
    told = [*_heading(summary), "", *table, "", telling.outcome(summary), *telling.savings(summary)]
    if not summary.trials:
        return told
    front = telling.front(summary.pareto, emulated=telling.emulated(summary))
    return [*told, "", *_drawn(telling.bests(summary), width), "", *_drawn(front, width)]


def warnings(summary: Summary) -> list[str]:
    """What was warned of while it ran."""
    return [f"warning: {text}" for text in summary.warnings]


def _heading(summary: Summary) -> list[str]:
    if summary.device is None:
        return [f"{telling.command(summary)}: not tuned: {summary.ended_because}"]
    label = f" ({telling.EMULATED})" if telling.emulated(summary) else ""
    return [
        f"{telling.device(summary)}{label}",
        f"minimising {telling.aim(summary)}; ended: {summary.ended_because}",
    ]


def _drawn(table: telling.Table, width: int) -> list[str]:
    """Right-aligned columns, and a last one for remarks."""
    grid = Table(box=None, pad_edge=False, header_style="")
    for title in table.titles[:-1]:
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column(table.titles[-1], justify="left")
    for row in table.rows:
        grid.add_row(*row)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]
