"""The bench of a power budget: its fleet against the truth, its rules, and its tables."""

from dataclasses import replace

import numpy as np
import pytest

from autocap.plugins.fleet.config import Policy
from bench.budget.command import main, planned, solved
from bench.budget.curves import job_curve, seed_kinds, truth
from bench.budget.fleet import Fleet, Seen, Story, story
from bench.budget.live import Manager
from bench.budget.node import play as play_node
from bench.budget.play import RULES, play, rule_of

KINDS = np.arange(0, 12, 3)  # some of the profiles: the search of each takes a while
ROWS = np.arange(len(KINDS))
SEED = seed_kinds()
ONE_DAY = story(SEED, 4, 0.8, 1, drop_s=100.1, end_s=130.0)


def fleet(there: int = len(KINDS)) -> Fleet:
    made = Fleet(SEED, KINDS, np.ones(len(KINDS)), 0)
    made.there[:there] = True
    return made


def held(made: Fleet, caps_w: np.ndarray) -> None:
    made.set_caps(0.0, ROWS, caps_w)
    made.advance(1.0)


def plan_of(budget_w: float) -> Story:
    """Of the fleet's jobs, known from the first."""
    one, none = np.ones(len(KINDS)), np.zeros(len(KINDS))
    return replace(ONE_DAY, kinds=KINDS, believed=KINDS, devices=one, known_s=none, budget_w=budget_w)


def test_a_fleet_draws_and_slows_down_as_the_published_curves_say() -> None:
    made = fleet()
    held(made, (made.lowest_w + made.found_w) / 2)
    for row, kind in enumerate(KINDS):
        profile = SEED.profiles[kind]
        cap_w = float(made.caps_w[row])
        assert made.power_w()[row] == pytest.approx(profile.power_w(cap_w), rel=1e-3)
        assert made.slowdown()[row] == pytest.approx(float(profile.slowdown(cap_w)) - 1, abs=1e-3)


def test_a_cap_takes_a_call_and_a_lag_to_hold_and_who_is_gone_or_pauses_draws_next_to_nothing() -> None:
    made = fleet(there=2)
    held(made, made.found_w)
    made.set_caps(2.0, ROWS, made.lowest_w)
    made.advance(2.005)
    assert np.all(made.acting_w == made.found_w)
    made.advance(2.25)
    assert np.all(made.acting_w == made.lowest_w)
    made.paused[0] = True
    assert np.all(made.power_w()[2:] == 0)
    assert made.power_w()[0] == SEED.profiles[KINDS[0]].idle_w


@pytest.mark.slow
def test_readings_are_off_by_a_gain_and_by_the_waveform_but_right_in_the_mean() -> None:
    made = fleet()
    held(made, made.found_w)
    read = np.mean([made.read().power_w for _ in range(4000)], axis=0) / made.power_w()
    assert np.all(np.abs(read - 1) < 0.08)
    assert np.std(read) > 0.005  # each card's own gain
    assert not made.read().binding.any()
    held(made, made.found_w - 20)
    assert made.read().binding.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RULES if name not in ("energy", "fair, true curves")])
def test_every_rule_gives_caps_within_the_budget_whatever_it_is(name: str) -> None:
    for share in (0.7, 0.9):
        made = fleet()
        budget_w = share * float(made.found_w.sum())
        rule = rule_of(name, made, plan_of(budget_w), 0)
        held(made, made.lowest_w)
        for step in range(30):
            made.advance(0.2 * step)
            seen = Seen(t_s=0.2 * step, jobs=ROWS, readings=made.read(), budget_w=budget_w, changed=step == 0)
            made.set_caps(0.2 * step, *rule.decide(seen))
        assert made.caps_w.sum() <= budget_w + 1e-6
        assert made.caps_w.sum() >= 0.97 * budget_w


def at_65_percent(name: str) -> Fleet:
    made = fleet()
    budget_w = 0.65 * float(made.found_w.sum())
    rule = rule_of(name, made, plan_of(budget_w), 0)
    held(made, made.lowest_w)
    for step in range(1300):
        t_s = 0.2 * step
        made.advance(t_s)
        made.paused[0] = t_s > 50
        seen = Seen(t_s=t_s, jobs=ROWS, readings=made.read(), budget_w=budget_w, changed=step == 0)
        made.set_caps(t_s, *rule.decide(seen))
    return made


