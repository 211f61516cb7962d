"""Times that decide who is gone, and what has to hold between them: each bound, and that a change breaks it."""

import ast
import math
import re

import pytest

from autocap.controller.tuning import TUNING
from autocap.devices.emulated.device import UNREAD_S
from autocap.limits import times
from autocap.wire.bounds import Bounds
from tests.docs.pages import ROOT

T = {name: value for name, value in vars(times).items() if name.isupper() and name != "BOUNDS"}
PROMISED = ("KILLED_BACK_S", "STOPPED_BACK_S", "POLICY_BACK_S", "NODE_CLEAR_S")  # which nothing waits for
PAGE = ROOT / "docs/how-it-works.md"
# Those that stand where somebody else looks for them.
ELSEWHERE = {
    "UNREAD_S": UNREAD_S,
    "HELD_S": TUNING.sample_held_s,
    "SEND_S": Bounds().send_s,
    "IDLE_S": Bounds().idle_s,
    **{
        f"UNIT_{key}": float(re.sub("ms$", "e-3", value))
        for key, value in re.findall(
            r"^(\w+Sec)=(\S+)$", (ROOT / "autocap/limits/helper/units/autocap-helper.service").read_text(), re.MULTILINE
        )
    },
}
BOUNDS = (
    *times.BOUNDS,
    ("HELD_S < UNREAD_S < STOPPED_BACK_S", "the emulated device gives up its cap by itself, and not while it is read"),
    ("HELPER_BEAT_S + SEND_S < HANG_S", "a client that does not read its answers is no hang of the helper"),
    ("POLICY_S + SEND_S + ASKING_S < POLICY_BACK_S", "nor does it keep a cap that is allowed no longer"),
    ("LEND_WITHIN_S < IDLE_S", "who waits for a lease keeps its connection"),
    ("SERVICE_END_S < UNIT_TimeoutStopSec", "systemd kills no helper that is putting back"),
    ("UNIT_RestartSec + STOPPED_BACK_S < LOCKED_S", "a helper that was killed is back while its clients wait"),
    ("1 < HANG_S", "docs/helper.md tells clients to beat once a second"),
)
# Sentences of the documents that promise one of them: page, words before, expression, words after.
SAID = (
    ("docs/how-it-works.md", "a word to all of them every ", "WORD_S", " s."),
    ("docs/promises.md", "killed with SIGKILL (within ", "KILLED_BACK_S", " s)"),
    ("docs/promises.md", "hangs or is stopped (within ", "STOPPED_BACK_S", " s of its last sign of life;"),
    ("docs/promises.md", "loses its caps after ", "HANG_S", " s"),
    ("docs/promises.md", "s of its last sign of life; ", "STARVED_S", " s where it could run but gets no CPU time"),
    (
        "docs/promises.md",
        "policy that is narrowed puts back a cap that it no longer allows within ",
        "POLICY_BACK_S",
        " s",
    ),
    ("docs/promises.md", "a limit holds for ", "HOLDS_S", " s after the last thing that the agent said"),
    ("docs/helper.md", "nothing for ", "HANG_S", " s, because it hangs or was stopped"),
    ("docs/helper.md", "which takes up to ", "LEASES_END_S", " s."),
    ("docs/budget.md", "is silent for ", "HANG_S", " s, its GPUs get what the budget gives them"),
    ("docs/budget.md", "were not heard for ", "PART_HOLDS_S", " s it falls to its floor"),
    ("docs/budget.md", "with its part for ", "LEASE_S", " s, then with its floor"),
    ("docs/budget.md", "has heard nothing for ", "SITE_GONE_S", " s puts the limits found back, and leaves"),
    ("docs/slurm.md", "they say is heard for ", "HOLDS_S", " s they put back"),
    ("docs/slurm.md", "The step stays there for ", "OTHERS_DONE_S", " s"),
    ("docs/slurm.md", "leaves after ", "ALONE_S", " s"),
    ("docs/slurm.md", "set nothing for ", "SUSPENDED_S", " s"),
    ("docs/ray.md", "sees within ", "RAYLET_LOOK_S", " s that it has ended"),
    ("docs/ray.md", "there is no answer for ", "HEAD_ANSWERS_S", " s it ends all agents"),
)


def _names(expression: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}


def _value(expression: str, **changed: float) -> float:
    return float(eval(expression, {}, {**ELSEWHERE, **T, **changed}))


def _inequalities() -> list[str]:
    """Each by itself: `a < b < c and d < e` are three."""
    return [
        f"{ast.unparse(left)} {'<' if isinstance(kind, ast.Lt) else '<='} {ast.unparse(right)}"
        for rule, _ in BOUNDS
        for chain in ast.walk(ast.parse(rule))
        if isinstance(chain, ast.Compare)
        for left, kind, right in zip((chain.left, *chain.comparators), chain.ops, chain.comparators, strict=False)
    ]


def test_what_has_to_hold_between_times_holds() -> None:
    assert not [f"{rule}: {why}" for rule, why in BOUNDS if not _value(rule)]


def test_a_time_that_is_changed_beyond_a_bound_breaks_it() -> None:
    """Each side of each inequality, and no time is without one."""
    found = _inequalities()
    blunt = [
        f"{one}, whatever {name}"
        for one in found
        for name in _names(one)
        if all(_value(one, **{name: value}) for value in (-math.inf, math.inf))
    ]
    assert not blunt
    assert set(T) - {name for one in found for name in _names(one)} == {"ASK_AGAIN_S"}  # whose sum is bound


def test_the_page_says_after_how_long_each_is_noticed() -> None:
    section = PAGE.read_text().partition("## Who notices whom\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|[^|]*\|[^|]*\| ([\d.]+) s, `([^`|]+)` \|[^|]*\|$", section, re.MULTILINE)
    assert len(rows) == section.count(" s, `")
    assert rows == [(f"{_value(expression):g}", expression) for _, expression in rows]


@pytest.mark.parametrize("page", sorted({page for page, *_ in SAID}))
def test_the_documents_promise_what_the_times_say(page: str) -> None:
    words = " ".join((ROOT / page).read_text().split())
    said = [f"{before}{_value(expression):g}{after}" for where, before, expression, after in SAID if where == page]
    assert not [sentence for sentence in said if sentence not in words]


def test_whoever_counts_somebody_as_gone_takes_the_time_from_the_module() -> None:
    """Nobody in these rooms has one of his own, under any of the names that such times had."""
    own = re.compile(
        r"^(?:\w+, )*_?(\w*(?:HANG|SILENT|SILENCE|STARVED|STUCK|MUTE|LEASE|LEAVE|LOST|STALLED|BEAT|AWAY)_S)\b.*="
    )
    rooms = [
        path
        for room in ("limits", "session", "sweep", "wire", "plugins/fleet")
        for path in (ROOT / "autocap" / room).rglob("*.py")
    ]
    found = {
        (path.stem, name[1]) for path in rooms for line in path.read_text().splitlines() if (name := own.match(line))
    }
    # A sensor, a service on the network, and a step of Slurm's that has not begun: none of them holds a limit.
    assert {one for one in found if one[0] != "times"} <= {
        ("measuring", "SILENT_S"),
        ("feed", "SILENT_S"),
        ("channels", "STUCK_S"),
    }


def test_every_time_is_used() -> None:
    sources = [path for path in (ROOT / "autocap").rglob("*.py") if path.name != "times.py"]
    used = {name for path in sources for name in re.findall(r"\b[A-Z_]{4,}\b", path.read_text())}
    assert {name for name in T if name not in used} == {"ASKING_S", *PROMISED}
