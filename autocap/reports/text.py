"""A run as text for a terminal: what `telling` says, line by line."""

import io

from rich.console import Console
from rich.table import Table as Grid

from autocap.reports.summary.record import Summary
from autocap.reports.wording import node as node_wording
from autocap.reports.wording import per_gpu as per_gpu_wording
from autocap.reports.wording import run as run_wording
from autocap.reports.wording.run import Table

WIDTH = 120  # characters, where no terminal says how many there are


def lines(summary: Summary, width: int = WIDTH) -> list[str]:
    """What the run came to, line by line, without colour."""
    if summary.baseline is None:
        return [*_heading(summary), "no baseline was measured, so there is nothing to compare"]
    table = drawn(run_wording.trials(summary, summary.baseline), width)
    told = [*_heading(summary), "", *table, "", run_wording.outcome(summary)]
    told += [*per_gpu_wording.lines(summary), *run_wording.savings(summary)]
    if summary.node is not None:
        of_gpus = node_wording.of_gpus(summary, summary.baseline)
        told += [*node_wording.at_rest(summary.node), "", *drawn(of_gpus, width)]
    if not summary.trials:
        return told
    front = run_wording.front(summary.pareto, emulated=run_wording.modelled(summary))
    bests = node_wording.bests(summary) or run_wording.bests(summary)
    return [*told, "", *drawn(bests, width), "", *drawn(front, width)]


def _heading(summary: Summary) -> list[str]:
    if summary.device is None:
        return [f"{run_wording.command(summary)}: not tuned: {summary.ended_because}"]
    label = f" ({run_wording.EMULATED})" if run_wording.emulated(summary) else ""
    return [
        f"{run_wording.device(summary)}{label}",
        f"minimising {run_wording.aim(summary)}; ended: {summary.ended_because}",
        *node_wording.heading(summary.node, run_wording.kind(summary)),
    ]


def drawn(table: Table, width: int) -> list[str]:
    """The table line by line, without colour: right-aligned columns, and a last one for remarks."""
    grid = Grid(box=None, pad_edge=False, header_style="")
    for title in table.titles[:-1]:
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column(table.titles[-1], justify="left")
    for row in table.rows:
        grid.add_row(*row)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]