@pytest.mark.slow
def test_the_rule_of_ear_gives_what_a_paused_job_leaves_to_those_that_ask_after_two_minutes() -> None:
    made = at_65_percent("ear")
    assert made.caps_w[0] == made.lowest_w[0]
    assert made.caps_w.sum() == pytest.approx(0.65 * made.found_w.sum())


@pytest.mark.slow
def test_the_ledger_makes_all_equally_slow_with_what_searches_have_found() -> None:
    made = at_65_percent("fair")
    free = (made.caps_w > made.lowest_w + 1) & ~made.paused
    assert np.ptp(made.slowdown()[free]) < 0.03
    uniform = at_65_percent("uniform")
    assert np.ptp(uniform.slowdown()[free]) > 0.05


@pytest.mark.slow
def test_a_search_finds_a_curve_near_the_truth_and_its_baseline_is_a_little_off() -> None:
    found, true = SEED.searched(4, 0), truth(SEED.profiles[4])
    curve = job_curve(found.known.points, SEED.profiles[4])
    expected = np.interp(180.0, true.caps_w, true.slowdown)
    assert np.interp(180.0, curve.caps_w, curve.slowdown) == pytest.approx(expected, abs=0.02)
    assert 0 < abs(found.baseline - 1) < 0.005


@pytest.mark.slow
def test_a_story_is_played_and_judged() -> None:
    fair, ear = play(ONE_DAY, "fair", 0), play(ONE_DAY, "ear", 0)
    assert fair.lowered_s <= 1.0 < ear.lowered_s
    assert fair.over_s == 0.0
    assert 0.8 < fair.work < 1.0
    assert fair.optimum == pytest.approx(1.0, abs=0.03)
    assert play(ONE_DAY, "energy", 0).optimum is None


def test_a_story_has_jobs_that_come_go_pause_and_are_taken_for_others() -> None:
    one = story(SEED, 200, 0.8, 0, drop_s=400.0, end_s=600.0)
    assert one.there(0.0).sum() == 200
    assert 150 < one.there(500.0).sum() < 200
    assert any(one.paused(300.0)[one.there(300.0)])
    assert 0.05 < np.mean(one.believed != one.kinds) < 0.15
    assert one.budget_w == pytest.approx(0.8 * float((one.devices * SEED.draws_w(one.kinds))[one.come_s == 0].sum()))
    assert one.budget_at(401.0) == 0.75 * one.budget_w


@pytest.mark.slow
def test_live_jobs_follow_the_budget_as_soon_as_it_falls() -> None:
    manager = Manager(Policy.FAIR, 0, cold=True)
    came = manager.play(free_s=0.0, under_s=5.0, dropped_s=5.0)
    assert came.lowered_s <= 1.0
    assert came.below_s <= 3.0
    assert sum(job.set_w for job in manager.jobs.values()) <= 0.75 * came.budget_w


def test_the_pure_parts_are_timed_and_right_to_the_watt() -> None:
    lines = list(solved(50))
    assert [line.split(" | ")[0] for line in lines[1:]] == ["| fair", "| throughput", "| energy"]
    assert lines[1].endswith("| 100.00 % |")
    assert len(list(planned(20))) == 4


@pytest.mark.slow
def test_the_command_prints_a_table_and_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--jobs", "30"]) == 0
    assert capsys.readouterr().out.startswith("| policy | jobs | points |")
    assert main(["--rules", "fair;foul"]) == 2
    assert "there is no rule 'foul'" in capsys.readouterr().err
    assert main(["--places", "1"]) == 2


@pytest.mark.slow
def test_a_node_whose_budget_falls_is_within_it_once_its_caps_are_set_and_nobody_needs_more_joules() -> None:
    row = play_node(Policy.ENERGY, 3, drop_s=0.2, until_s=1.0)
    assert 0.2 < row.above_s < 0.8  # of twenty cards, one after the other
    assert row.joules <= 1.0
    assert row.slow_s <= 1.0
