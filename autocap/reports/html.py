"""A document as one HTML file that needs nothing else: no script, no other file, no network.

Whatever comes from the run (its command, names, warnings) is escaped, and shown with escapes where a terminal would
obey it: some copy from a page. Light and dark follow the reader's system; each picture is there for a wide page and
for a narrow one, and the file shows the one that fits. What was not asked for is folded, and unfolded in print.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import starmap

from autocap.reports.document import Document, Table
from autocap.reports.figures import ink, svg
from autocap.reports.figures.ink import escape
from autocap.reports.figures.model import Picture

_WIDE_PX, _NARROW_PX = 960.0, 358.0  # what a page leaves for a picture: on a desk, and on a phone of 390 pixels
_LONG = 32  # characters of a remark, which more lines are made of
_USUAL = 0.95  # of the width that a text has at most
_CELL_PX = 16.0  # of a cell on a narrow page, around its text
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
_UNIT = re.compile(r"(?<=\d) (?=\S{1,3}(?:[ ,;:.)]|$))|(?<=±) | (?=CO₂)")  # a blank between a number and its unit


def page(document: Document, pictures: Sequence[Picture]) -> str:
    """The whole file, with the pictures above the tables."""
    parts = [
        *_head(document),
        *_warnings(document.all_warnings),
        *map(_figure, pictures),
        *starmap(_table, enumerate(document.tables)),
        _job(document.job),
        f"<footer>autocap {escape(document.version)}. Errors are standard errors; those of changes against the "
        "baseline include its own.</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # else a browser asks a server for one
        f"<title>{escape(document.headline)} · autocap</title>\n"
        f"<style>\n{stylesheet()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


@cache
def stylesheet() -> str:
    """Of the page, which lies in a file beside this module."""
    css = resources.files("autocap.reports").joinpath("report.css").read_text(encoding="utf-8")
    light = f":root{{{ink.variables(dark=False)}}}"
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{ink.variables(dark=True)}}}}}"
    return f"{css}{light}\n{dark}\n{ink.CSS}\n"


def _head(document: Document) -> Iterator[str]:
    """What the run was, what it came to, and the numbers that matter."""
    yield f'<p class="kicker">{escape(document.kicker)}</p>'
    yield f"<h1>{_whole(escape(document.headline))}</h1>"
    yield f'<p class="aim">{_sentence(document.aim)}</p>'
    for remark in document.remarks:
        yield f'<p class="lede">{_MINUS.sub("−", _sentence(remark))}</p>'
    if document.label:
        yield f'<p class="emulated">{escape(document.label)}</p>'
    if document.facts:
        items = "".join(
            f"<div><dt>{escape(fact.name)}</dt><dd>{_whole(_number(fact.value))}</dd>"
            f'<dd class="note">{_whole(_number(fact.note))}</dd></div>'
            for fact in document.facts
        )
        yield f'<dl class="facts">{items}</dl>'


def _warnings(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return [f'<h2>Warnings</h2><ul class="warnings">{items}</ul>']


def _figure(picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    figure = (
        f'<figure id="{escape(picture.name)}">{caption}'
        f"{svg.render(picture, _WIDE_PX, 'wide')}{svg.render(picture, _NARROW_PX, 'narrow')}</figure>"
    )
    return _section(f"<h2>{escape(picture.title)}</h2>", figure, folded=picture.folded)


def _table(number: int, table: Table) -> str:
    """The columns that a narrow terminal would leave out stand behind the others, where a phone has to scroll to."""
    *columns, remark = range(len(table.titles))
    order = [*(one for one in columns if one not in table.spare), *reversed(table.spare), remark]
    titles = "".join(_cell("th", "col", escape(table.titles[one]), left=one in table.left) for one in order)
    rows = "".join(_row([row[one] for one in order], [one in table.left for one in order]) for row in table.rows)
    name = f"table-{number}"
    hint = '<p class="hint" aria-hidden="true">Scrolls sideways →</p>' if _natural_width(table) > _NARROW_PX else ""
    return _section(
        f'<h2 id="{name}">{escape(table.title)}</h2>',
        f'{hint}<div class="scroll" tabindex="0" role="region" aria-labelledby="{name}">'
        f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>",
        folded=table.folded,
    )


def _row(cells: Sequence[str], left: Sequence[bool]) -> str:
    kind = ' class="kept"' if cells[-1].startswith("kept") else ""
    first, *numbers, remark = cells
    head = _cell("th", "row", _number(first), left=left[0])
    rest = "".join(_cell("td", "", _number(cell), left=one) for cell, one in zip(numbers, left[1:], strict=False))
    folds = ' class="long"' if len(remark) > _LONG else ""
    return f"<tr{kind}>{head}{rest}<td{folds}>{escape(remark)}</td></tr>"


def _cell(tag: str, scope: str, words: str, *, left: bool) -> str:
    of_scope = f' scope="{scope}"' if scope else ""
    of_class = ' class="left"' if left else ""
    return f"<{tag}{of_scope}{of_class}>{words}</{tag}>"


def _natural_width(table: Table) -> float:
    """About how wide a table is on a narrow page, pixels; of a long remark, that of its lines."""
    columns = list(zip(table.titles, *table.rows, strict=True))
    words = sum(max(ink.text_width(cell[:_LONG]) for cell in column) for column in columns)
    return _USUAL * words + _CELL_PX * (len(columns) - 0.5)  # the first has nothing to its left


def _section(heading: str, body: str, *, folded: bool) -> str:
    if folded:
        return f"<details><summary>{heading}</summary>{body}</details>"
    return f"<section>{heading}{body}</section>"


def _job(job: Sequence[tuple[str, str]]) -> str:
    (name, command), *rest = job
    rows = [(name, f"<code>{escape(command)}</code>"), *((name, escape(value)) for name, value in rest)]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in rows)
    return f'<h2>The job</h2><dl class="about">{items}</dl>'


def _sentence(text: str) -> str:
    """A clause as a sentence, escaped."""
    return _whole(escape(text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")))


def _whole(text: str) -> str:
    """With no-break spaces inside numbers."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def _number(text: str) -> str:
    """Escaped, with a minus for the hyphen before a number."""
    return _MINUS.sub("−", escape(text))


