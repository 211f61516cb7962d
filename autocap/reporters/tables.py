"""Tables as lines of plain text, and the one that every report has."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from autocap.rounding import with_error
from autocap.summary import PREDICTED, ParetoPoint

WIDTH = 120  # characters, where no terminal says how many there are
_MANY_PREDICTED = 8
_MANY = 4  # different caps on the GPUs of one job, of which a range says enough


def plain_table(*titles: str) -> Table:
    """Right-aligned columns, and a last one for remarks."""
    table = Table(box=None, pad_edge=False, header_style="")
    for title in titles[:-1]:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(titles[-1], justify="left")
    return table


def drawn(table: Table, width: int) -> list[str]:
    """The table line by line, without colour."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def caps(caps_w: Sequence[float]) -> str:
    """`160` for one common cap, `160/165` where they differ, `160–195` where there are many of them."""
    different = list(dict.fromkeys(f"{cap:g}" for cap in caps_w))
    return "/".join(different) if len(different) < _MANY else f"{min(caps_w):g}–{max(caps_w):g}"


def front(points: Sequence[ParetoPoint], *, emulated: bool) -> Table:
    """The Pareto front; of the caps that were only predicted a few."""
    energy = "energy (emulated)" if emulated else "energy"
    table = plain_table("Pareto front", f"{energy} / baseline's", "time / baseline's", "")
    hoped = [point for point in points if point.source == PREDICTED]
    shown = hoped[:: 1 + len(hoped) // _MANY_PREDICTED]
    for point in points:
        if point.source != PREDICTED or point in shown:
            table.add_row(
                f"{caps(point.cap_w)} W",
                with_error(point.energy, point.energy_stderr),
                with_error(point.time, point.time_stderr),
                point.source,
            )
    return table
