"""Every message that the pages explain is one that the code can write, and no reason for keeping no cap goes
unexplained, unless it says itself what to do."""

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
# What to do, behind the semicolon of a message.
ADVICE = re.compile(
    r"; (attach|change|choose|drop|leave|load|look|make|name|pass|run|set|start|switch|update|wait|write)\b"
)
PAGES = {ROOT / "docs" / "troubleshooting.md": 100, NO_CAP: 80}  # and how many messages each explains at least


def explained(page: Path) -> Iterator[str]:
    """What stands in backticks in front of the colon of an item."""
    for messages in re.findall(r"^- ((?:`[^`]+`(?:,\s+)?)+):", prose(page), re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", messages)


def explains(message: str, reason: str) -> bool:
    """Whether the reason holds what stands between the message's gaps, in that order: two words, or it is the same."""
    parts = parts_of(message)
    telling = message == reason or sum(len(part.split()) for part in parts) > 1
    return telling and re.search(".*".join(map(re.escape, parts)), reason) is not None


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_can_write_every_message(page: Path) -> None:
    known, messages = sources(), list(explained(page))
    assert len(messages) > PAGES[page]
    unknown = []
    for message in messages:
        unknown += [message for part in parts_of(message) if len(part.split()) > 1 and part not in known]
    assert not unknown, "no string in the code reads so; were these messages changed?"


@pytest.mark.slow
def test_every_reason_for_keeping_no_cap_is_explained() -> None:
    known, messages = [one for one in reasons() if not ADVICE.search(one.text)], list(explained(NO_CAP))
    assert len(known) > 100
    missing = [str(reason) for reason in known if not any(explains(message, reason.text) for message in messages)]
    assert not missing, "these say not what to do, and no item of docs/no-cap-kept.md does:\n" + "\n".join(missing)


@pytest.mark.slow
def test_an_item_is_about_few_reasons() -> None:
    """So that a new reason does not pass for one that is explained."""
    texts = {one.text for one in reasons()}
    about = {message: [text for text in texts if explains(message, text)] for message in explained(NO_CAP)}
    assert {message: found for message, found in about.items() if len(found) > 4} == {}


def test_no_message_stands_on_both_pages() -> None:
    one, other = (set(explained(page)) for page in PAGES)
    assert not one & other


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


@pytest.mark.slow
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
