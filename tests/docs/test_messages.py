"""Every message that the pages explain is one that the code can write, and no reason for keeping no cap goes
unexplained."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, prose
from tests.docs.reasons import reasons
from tests.docs.strings import parts_of, sources

NO_CAP = ROOT / "docs" / "no-cap-kept.md"
PAGES = {ROOT / "docs" / "troubleshooting.md": 100, NO_CAP: 80}  # and how many messages each explains at least


def explained(page: Path) -> Iterator[str]:
    """What stands in backticks in the first column of a table, apart from commands and options alone."""
    for line in prose(page).splitlines():
        if line.startswith("| "):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


def explains(message: str, reason: str) -> bool:
    """Whether the reason holds what stands between the message's gaps, in that order: two words, or it is the same."""
    parts = parts_of(message)
    telling = message == reason or sum(len(part.split()) for part in parts) > 1
    return telling and re.search(".*".join(map(re.escape, parts)), reason) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_can_write_every_message(page: Path) -> None:
    known, messages = sources(), list(explained(page))
    assert len(messages) > PAGES[page]
    unknown = []
    for message in messages:
        unknown += [message for part in parts_of(message) if len(part.split()) > 1 and part not in known]
    assert not unknown, "no string in the code reads so; were these messages changed?"


def test_every_reason_for_keeping_no_cap_is_explained() -> None:
    known, messages = reasons(), list(explained(NO_CAP))
    assert len(known) > 100
    missing = [str(reason) for reason in known if not any(explains(message, reason.text) for message in messages)]
    assert not missing, "no row of docs/no-cap-kept.md is about these:\n" + "\n".join(missing)


def test_reasons_of_every_shape_are_found() -> None:
    shapes = (
        "no cap that was tried is allowed and better",  # a verdict
        "about … s of the job are left and a search takes about … s",  # returned, or nothing
        "no … was seen",  # why there are no iterations
        "… failed with … (…): …",  # of an error's own constructor
        "no device to tune: …",  # beside something else
        "the job used no GPU within … s",  # raised
        "a signal asked for the end",  # by its name
        "not surely within the slowdown limit: …",
    )
    assert [shape for shape in shapes if not any(one.text.startswith(shape) for one in reasons())] == []


def test_every_page_that_a_message_names_is_printed_by_help() -> None:
    """Of a wheel's user, who has no folder docs/."""
    trees = [ast.parse(path.read_text()) for room in ("autocap", "strategies") for path in (ROOT / room).rglob("*.py")]
    of_modules = {ast.get_docstring(tree, clean=False) for tree in trees}
    nodes = (node for tree in trees for node in ast.walk(tree))
    texts = {str(one.value) for one in nodes if isinstance(one, ast.Constant) and one.value not in of_modules}
    named = {page for text in texts for page in re.findall(r"`autocap help ([a-z/-]+)`", text)}
    assert {"no-cap-kept", "strategies", "node-power", "docs/helper"} <= named
    assert [page for page in named if not (ROOT / "docs" / f"{page.removeprefix('docs/')}.md").is_file()] == []
    assert [text for text in texts if re.search(r"docs/[a-z-]+\.md", text)] == [], "say `autocap help PAGE`"


def test_what_a_message_has_installed_can_be_installed_from_a_checkout_too() -> None:
    """There is no autocap on an index: its extras cannot be had by that name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = {re.split(r"[<>=]", one)[0] for of_extra in extras.values() for one in of_extra}
    told = set(re.findall(r"pip install '?([\w{-]+)", sources()))
    assert {"prometheus-client", "torch"} <= told
    assert {name for name in told if not name.startswith(("{", "-"))} <= declared
