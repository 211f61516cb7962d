"""A document as text for a terminal, line by line and without colour."""

import io

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from autocap.printable import printable
from autocap.reports.document import Document, Sentences, Table

WIDTH = 120  # characters, where no terminal says how many there are


def lines(document: Document, width: int = WIDTH) -> list[str]:
    """Its sentences and tables, an empty line between them."""
    out: list[str] = []
    for block in document.body:
        if isinstance(block, Sentences):
            out += ["", *map(printable, block.lines)]
        elif not block.page_only:
            out += ["", *_table(block, width)]
    return out[1:]


def _table(table: Table, width: int) -> list[str]:
    """Right-aligned columns, and a last one for remarks."""
    grid = Grid(box=None, pad_edge=False, header_style="")
    for title in table.titles[:-1]:
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column(table.titles[-1], justify="left")
    for row in table.rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]
