"""Jobs that come and go under a budget."""

from dataclasses import replace

import numpy as np
import pytest

from autocap.plugins.fleet.budget.plan import Plan, PlannedCurve, PlannedJob, uniform
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.config import Policy


def kind(worst: float) -> PlannedCurve:
    """Slowed down in proportion to what it lacks of 200 W; its energy falls by as much as the cap."""
    caps_w = np.array([100.0, 200.0])
    curve = JobCurve(caps_w=caps_w, slowdown=np.array([worst, 0.0]), energy=np.array([0.5 * (1 + worst), 1.0]))
    return PlannedCurve(curve=curve, draw_w=200.0)


CURVES = {"soft": kind(0.1), "hard": kind(1.0)}


def job(name: str, arrive_s: float, work_s: float, curve: str = "hard", devices: int = 1) -> PlannedJob:
    return PlannedJob(name=name, arrive_s=arrive_s, work_s=work_s, curve=curve, devices=devices)


@pytest.mark.parametrize(
    ("jobs", "budget_w", "came_to"),
    [
        ([job("a", 5, 100)], 200.0, {"slowdown": [0.0], "wall_s": 100, "throughput": 1.0, "energy": 1.0}),
        # 150 s together at 2/3 speed, in which b does 100 of its 200; then 100 s alone.
        ([job("a", 0, 100), job("b", 0, 200)], 300.0, {"slowdown": [0.5, 0.25]}),
        ([job("a", 0, 100), job("b", 0, 100)], 300.0, {"slowdown": [0.5, 0.5], "peak_w": 300.0}),
        ([job("a", 0, 100), job("b", 0, 100)], 150.0, {"short_s": 200, "peak_w": 200}),
        ([job("a", 0, 100), job("b", 1000, 100)], 150.0, {"wall_s": 1150, "slowdown": [0.5, 0.5]}),
        ([], 100.0, {"wall_s": 0, "slowdown": []}),
    ],
    ids=["alone", "half of it alone", "alike", "too small a budget", "nothing between two jobs", "no jobs"],
)
def test_jobs_run_as_their_curves_say(jobs, budget_w, came_to) -> None:
    outcome = Plan(jobs=jobs, curves=CURVES, every_s=0.0).play(budget_w)
    for name, expected in came_to.items():
        assert getattr(outcome, name) == pytest.approx(expected), name


def test_jobs_of_different_weights_that_lose_by_these_are_even() -> None:
    jobs = [job("a", 0, 100), replace(job("b", 0, 100), weight=2.0)]
    outcome = Plan(jobs=jobs, curves=CURVES, every_s=1e9).play(300.0)
    assert outcome.slowdown[0] > outcome.slowdown[1] + 0.1
    assert outcome.spread < 0.1


def test_a_newcomer_has_room_at_once() -> None:
    plan = Plan(jobs=[job("a", 0, 100), job("b", 3, 100)], curves=CURVES, every_s=1e9)
    outcome = plan.play(250.0)
    assert outcome.peak_w <= 250.0
    assert outcome.short_s == 0


def test_curves_are_worth_something_against_a_uniform_share() -> None:
    plan = Plan(jobs=[job("a", 0, 1000, "soft"), job("b", 0, 1000, "hard")], curves=CURVES)
    fair, alike = plan.play(300.0), plan.play(300.0, uniform)
    assert fair.slowdown.max() < alike.slowdown.max()
    assert plan.play(300.0, Policy.THROUGHPUT).throughput >= max(fair.throughput, alike.throughput) - 1e-9


def test_uniform_gives_each_the_same_fraction() -> None:
    plan = Plan(jobs=[job("a", 0, 10, devices=3), job("b", 0, 10)], curves=CURVES)
    outcome = plan.play(600.0, uniform)
    assert (outcome.peak_w, outcome.slowdown) == (pytest.approx(600.0), pytest.approx([0.5, 0.5]))


def test_what_is_asked_for_is_the_highest_sum_at_one_time() -> None:
    plan = Plan(jobs=[job("a", 0, 10), job("b", 10, 10), job("c", 15, 1, devices=2)], curves=CURVES)
    assert plan.asked_w == 600.0
