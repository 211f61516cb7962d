"""A run as one HTML page that needs nothing else: no script, no other file, no network.

Whatever comes from the run (its command, names, warnings) is escaped. Light and dark follow the reader's system; each
picture is there for a wide page and for a narrow one, and the page shows the one that fits.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from autocap import telling
from autocap.figures import ink, svg
from autocap.figures.model import Picture
from autocap.summary import Summary
from autocap.telling import Table

_WIDE_PX, _NARROW_PX = 960.0, 358.0  # what a page leaves for a picture: on a desk, and on a phone of 390 pixels
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def page(summary: Summary, pictures: Sequence[Picture], remarks: Sequence[str]) -> bytes:
    """The whole document, UTF-8. remarks: sentences on how the run was decided."""
    headline = _headline(summary)
    parts = [
        *_head(summary, headline, remarks),
        *_warnings(summary.warnings),
        *(_figure(picture) for picture in pictures),
        *_tables(summary),
        _about(summary),
        f"<footer>autocap {escape(summary.autocap_version)}. Errors are standard errors of batch means; those of "
        "changes against the baseline include its own.</footer>",
    ]
    document = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # else a browser asks a server for one
        f"<title>{escape(headline)} · autocap</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )
    return document.encode(errors="replace")  # an argument of the command may hold bytes that are no UTF-8


def _style() -> str:
    css = resources.files("autocap.reporters").joinpath("report.css").read_text(encoding="utf-8")
    dark = f":root{{--page:#141414;--rule:#333;{ink.variables(dark=True)}}}"
    light = f":root{{{ink.variables(dark=False)}}}"
    return f"{css}{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}\n{ink.CSS}\n"


def _headline(summary: Summary) -> str:
    if summary.device is None:
        return "Not tuned"
    if summary.chosen is None:
        return "No cap was kept" if summary.trials else "No cap was tried"
    found = [gpu.cap_original_w for gpu in summary.device.gpus if gpu.cap_original_w is not None]
    of = f" of {telling.caps(found)} W" if found else ""
    return f"Kept {telling.caps(summary.chosen.cap_w)} W{of}"


def _head(summary: Summary, headline: str, remarks: Iterable[str]) -> list[str]:
    """What the run was, what it came to, and the numbers that matter."""
    out = [f'<p class="kicker">autocap {escape(summary.mode)} · {escape(telling.device(summary))}</p>']
    out.append(f"<h1>{escape(headline)}</h1>")
    out += [f'<p class="lede">{_sentence(text)}</p>' for text in remarks]
    aim = "" if summary.device is None else f"minimising {telling.aim(summary)}; "
    out.append(f'<p class="aim">{_sentence(f"{aim}ended: {summary.ended_because}")}</p>')
    if telling.emulated(summary):
        out.append(f'<p class="emulated">{escape(telling.EMULATED)}</p>')
    facts = list(telling.facts(summary))
    if facts:
        told = "".join(
            f"<div><dt>{escape(fact.name)}</dt><dd>{_number(fact.value)}</dd>"
            f'<dd class="note">{_number(fact.note)}</dd></div>'
            for fact in facts
        )
        out.append(f'<dl class="facts">{told}</dl>')
    return out


def _warnings(warnings: Sequence[str]) -> list[str]:
    if not warnings:
        return []
    items = "".join(f"<li>{escape(text)}</li>" for text in warnings)
    return [f'<h2>Warnings</h2><ul class="warnings">{items}</ul>']


def _figure(picture: Picture) -> str:
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return (
        f'<h2>{escape(picture.title)}</h2><figure id="{picture.name}">{caption}'
        f"{svg.render(picture, _WIDE_PX, 'wide')}{svg.render(picture, _NARROW_PX, 'narrow')}</figure>"
    )


def _tables(summary: Summary) -> list[str]:
    out = []
    if summary.baseline is not None:
        out.append(_table("Measured caps", telling.trials(summary, summary.baseline)))
    if summary.trials:
        out.append(_table("Best cap by metric", telling.bests(summary)))
        out.append(_table("Energy and time that no other cap beats", telling.front(summary)))
    if summary.device is not None:
        out.append(_table("Power limits", telling.limits(summary)))
    return out


def _table(title: str, table: Table) -> str:
    titles = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.titles)
    rows = "".join(_row(row) for row in table.rows)
    return (
        f'<h2>{escape(title)}</h2><div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    kind = ' class="kept"' if cells[-1].startswith("kept") else ""
    *numbers, remark = cells
    return f"<tr{kind}>{''.join(f'<td>{_number(cell)}</td>' for cell in numbers)}<td>{escape(remark)}</td></tr>"


def _about(summary: Summary) -> str:
    options = ", ".join(f"{option.name}={option.value}" for option in summary.strategy.options)
    rows = [
        ("command", f"<code>{escape(telling.command(summary))}</code>"),
        ("started", escape(summary.started_at)),
        ("ended", escape(summary.ended_because)),
        ("process", escape(str(summary.pid))),
        ("strategy", escape(f"{summary.strategy.name} ({options})" if options else summary.strategy.name)),
    ]
    if summary.progress is not None:
        rows.append(("iterations", escape(f"from {summary.progress.kind}, confidence {summary.progress.confidence}")))
    told = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)
    return f'<h2>The job</h2><dl class="about">{told}</dl>'


def _sentence(text: str) -> str:
    """A clause as a sentence, escaped."""
    return escape(text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."))


def _number(text: str) -> str:
    """Escaped, with a minus for the hyphen before a number."""
    return _MINUS.sub("−", escape(text))
