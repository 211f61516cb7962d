import math
from dataclasses import replace

import pytest

from autocap.metrics import Metric
from autocap.records import Trial, TrialState
from autocap.strategies.findings import Finding, find_out, pool
from autocap.testing.curves import FLAT, measured

BASELINE = measured(FLAT, 250.0)
BUDGET = Metric(name="energy", max_slowdown=0.05)


def trial(cost: float, stderr: float, state: TrialState = TrialState.COMPLETE, slowdown: float = 1.0) -> Trial:
    measurement = replace(measured(FLAT, 150.0), period_s=slowdown * BASELINE.period_s, period_rel_stderr=0.005)
    return Trial(setting=150.0, state=state, cost=cost, cost_stderr=stderr, measurement=measurement)


def finding(*trials: Trial) -> Finding:
    found = find_out(trials, BUDGET, BASELINE)
    assert found is not None
    return found


def test_repeats_weigh_by_the_inverse_of_their_variance_as_if_they_were_of_one_value() -> None:
    mean, stderr = pool([1.0, 1.1], [0.2, 0.11])
    assert mean == pytest.approx((1.0 * 1 + 1.1 * 4) / 5)
    assert stderr == pytest.approx(mean / math.sqrt(1 / 0.04 + 1 / 0.01))


def test_repeats_that_disagree_are_known_no_better_than_they_scatter() -> None:
    mean, stderr = pool([0.855, 0.635], [0.855 * 0.05, 0.635 * 0.05])
    assert (mean, stderr) == (pytest.approx(0.745), pytest.approx(0.11, rel=0.02))


@pytest.mark.parametrize(
    ("stderrs", "mean", "stderr"), [([0.0, 0.0], 1.5, 0.5), ([0.0, 0.1], 1.5, 0.5), ([math.inf, 0.1], 2.0, 0.1)]
)
def test_errors_of_nothing_and_of_infinity_do_not_break_the_pool(stderrs, mean, stderr) -> None:
    assert pool([1.0, 2.0], stderrs) == (pytest.approx(mean), pytest.approx(stderr, abs=1e-6))


def test_a_cap_that_only_failed_is_unknown() -> None:
    assert find_out([Trial(setting=150.0, state=TrialState.FAILED)], BUDGET, BASELINE) is None


def test_a_cap_is_repeated_once_anything_followed_its_first_complete_trial() -> None:
    failed = Trial(setting=150.0, state=TrialState.FAILED)
    assert not finding(failed, trial(0.9, 0.01)).repeated
    assert finding(trial(0.9, 0.01), failed).repeated
    assert not finding(trial(0.9, 0.01, TrialState.PRUNED)).repeated


def test_time_is_pooled_before_the_slowdown_is_judged() -> None:
    once = finding(trial(0.9, 0.01, slowdown=1.042))
    twice = finding(trial(0.9, 0.01, slowdown=1.042), trial(0.9, 0.01, slowdown=1.042))
    assert (once.allowed, once.forbidden) == (False, False)
    assert (twice.allowed, twice.forbidden) == (True, False)


def test_keepable_comes_before_pruned_and_pruned_before_too_slow() -> None:
    good, worse = finding(trial(0.9, 0.01)), finding(trial(0.8, 0.01, TrialState.PRUNED))
    slow, slower = finding(trial(0.6, 0.01, slowdown=1.2)), finding(trial(0.5, 0.01, slowdown=1.3))
    assert sorted([slower, slow, worse, good], key=lambda one: one.rank) == [good, worse, slow, slower]
    assert [one.keepable for one in (good, worse, slow)] == [True, False, False]
