"""What windows in turn at a cap and at the baseline say of the cap."""

import pytest

from autocap.controller.comparison import Comparison, Judgement, Ruling, between, judge
from autocap.measurement.probe import ProbeRules
from autocap.metrics import Metric
from tests.doubles.feeds import measurement

ENERGY = Metric(name="energy")
BASELINE = measurement(energy_j=100.0, period_s=0.5)


def judgements(
    energy_j: float, period_s: float = 0.5, *, error: float = 0.005, metric: Metric = ENERGY
) -> list[Judgement]:
    """The judgement on a cap that costs so much, as many times as windows were needed for it."""
    comparison = Comparison((200.0,), (260.0,))
    cap = measurement(energy_j, period_s, cap_w=200.0, energy_error=error, period_error=error)
    for windows in range(1, 30):
        comparison.add(BASELINE if comparison.inner_next else cap)
        judgement = judge(comparison, metric)
        if judgement is not None:
            return [judgement] * windows
    raise AssertionError("there is no judgement")


def test_the_baseline_lies_between_two_windows_of_the_cap() -> None:
    comparison = Comparison((200.0,), (260.0,))
    turns = []
    for _ in range(5):
        turns.append(comparison.next_w)
        comparison.add(BASELINE)
    assert turns == [(200.0,), (260.0,), (200.0,), (260.0,), (200.0,)]


def test_a_cap_that_is_surely_better_is_confirmed_after_the_first_round() -> None:
    found = judgements(90.0)
    assert (found[0].ruling, len(found)) == (Ruling.BETTER, 3)
    assert found[0].reason.startswith("energy 0.9000 ± 0.00")
    assert found[0].measurement.iterations == 200


@pytest.mark.parametrize(
    ("energy_j", "rounds", "said"),
    [
        (99.8, 7, "not better beyond its error: energy 0.9980"),  # twelve rounds would not show it either
        (110.0, 3, "worse than the baseline: energy 1.1000"),
    ],
)
def test_a_cap_that_is_worse_is_refused_after_the_first_round_and_a_doubtful_one_after_more(
    energy_j, rounds, said
) -> None:
    found = judgements(energy_j)
    assert (found[0].ruling, len(found)) == (Ruling.NOT_BETTER, rounds)
    assert found[0].reason.startswith(said)


def test_a_cap_that_more_rounds_would_show_to_be_better_is_measured_until_they_do() -> None:
    """They lose next to nothing: each second of them is spent at the cap, or as without one."""
    found = judgements(99.5)
    assert found[0].ruling is Ruling.BETTER
    assert 7 < len(found) <= 25


@pytest.mark.parametrize(
    ("period_s", "windows", "reason"),
    [
        (0.55, 3, "too slow: +10.00 ± 0.65 % time, 5 % allowed"),
        (0.524, 7, "not surely within the slowdown limit: +4.80 ± 0.35 % time, 5 % allowed"),
    ],
)
def test_a_cap_that_is_not_surely_fast_enough_is_refused_whatever_it_saves(period_s, windows, reason) -> None:
    found = judgements(70.0, period_s, metric=Metric(name="energy", max_slowdown=0.05))
    assert (found[0].ruling, len(found)) == (Ruling.TOO_SLOW, windows)
    assert found[0].reason == reason


def test_a_window_of_the_baseline_is_as_exact_as_the_verdict_needs() -> None:
    usual = ProbeRules(settle_s=1.0, target_stderr=0.005, limit_s=60.0, min_batches=8)
    comparison = Comparison((200.0,), (260.0,), measurement(91.0, cap_w=200.0))
    rules = between(usual, comparison, BASELINE, ENERGY)
    assert rules.min_batches == 4
    assert rules.target(2.9) == 0.005
    assert rules.target(3.0) == pytest.approx(0.03)  # a third of the 9 % that the cap saves
    much = Comparison((200.0,), (260.0,), measurement(70.0, cap_w=200.0))
    assert between(usual, much, BASELINE, ENERGY).target(3.0) == 0.04
    assert between(usual, Comparison((200.0,), (260.0,), BASELINE), BASELINE, ENERGY).target(3.0) == 0.005
    limited = Metric(name="energy", max_slowdown=0.05)
    assert between(usual, comparison, BASELINE, limited).target(3.0) == 0.005


def test_no_cap_is_confirmed_whose_cost_in_time_is_not_known_to_within_ten_points() -> None:
    comparison = Comparison((200.0,), (260.0,))
    cap = measurement(60.0, 0.5, cap_w=200.0, energy_error=0.01, period_error=0.2)
    found = None
    while found is None:
        comparison.add(BASELINE if comparison.inner_next else cap)
        found = judge(comparison, ENERGY)
    assert (found.ruling, comparison.rounds) == (Ruling.NOT_BETTER, 6), "it is measured for longer before"
    unknown = "what it costs in time is not known to within 10 points: +0.00 ± 9.46 % time"
    assert found.reason == f"200 W (energy -40 ± 0 %) is not confirmed, as {unknown}"
    exact = judgements(60.0, error=0.01)
    assert (exact[0].ruling, len(exact)) == (Ruling.BETTER, 3)


def test_windows_that_disagree_widen_the_judgement() -> None:
    comparison = Comparison((200.0,), (260.0,))
    for window in (measurement(63.5, 0.5, cap_w=200.0), BASELINE, measurement(85.5, 0.5, cap_w=200.0)):
        comparison.add(window)
    assert ENERGY.versus(comparison.outer, comparison.inner).stderr == pytest.approx(0.11, rel=0.02)
