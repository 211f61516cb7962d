"""Budgets that change with time, from files and commands, and what events leave of them."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.plugins.fleet.budget.schedule import Schedule, ScheduleRefused, Step, parse, read_schedule
from autocap.plugins.fleet.manager.budget_target import Demand
from autocap.plugins.fleet.openadr.events import Span
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.vtn import Said

BEGAN_S = 1_700_000_000.0
T0 = 1_769_875_200.0
PEAK = Span(label="event 'peak' (a)", from_s=T0, to_s=T0 + 3600, watts=1000.0)
MORE = Span(label="event (b)", from_s=T0 + 3600, watts=5000.0, priority=0)


def at(schedule: Schedule, wall_s: float) -> float | None:
    step = schedule.at(wall_s)
    return None if step is None else step.watts


def test_a_row_holds_until_the_next() -> None:
    schedule = parse(b"time,watts\n0,1000\n60,800.5\n", "rows", BEGAN_S)
    assert [at(schedule, BEGAN_S + t_s) for t_s in (-1.0, 0.0, 59.9, 60.0, 1e6)] == [None, 1000.0, 1000.0, 800.5, 800.5]


def test_dates_have_a_zone() -> None:
    schedule = parse(b"watts,time\n1000,2026-01-31T17:00:00+01:00\n900,2026-01-31T16:30:00Z\n", "rows", 0.0)
    assert schedule.steps == (Step(wall_s=1769875200.0, watts=1000.0), Step(wall_s=1769877000.0, watts=900.0))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lacks the column time"),
        ("time,power\n0,100\n", "lacks the column watts"),
        ("time,watts\n", "holds 0 rows"),
        ("time,watts\n0,0\n", "line 2: watts is '0'; give a number from 1 to"),
        ("time,watts\n0,nan\n", "line 2: watts is 'nan'"),
        ("time,watts\n0,many\n", "line 2: watts is 'many'"),
        ("time,watts\n-5,100\n", "line 2: time is -5 s"),
        ("time,watts\ninf,100\n", "line 2: time is inf s"),
        ("time,watts\n5,100\n5,90\n", "line 3: time '5' is not after the one before"),
        ("time,watts\nsoon,100\n", "line 2: time is 'soon'; give a date with a zone"),
        ("time,watts\n2026-01-31T17:00:00,100\n", "give a date with a zone"),
        ("time,watts\n0,100\n2026-01-31T17:00:00Z,100\n", "line 3: a date among seconds"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(ScheduleRefused, match=complaint):
        parse(text.encode(), "rows", BEGAN_S)


def test_a_file_and_a_command_say_the_same(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("time,watts\n0,500\n")
    assert read_schedule(str(rows), 0.0).steps == read_schedule(f"command:cat {rows}", 0.0).steps


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("/nowhere/rows.csv", "cannot be read: No such file"),
        ("command:echo not today >&2; exit 3", "ended with status 3: 'not today'"),
        ("command:echo hello", "lacks the column time"),
    ],
)
def test_a_source_that_fails_is_told_in_a_sentence(source: str, complaint: str) -> None:
    with pytest.raises(ScheduleRefused, match=complaint) as told:
        read_schedule(source, 0.0)
    assert "\n" not in str(told.value)


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: b"time,watts\n" + text.encode()))
def test_whatever_is_in_a_file_is_a_schedule_or_refused(data: bytes) -> None:
    try:
        schedule = parse(data, "rows", BEGAN_S)
    except ScheduleRefused:
        return
    assert all(step.watts >= 1 for step in schedule.steps)


class Script:
    """A feed that says one thing after the other."""

    source = VtnSource(url="https://vtn.example.com/3")

    def __init__(self, *said: Said) -> None:
        self.said = list(said)

    def news(self) -> list[Said]:
        return [self.said.pop(0)] if self.said else []


def test_an_event_lowers_what_was_asked_for_and_never_raises_it() -> None:
    demand = Demand(Script(), (PEAK, MORE), lambda text: None)
    why = "event 'peak' (a) of vtn.example.com allows 1000 W"
    assert demand.lowered(2400.0, T0 - 1) == (2400.0, "")
    assert demand.lowered(2400.0, T0) == (1000.0, why)
    assert demand.lowered(900.0, T0) == (900.0, "")
    assert demand.lowered(2400.0, T0 + 3600) == (2400.0, "")
    before, now, later = (demand.sentences(2400.0, at_s) for at_s in (T0 - 1, T0, T0 + 3600))
    assert before[0] == "2400 W are asked for; no event of vtn.example.com counts now"
    assert before[1].startswith("event 'peak' (a) allows 1000 W from 2026-01-31T")
    assert now[0].startswith(f"2400 W are asked for; {why} until 2026-01-31T")
    assert later == ("2400 W are asked for; event (b) of vtn.example.com allows 5000 W",)


def test_a_vtn_that_cannot_be_asked_is_told_once_and_its_events_count_on() -> None:
    told: list[str] = []
    down = Said(trouble="vtn.example.com cannot be reached: 'no'")
    script = Script(Said(spans=(PEAK,), notes=("event (x) is not followed: why",)), down, Said(trouble="worse"), down)
    demand = Demand(script, (), told.append)
    assert [demand.hear() for _ in range(5)] == [True, False, False, False, False]
    assert demand.lowered(2400.0, T0)[0] == 1000.0
    assert demand.sentences(2400.0, T0)[-1] == f"what is known of vtn.example.com may be old: {down.trouble}"
    script.said += [Said(spans=()), down]
    assert [demand.hear() for _ in range(2)] == [True, False]
    going_on = "; the events that are known of vtn.example.com count for their time, then the budget that was asked for"
    assert told == [
        "event (x) is not followed: why",
        down.trouble + going_on,
        "vtn.example.com answers again",
        down.trouble + going_on,
    ]
    assert demand.lowered(2400.0, T0) == (2400.0, "")
    assert math.isinf(MORE.to_s)
