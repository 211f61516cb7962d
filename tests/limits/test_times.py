"""Times that decide who is gone, and what has to hold between them: each bound, and that a change breaks it.

For how long limits are held for somebody who is silent, in virtual time.
"""

import ast
import math
import re

import pytest

from autocap.controller.tuning import TUNING
from autocap.devices.emulated.device import UNREAD_S
from autocap.limits import times
from autocap.limits.lease import Lease
from autocap.limits.times import ALONE_S, HANG_S, HOLDS_S, SPENT_S, STARVED_LOOK_S, STARVED_S
from autocap.limits.vital_signs import Look
from autocap.wire.admission import Bounds
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
        ("running", "SILENT_S"),
        ("vtn", "SILENT_S"),
        ("channel", "STUCK_S"),
    }


def test_every_time_is_used() -> None:
    sources = [path for path in (ROOT / "autocap").rglob("*.py") if path.name != "times.py"]
    used = {name for path in sources for name in re.findall(r"\b[A-Z_]{4,}\b", path.read_text())}
    assert {name for name in T if name not in used} == {"ASKING_S", *PROMISED}


def of_node(now_s: float) -> Lease:
    return Lease(now_s, restore_s=HOLDS_S, leave_s=ALONE_S)


def answered(lease: Lease, number: int, now_s: float) -> None:
    """A word comes and is answered, and the answer before is known to have been heard."""
    lease.heard(number - 1)
    lease.answer(number, now_s)
    lease.word(now_s)


def test_a_silence_lapses_once_and_one_of_six_ends() -> None:
    lease = of_node(10.0)
    assert lease.next_s == 10.0 + HOLDS_S
    assert not lease.lapses(9.99 + HOLDS_S)
    assert lease.lapses(10.0 + HOLDS_S)
    assert not lease.lapses(10.5 + HOLDS_S)
    assert lease.next_s == 10.0 + ALONE_S
    assert not lease.is_over(15.99)
    assert lease.is_over(16.0)


def test_answers_that_are_heard_again_arm_it_again_and_again() -> None:
    lease = of_node(0.0)
    for number, start_s in enumerate((0.0, 5.0, 12.0)):
        answered(lease, 2 * number, start_s)
        answered(lease, 2 * number + 1, start_s)
        assert not lease.lapses(start_s + HOLDS_S - 0.1)
        assert lease.lapses(start_s + HOLDS_S + 0.1)
        assert not lease.is_over(start_s + 4.0)


def test_answers_heard_in_time_never_let_it_lapse() -> None:
    lease = of_node(0.0)
    for half in range(1, 1000):
        assert not lease.lapses(half * 0.5)
        assert not lease.is_over(half * 0.5)
        answered(lease, half, half * 0.5)


def test_words_of_who_does_not_hear_us_hold_no_limit_and_keep_us_there() -> None:
    lease = of_node(0.0)
    answered(lease, 1, 0.0)
    answered(lease, 2, 0.4)
    for tenth in range(5, 120):
        lease.heard(1)
        lease.answer(tenth, tenth / 10)
        lease.word(tenth / 10)
        assert lease.is_lapsed(tenth / 10) == (tenth >= 10 * HOLDS_S)
    assert not lease.is_over(12.0)
    lease.heard(999)  # which was never said
    assert lease.is_lapsed(12.0)
    lease.heard(119)
    assert not lease.is_lapsed(12.0)


QUEUES = Look(cpu_s=5.0, runnable=True)  # for a CPU, and has used next to none


def of_client(now_s: float, seen: Look | None = None) -> Lease:
    made = Lease(now_s, restore_s=HANG_S, leave_s=60.0)
    made.renew(now_s, seen)
    return made


def test_whatever_a_client_says_holds_its_limits_and_keeps_us_there() -> None:
    lease = of_client(0.0)
    for tenth in range(1, 1000):
        assert not lease.lapses(tenth / 10)
        if tenth % 14 == 0:
            lease.renew(tenth / 10)
    assert lease.lapses(200.0)
    assert not lease.lapses(201.0)
    lease.renew(202.0)
    assert not lease.is_lapsed(202.0)
    assert lease.lapses(202.0 + HANG_S)  # it is told anew


def test_a_silent_client_that_only_gets_no_cpu_is_waited_for() -> None:
    lease, looks = of_client(0.0, QUEUES), 0

    def look() -> Look:
        nonlocal looks
        looks += 1
        return QUEUES

    assert not lease.lapses(HANG_S - 0.01, look)
    assert looks == 0  # which costs something
    t_s = lease.lapses_s
    assert t_s == HANG_S
    while not lease.lapses(t_s, look):
        assert t_s < lease.lapses_s <= t_s + STARVED_LOOK_S + 1e-9
        t_s = lease.lapses_s
    assert t_s >= STARVED_S
    assert lease.lapses_s == math.inf
    before = looks
    assert not lease.lapses(t_s + 1, look)
    assert looks == before


def test_a_silent_client_that_is_seen_to_sleep_or_to_compute_is_not() -> None:
    for now in (Look(cpu_s=5.0, runnable=False), Look(cpu_s=5.0 + SPENT_S, runnable=True), None):
        assert of_client(0.0, QUEUES).lapses(HANG_S, lambda now=now: now)
    assert of_client(0.0).lapses(HANG_S, lambda: QUEUES)  # how it was is not known
