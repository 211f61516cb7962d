"""A document as a notebook shows it: what the text says, with the tables that are not folded.

No style sheet and no colour of its own: notebooks strip the one, and are light or dark without telling. Whatever comes
from the run is escaped.
"""

from collections.abc import Iterator, Sequence

from autocap.reports.document import Document, Table
from autocap.reports.figures.ink import escape

_MOST_WARNINGS = 20
_CELL = "padding:2px 10px;white-space:nowrap;text-align:right"
_REMARK = "padding:2px 10px;text-align:left"


def html(document: Document) -> str:
    """The document as one element of a page."""
    return f'<div class="autocap-result">{"".join(_parts(document))}</div>'


def _parts(document: Document) -> Iterator[str]:
    yield f"<p><strong>{escape(document.headline)}</strong></p>"
    for block in document.body:
        if isinstance(block, Table):
            if not (block.folded or block.page_only):
                yield _table(block)
        elif not block.warning:
            said = (line for line in block.lines if line != document.headline)
            yield from (f'<p style="margin:4px 0">{escape(line)}</p>' for line in said)
    if warnings := document.all_warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in warnings[:_MOST_WARNINGS])
        yield f"<details><summary>Warnings: {len(warnings)}</summary><ul>{items}</ul></details>"


def _table(table: Table) -> str:
    rows = "".join(_row(cells, "td") for cells in table.rows)
    head = f'<p style="margin:4px 0">{escape(table.title)}</p>'
    return f'{head}<table style="margin:4px 0"><thead>{_row(table.titles, "th")}</thead><tbody>{rows}</tbody></table>'


def _row(cells: Sequence[str], tag: str) -> str:
    *numbers, remark = map(escape, cells)
    weight = ";font-weight:bold" if remark.startswith("kept") else ""
    shown = "".join(f'<{tag} style="{_CELL}{weight}">{cell}</{tag}>' for cell in numbers)
    return f'<tr>{shown}<{tag} style="{_REMARK}{weight}">{remark}</{tag}></tr>'
