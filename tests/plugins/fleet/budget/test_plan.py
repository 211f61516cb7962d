"""Jobs that come and go under a budget."""

from dataclasses import replace

import numpy as np
import pytest

from autocap.plugins.fleet.budget.curves import JobCurve
from autocap.plugins.fleet.budget.plan import Plan, PlannedCurve, PlannedJob, uniform
from autocap.plugins.fleet.config import Policy


def kind(worst: float) -> PlannedCurve:
    """Slowed down in proportion to what it lacks of 200 W; its energy falls by as much as the cap."""
    caps_w = np.array([100.0, 200.0])
    curve = JobCurve(caps_w=caps_w, slowdown=np.array([worst, 0.0]), energy=np.array([0.5 * (1 + worst), 1.0]))
    return PlannedCurve(curve=curve, draw_w=200.0)


CURVES = {"soft": kind(0.1), "hard": kind(1.0)}


def job(name: str, arrive_s: float, work_s: float, curve: str = "hard", devices: int = 1) -> PlannedJob:
    return PlannedJob(name=name, arrive_s=arrive_s, work_s=work_s, curve=curve, devices=devices)


def test_alone_a_job_runs_as_at_its_baseline() -> None:
    outcome = Plan(jobs=[job("a", 5, 100)], curves=CURVES).play(200.0)
    assert outcome.slowdown == pytest.approx([0.0])
    assert outcome.wall_s == pytest.approx(100)
    assert outcome.throughput == pytest.approx(1.0)
    assert outcome.energy == pytest.approx(1.0)


def test_two_equal_jobs_are_slowed_down_equally() -> None:
    outcome = Plan(jobs=[job("a", 0, 100), job("b", 0, 100)], curves=CURVES).play(300.0)
    assert outcome.slowdown == pytest.approx([0.5, 0.5])
    assert outcome.peak_w <= 300.0
    assert outcome.energy == pytest.approx(1.0, abs=0.01)  # half way between 1 and 1


def test_jobs_of_different_weights_that_lose_by_these_are_even() -> None:
    jobs = [job("a", 0, 100), replace(job("b", 0, 100), weight=2.0)]
    outcome = Plan(jobs=jobs, curves=CURVES, every_s=1e9).play(300.0)
    assert outcome.slowdown[0] > outcome.slowdown[1] + 0.1
    assert outcome.spread < 0.1


def test_the_second_half_of_a_job_runs_as_if_alone() -> None:
    outcome = Plan(jobs=[job("a", 0, 100), job("b", 0, 200)], curves=CURVES, every_s=0.0).play(300.0)
    # 150 s together at 2/3 speed, in which b does 100 of its 200; then 100 s alone.
    assert outcome.slowdown == pytest.approx([0.5, 0.25])


def test_a_newcomer_has_room_at_once() -> None:
    plan = Plan(jobs=[job("a", 0, 100), job("b", 3, 100)], curves=CURVES, every_s=1e9)
    outcome = plan.play(250.0)
    assert outcome.peak_w <= 250.0
    assert outcome.short_s == 0


def test_too_small_a_budget_is_said() -> None:
    outcome = Plan(jobs=[job("a", 0, 100), job("b", 0, 100)], curves=CURVES).play(150.0)
    assert outcome.short_s == pytest.approx(200)
    assert outcome.peak_w == pytest.approx(200)


def test_curves_are_worth_something_against_a_uniform_share() -> None:
    plan = Plan(jobs=[job("a", 0, 1000, "soft"), job("b", 0, 1000, "hard")], curves=CURVES)
    fair, alike = plan.play(300.0), plan.play(300.0, uniform)
    assert fair.slowdown.max() < alike.slowdown.max()
    assert plan.play(300.0, Policy.THROUGHPUT).throughput >= max(fair.throughput, alike.throughput) - 1e-9


def test_uniform_gives_each_the_same_fraction() -> None:
    plan = Plan(jobs=[job("a", 0, 10, devices=3), job("b", 0, 10)], curves=CURVES)
    outcome = plan.play(600.0, uniform)
    assert outcome.peak_w == pytest.approx(600.0)
    assert outcome.slowdown == pytest.approx([0.5, 0.5])


def test_what_is_asked_for_is_the_highest_sum_at_one_time() -> None:
    plan = Plan(jobs=[job("a", 0, 10), job("b", 10, 10), job("c", 15, 1, devices=2)], curves=CURVES)
    assert plan.asked_w == 600.0


def test_nothing_runs_between_two_jobs() -> None:
    outcome = Plan(jobs=[job("a", 0, 100), job("b", 1000, 100)], curves=CURVES).play(150.0)
    assert outcome.wall_s == pytest.approx(1150)
    assert outcome.slowdown == pytest.approx([0.5, 0.5])


def test_no_jobs_take_no_time() -> None:
    outcome = Plan(jobs=[], curves=CURVES).play(100.0)
    assert outcome.wall_s == 0
    assert outcome.slowdown.size == 0
