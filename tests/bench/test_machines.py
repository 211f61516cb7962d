"""The drawn machines of `bench machines`: the same again by their seeds, and what is right on them in the end."""

from types import SimpleNamespace
from typing import Any

from bench.machines.command import may_stand_mw, played
from bench.machines.drawn import MANNERS, drawn, pairs

AGENT, STEPS = "an agent that sets its number every 15 s", "limits in steps of 25 W"


def report(end_s: float, *expected_mw: int) -> Any:  # as much of a Report as counts here
    return SimpleNamespace(end_s=end_s, expected_mw=expected_mw)


def test_a_machine_has_the_manners_that_are_named_and_is_the_same_again() -> None:
    one = drawn(7, (AGENT, STEPS), "plain")
    assert (one.kind, one.manners) == ("plain", (AGENT, STEPS))
    assert drawn(7, (AGENT, STEPS), "plain") == one


def test_somebody_elses_limit_is_right_where_they_set_it_once_they_have() -> None:
    one = next(one for one in (drawn(seed, (AGENT,), "plain") for seed in range(50)) if len(one.machine.cards) == 2)
    first = one.machine.changes[0]
    ended = report(first.t_s + 1.0, 201_000, 202_000)
    assert [may_stand_mw(one, ended, gpu) for gpu in (0, 1)] == [{first.limit_mw}, {202_000}]
    assert may_stand_mw(one, report(first.t_s - 1.0, 201_000, 202_000), 0) == {201_000}


def test_what_a_card_makes_of_the_limit_found_is_right_as_well() -> None:
    one = drawn(3, (STEPS,), "plain")
    assert may_stand_mw(one, report(100.0, *(260_001 for _ in one.machine.cards)), 0) == {260_001, 250_000}


def test_a_job_on_a_card_of_steps_is_tuned_without_a_complaint() -> None:
    done = played(drawn(5117, (STEPS, "getters without permission"), "plain"))
    assert (done.tuned, done.complaints) == (True, ())
    assert max(done.off) < 4


def test_each_two_manners_meet_once_where_pairs_are_asked_for() -> None:
    met = [one.manners for one in pairs(0)]
    assert len(set(map(frozenset, met))) == len(met) == len(MANNERS) * (len(MANNERS) - 1) / 2
    assert {one.kind for one in pairs(0)} == {"plain"}
