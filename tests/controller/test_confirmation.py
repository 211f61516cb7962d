"""What windows in turn at a cap and at the baseline say of the cap."""

import pytest

from autocap.controller.comparison import Comparison, Judgement, Ruling, judge
from autocap.metrics import Metric
from tests.doubles.feeds import measurement

ENERGY = Metric(name="energy")
BASELINE = measurement(energy_j=100.0, period_s=0.5)


def verdict(
    energy_j: float, period_s: float = 0.5, *, error: float = 0.005, metric: Metric = ENERGY
) -> tuple[Judgement, int]:
    """The verdict on a cap that costs so much, and how many windows it took."""
    comparison = Comparison((200.0,), (260.0,))
    cap = measurement(energy_j, period_s, cap_w=200.0, energy_error=error, period_error=error)
    for windows in range(1, 20):
        comparison.add(BASELINE if comparison.inner_next else cap)
        found = judge(comparison, metric)
        if found is not None:
            return found, windows
    raise AssertionError("there is no verdict")


def test_the_baseline_lies_between_two_windows_of_the_cap() -> None:
    comparison = Comparison((200.0,), (260.0,))
    turns = []
    for _ in range(5):
        turns.append(comparison.next_w)
        comparison.add(BASELINE)
    assert turns == [(200.0,), (260.0,), (200.0,), (260.0,), (200.0,)]


def test_a_cap_that_is_surely_better_is_confirmed_after_the_first_round() -> None:
    found, windows = verdict(90.0)
    assert (found.ruling, windows) == (Ruling.BETTER, 3)
    assert found.reason.startswith("energy 0.9000 ± 0.00")
    assert found.measurement.iterations == 200


def test_a_cap_that_is_better_within_its_error_is_not_kept_however_often_it_is_measured() -> None:
    found, windows = verdict(99.5)
    assert (found.ruling, windows) == (Ruling.NOT_BETTER, 7)
    assert found.reason.startswith("not better beyond its error: energy 0.9950")


def test_a_cap_that_is_surely_worse_is_refused_after_the_first_round() -> None:
    found, windows = verdict(110.0)
    assert (found.ruling, windows) == (Ruling.NOT_BETTER, 3)
    assert found.reason.startswith("worse than the baseline: energy 1.1000")


@pytest.mark.parametrize(
    ("period_s", "windows", "reason"),
    [
        (0.55, 3, "too slow: +10.00 ± 0.61 % time, 5 % allowed"),
        (0.524, 7, "not surely within the slowdown limit: +4.80 ± 0.38 % time, 5 % allowed"),
    ],
)
def test_a_cap_that_is_not_surely_fast_enough_is_refused_whatever_it_saves(
    period_s: float, windows: int, reason: str
) -> None:
    found, taken = verdict(70.0, period_s, metric=Metric(name="energy", max_slowdown=0.05))
    assert (found.ruling, taken) == (Ruling.TOO_SLOW, windows)
    assert found.reason == reason
