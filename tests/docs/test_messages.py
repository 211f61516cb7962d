"""Every message that docs/troubleshooting.md explains is one that the code can write."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, prose

PAGE = ROOT / "docs" / "troubleshooting.md"
GAP = "…"  # a name or a number


def explained() -> Iterator[str]:
    """What stands in backticks in the first column of a table, apart from commands and options alone."""
    for line in prose(PAGE).splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def _written(node: ast.expr) -> str:
    """A string as the code writes it, with a gap for what is put into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_written(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def sources() -> str:
    """Every string of the code, one a line."""
    found = []
    for folder in ("autocap", "strategies"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(Path(path).read_text())
            found += [_written(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant)]
    return "\n".join(found)


def test_the_code_can_write_every_message() -> None:
    known, messages = sources(), list(explained())
    assert len(messages) > 100
    unknown = []
    for message in messages:
        parts = [part.strip(" :;,'()") for part in message.split(GAP)]
        unknown += [message for part in parts if len(part.split()) > 1 and part not in known]
    assert not unknown, "no string in the code reads so; were these messages changed?"
