"""What windows in turn at a cap and at the baseline say of the cap."""

import pytest
from autocap.controller.confirmation import Confirmation, Verdict

from autocap.metrics import Metric
from tests.doubles.feeds import measurement

ENERGY = Metric(name="energy")
BASELINE = measurement(energy_j=100.0, period_s=0.5)


def verdicts(energy_j: float, period_s: float = 0.5, *, error: float = 0.005, metric: Metric = ENERGY) -> list[Verdict]:
    """The verdict on a cap that costs so much, and how many windows it took, as so many times the same verdict."""
    confirmation = Confirmation(metric)
    cap = measurement(energy_j, period_s, cap_w=200.0, energy_error=error, period_error=error)
    for windows in range(1, 20):
        verdict = confirmation.add(BASELINE if confirmation.baseline_next else cap)
        if verdict is not None:
            return [verdict] * windows
    raise AssertionError("there is no verdict")


def test_the_baseline_lies_between_two_windows_of_the_cap() -> None:
    confirmation = Confirmation(ENERGY)
    turns = []
    for _ in range(5):
        turns.append(confirmation.baseline_next)
        confirmation.add(BASELINE)
    assert turns == [False, True, False, True, False]


def test_a_cap_that_is_surely_better_is_confirmed_after_the_first_round() -> None:
    found = verdicts(90.0)
    assert (found[0].confirmed, found[0].too_slow, len(found)) == (True, False, 3)
    assert found[0].reason.startswith("energy 0.9000 ± 0.00")
    assert found[0].measurement is not None
    assert found[0].measurement.iterations == 200


def test_a_cap_that_is_better_within_its_error_is_not_kept_however_often_it_is_measured() -> None:
    found = verdicts(99.5)
    assert (found[0].confirmed, found[0].too_slow, len(found)) == (False, False, 7)
    assert found[0].reason.startswith("not better beyond its error: energy 0.9950")


def test_a_cap_that_is_surely_worse_is_refused_after_the_first_round() -> None:
    found = verdicts(110.0)
    assert (found[0].confirmed, found[0].too_slow, len(found)) == (False, False, 3)
    assert found[0].reason.startswith("worse than the baseline: energy 1.1000")


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
    found = verdicts(70.0, period_s, metric=Metric(name="energy", max_slowdown=0.05))
    assert (found[0].confirmed, found[0].too_slow, len(found)) == (False, True, windows)
    assert found[0].reason == reason
