"""`python -m bench faults` and `machines`: that they see what they are there to see, and a sample of what they play."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from autocap.testing.nvml import Episode, Fault, Trouble
from bench.faults import helper_faults, process_faults, virtual_faults
from bench.faults.outcome import Outcome, difference, silence, table
from bench.faults.virtual import ARRIVALS_MW, Stage, play, usual
from bench.machines.command import may_stand_mw, played
from bench.machines.drawn import MANNERS, drawn, pairs

SET = "nvmlDeviceSetPowerManagementLimit"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*virtual_faults.KINDS, "no room for the journal"])
def test_a_fault_leaves_limits_and_job_as_they_were_and_is_told_of(kind: str) -> None:
    """In virtual time, but one, which is between real processes."""
    is_virtual = kind in virtual_faults.KINDS
    outcome = virtual_faults.injected(kind, 0) if is_virtual else process_faults.injected(kind, 1, iterations=40)
    assert outcome.complaints == ()


def test_without_a_fault_caps_are_set_and_nothing_is_said() -> None:
    report = virtual_faults.reference()
    assert report.said == ("the job ended",)
    assert report.limits_mw == ARRIVALS_MW
    assert {limit_mw for _, _, limit_mw in report.sets} >= {150_000, 185_000, 215_000, 250_000}
    assert report.left_behind == ()


@pytest.mark.slow
def test_a_gpu_that_takes_no_limit_any_more_is_found_changed_until_it_is_well_again() -> None:
    denied = Fault(code=4, function=SET, after=6, times=None)
    report = play(replace(usual(), faults=()), lambda stage: _fail(stage, denied))
    assert report.restored_later
    assert report.limits_mw == ARRIVALS_MW
    assert any("could not be put back" in text for text in report.said)


@pytest.mark.slow
def test_a_cap_that_is_left_behind_is_seen() -> None:
    report = play(usual(), lambda stage: stage.clock.at(24.0, lambda: None))
    assert difference((1, *report.limits_mw[1:]), report.limits_mw) == "GPU 0 at 287.123 W instead of 0.001 W"


@pytest.mark.slow
def test_what_nobody_says_is_missed() -> None:
    stuck = (Episode(trouble=Trouble.STUCK, from_s=5.0),)
    report = play(usual(), lambda stage: stage.card(0, episodes=stuck))
    assert silence(report.said, "stuck") is None
    assert silence(report.said, "lost") == "nothing says 'lost'"


def test_the_table_counts_by_kind_and_in_all() -> None:
    good = Outcome(kind="a fault", seed=0)
    bad = Outcome(kind="another", seed=1, changed="GPU 0 at 1 W instead of 2 W", hung="not within 5 s: x")
    assert bad.complaints == ("limit changed: GPU 0 at 1 W instead of 2 W", "hung: not within 5 s: x")
    title, *rows = [line.split() for line in table([good, bad, good])]
    assert title[:2] == ["fault", "injections"]
    assert rows == [
        ["a", "fault", "2", "0", "0", "0", "0", "0", "0"],
        ["another", "1", "1", "0", "1", "0", "0", "0"],
        ["all", "3", "1", "0", "1", "0", "0", "0"],
    ]


def _fail(stage: Stage, fault: Fault) -> None:
    machine = replace(stage.board.read().machine, faults=(fault,))
    stage.board.update(lambda state: replace(state, machine=machine))


@pytest.mark.slow
def test_a_killed_client_of_the_helper_leaves_no_limit() -> None:
    outcome = helper_faults.injected("helper: client killed", 0)
    assert outcome.complaints == ()
    assert outcome.back_s is not None


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


@pytest.mark.slow
def test_a_job_on_a_card_of_steps_is_tuned_without_a_complaint() -> None:
    done = played(drawn(5117, (STEPS, "getters without permission"), "plain"))
    assert (done.tuned, done.complaints) == (True, ())
    assert max(done.off) < 4


def test_each_two_manners_meet_once_where_pairs_are_asked_for() -> None:
    met = [one.manners for one in pairs(0)]
    assert len(set(map(frozenset, met))) == len(met) == len(MANNERS) * (len(MANNERS) - 1) / 2
    assert {one.kind for one in pairs(0)} == {"plain"}
