"""Each promise says in which run of the tests it is held, and is."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, text

SAID = re.compile(r"Tested\s+in\s+(.+?)(?=\n\n|\Z)", re.DOTALL)
SECTIONS = [part for part in text(ROOT / "docs" / "promises.md").split("\n## ")[1:] if SAID.search(part)]


def runs(path: Path) -> set[str]:
    """The commands that run a test of that file, or of a file of that folder."""
    found = set[str]()
    for file in [path] if path.is_file() else sorted(path.rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        whole = any(isinstance(node, ast.Assign) and "mark.slow" in ast.unparse(node) for node in tree.body)
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        slow = {whole or any("mark.slow" in ast.unparse(mark) for mark in test.decorator_list) for test in tests}
        found |= {"make test-slow" if one else "make test" for one in slow}
    return found


def test_most_promises_say_it() -> None:
    assert len(SECTIONS) >= 7


@pytest.mark.parametrize("section", SECTIONS, ids=lambda part: part.partition("\n")[0])
def test_a_promise_is_held_where_it_says(section: str) -> None:
    said = SAID.search(section)
    assert said
    ours = said[1].partition("in `make test-frameworks`")[0]
    paths = [ROOT / name for name in re.findall(r"`(tests/[\w/.]+)`", ours)]
    assert paths
    assert not [path for path in paths if "make test" not in runs(path)]
    assert set(re.findall(r"`(make [\w-]+)`", ours)) == set[str]().union(*map(runs, paths))
