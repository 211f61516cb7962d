"""Tables as lines of plain text."""

import io

from rich.console import Console
from rich.table import Table as Grid

from autocap.reports.wording.run import Table

WIDTH = 120  # characters, where no terminal says how many there are


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
