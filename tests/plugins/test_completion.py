"""Lines of plug-ins' commands, as a shell completes them."""

from collections.abc import Callable

from autocap.metrics import METRICS
from tests.cli.test_command_words import asked, folder

__all__ = ["asked", "folder"]
LINES = {
    "autocap rec": {"recur"},
    "autocap budget s": {"set", "status"},
    "autocap budget --policy f": {"fair"},
    "autocap budget --via h": {"helper"},
    "autocap recur st": {"status"},
    "autocap recur --metric ": set(METRICS),
}


def test_a_line_goes_on_with_what_can_stand_there(asked: Callable[[str], set[str]]) -> None:
    assert {line: asked(line) for line in LINES} == LINES
