"""A document as one HTML file that needs nothing else: no script, no other file, no network.

Whatever comes from the run (its command, names, warnings) is escaped, and shown with escapes where a terminal would
obey it: some copy from a page. Light and dark follow the reader's system; each picture is there for a wide page and
for a narrow one, and the file shows the one that fits.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from autocap.reports.document import Document, Table
from autocap.reports.figures import ink, svg
from autocap.reports.figures.ink import escape
from autocap.reports.figures.model import Picture

_WIDE_PX, _NARROW_PX = 960.0, 358.0  # what a page leaves for a picture: on a desk, and on a phone of 390 pixels
_DARK_PAGE = "--page:#141414;--rule:#333;"
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def page(document: Document, pictures: Sequence[Picture]) -> str:
    """The whole file, with the pictures above the tables."""
    parts = [
        *_head(document),
        *_warnings(document.all_warnings),
        *map(_figure, pictures),
        *map(_table, document.tables),
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
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK_PAGE}{ink.variables(dark=True)}}}}}"
    return f"{css}{light}\n{dark}\n{ink.CSS}\n"


def _head(document: Document) -> Iterator[str]:
    """What the run was, what it came to, and the numbers that matter."""
    yield f'<p class="kicker">{escape(document.kicker)}</p>'
    yield f"<h1>{escape(document.headline)}</h1>"
    for remark in document.remarks:
        yield f'<p class="lede">{_sentence(remark)}</p>'
    yield f'<p class="aim">{_sentence(document.aim)}</p>'
    if document.label:
        yield f'<p class="emulated">{escape(document.label)}</p>'
    if document.facts:
        items = "".join(
            f"<div><dt>{escape(fact.name)}</dt><dd>{_number(fact.value)}</dd>"
            f'<dd class="note">{_number(fact.note)}</dd></div>'
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
    return (
        f'<h2>{escape(picture.title)}</h2><figure id="{escape(picture.name)}">{caption}'
        f"{svg.render(picture, _WIDE_PX, 'wide')}{svg.render(picture, _NARROW_PX, 'narrow')}</figure>"
    )


def _table(table: Table) -> str:
    heading = escape(table.title)
    titles = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.titles)
    rows = "".join(map(_row, table.rows))
    return (
        f'<h2>{heading}</h2><div class="scroll" tabindex="0" role="region" aria-label="{heading}">'
        f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    kind = ' class="kept"' if cells[-1].startswith("kept") else ""
    *numbers, remark = cells
    return f"<tr{kind}>{''.join(f'<td>{_number(cell)}</td>' for cell in numbers)}<td>{escape(remark)}</td></tr>"


def _job(job: Sequence[tuple[str, str]]) -> str:
    (name, command), *rest = job
    rows = [(name, f"<code>{escape(command)}</code>"), *((name, escape(value)) for name, value in rest)]
    items = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in rows)
    return f'<h2>The job</h2><dl class="about">{items}</dl>'


def _sentence(text: str) -> str:
    """A clause as a sentence, escaped."""
    return escape(text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."))


def _number(text: str) -> str:
    """Escaped, with a minus for the hyphen before a number."""
    return _MINUS.sub("−", escape(text))
