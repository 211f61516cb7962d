"""Every command with all its options, as reStructuredText, from the parsers: a page of the site and the manual page."""

import argparse
import re
from collections.abc import Iterator

from autocap.cli import commands, overview, parser_of


def text() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield from _title("Commands", "=")
    yield from ("::", "", f"    {overview().usage}", "")
    yield from ("``--version`` shows the version; ``autocap help PAGE`` prints a page of the documentation.", "")
    for name, summary in commands().items():
        _, parser = parser_of(name)
        yield from _title(f"autocap {name}", "-")
        yield from (_plain(f"{summary[0].upper()}{summary[1:]}."), "")
        yield from ("::", "", *(f"    {line}" for line in _usage(parser).splitlines()), "")
        yield from (_plain(" ".join((parser.description or "").split())), "")
        for group in parser._action_groups:  # argparse has no other way to ask
            yield from _group(group)


def _group(group: "argparse._ArgumentGroup") -> Iterator[str]:
    shown = [action for action in group._group_actions if action.help not in (None, argparse.SUPPRESS)]
    if not shown:
        return
    yield from (f"*{group.title}*", "")
    for action in shown:
        value = "" if action.nargs == 0 else str(action.metavar or action.dest)
        names = ", ".join(f"``{f'{flag} {value}'.strip()}``" for flag in action.option_strings) or f"``{value}``"
        yield from (names, f"    {_plain((action.help or '').replace('%%', '%'))}", "")


def _usage(parser: argparse.ArgumentParser) -> str:
    return parser.format_usage().removeprefix("usage: ")


def _title(title: str, line: str) -> tuple[str, str, str]:
    return title, line * len(title), ""


def _plain(words: str) -> str:
    """Text in which no character means anything to reStructuredText, but for `code`."""
    parts = re.split(r"`([^`]+)`", words)
    escaped = (
        re.sub(r"([\\*|_`])", r"\\\1", part) if place % 2 == 0 else f"``{part}``" for place, part in enumerate(parts)
    )
    return "".join(escaped)