_MOST_WARNINGS = 20
_CELL = "padding:2px 10px;white-space:nowrap;text-align:right"
_REMARK = "padding:2px 10px;text-align:left"


def notebook(document: Document) -> str:
    """The document as one element of a page, as a notebook shows it: what the text says, with the tables that are not
    folded. No style sheet and no colour of its own: notebooks strip the one, and are light or dark without telling."""
    return f'<div class="autocap-result">{"".join(_notebook_parts(document))}</div>'


def _notebook_parts(document: Document) -> Iterator[str]:
    yield f"<p><strong>{escape(document.headline)}</strong></p>"
    for block in document.body:
        if isinstance(block, Table):
            if not (block.folded or block.page_only):
                yield _plain_table(block)
        elif not block.warning:
            said = (line for line in block.lines if line != document.headline)
            yield from (f'<p style="margin:4px 0">{escape(line)}</p>' for line in said)
    if warnings := document.all_warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in warnings[:_MOST_WARNINGS])
        yield f"<details><summary>Warnings: {len(warnings)}</summary><ul>{items}</ul></details>"


def _plain_table(table: Table) -> str:
    rows = "".join(_plain_row(cells, "td") for cells in table.rows)
    head = f'<p style="margin:4px 0">{escape(table.title)}</p><table style="margin:4px 0">'
    return f"{head}<thead>{_plain_row(table.titles, 'th')}</thead><tbody>{rows}</tbody></table>"


def _plain_row(cells: Sequence[str], tag: str) -> str:
    *numbers, remark = map(escape, cells)
    weight = ";font-weight:bold" if remark.startswith("kept") else ""
    shown = "".join(f'<{tag} style="{_CELL}{weight}">{cell}</{tag}>' for cell in numbers)
    return f'<tr>{shown}<{tag} style="{_REMARK}{weight}">{remark}</{tag}></tr>'
