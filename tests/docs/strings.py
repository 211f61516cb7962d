"""The strings of the code, as pages quote them."""

import ast
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

GAP = "…"  # a name or a number


def written(node: ast.expr) -> str:
    """A string as the code writes it, with a gap for what is put into it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def sources() -> str:
    """Every string of the code, one a line."""
    found = []
    for folder in ("autocap", "strategies"):
        for path in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(Path(path).read_text())
            found += [written(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant)]
    return "\n".join(found)


def parts_of(message: str) -> list[str]:
    """What stands between the gaps of a message, without the punctuation at its edges."""
    return [part for part in (piece.strip(" :;,'()") for piece in message.split(GAP)) if part]
