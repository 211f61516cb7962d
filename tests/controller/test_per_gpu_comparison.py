"""Caps per GPU against the common cap: when a verdict stands, and what it says."""

import math

import pytest

from autocap.controller.comparison import PerGpuComparison
from autocap.measurement.batches import student_factor
from autocap.metrics import Metric
from autocap.records import Measurement
from tests.doubles.feeds import measurement

EDP = Metric(name="edp")


def window(energy_j: float, period_s: float, error: float = 0.0005) -> Measurement:
    return measurement(energy_j, period_s, energy_error=error, period_error=error, corr=0.9)


def compared(tried: Measurement, rounds: int = 3, metric: Metric = EDP) -> PerGpuComparison:
    comparison = PerGpuComparison((200.0,), (180.0,), window(100.0, 0.5), metric)
    for _ in range(rounds):
        assert comparison.inner_next
        comparison.add(tried)
        assert not comparison.inner_next
        comparison.add(window(100.0, 0.5))
    return comparison


@pytest.mark.parametrize(
    ("energy_j", "period_s", "objection"),
    [
        (97.0, 0.5, None),
        (97.0, 0.50015, None),  # 0.03 %: less than is told from noise
        (97.0, 0.5025, "slower than the common cap: +0.50 ± 0.03 % time"),
        (99.98, 0.5, "no energy saved beyond its error: -0.02 ± 0.03 %"),
        (101.0, 0.5, "no energy saved beyond its error: +1.00 ± 0.03 %"),
    ],
)
def test_caps_are_a_gain_only_with_less_energy_in_no_more_time(energy_j, period_s, objection) -> None:
    assert compared(window(energy_j, period_s)).objection() == objection


def test_a_metric_that_time_spoils_is_no_gain_however_little_of_it_is_noise() -> None:
    time_above_all = Metric(name="eds", k=1.001)
    said = compared(window(99.8, 0.50015), metric=time_above_all).objection()
    assert said.startswith("worse than the common cap: eds +0.03")


def test_a_trial_minds_time_alone() -> None:
    assert compared(window(100.5, 0.5), rounds=1).hindrance() is None
    assert compared(window(97.0, 0.505), rounds=1).hindrance() is not None


@pytest.mark.parametrize(("error", "rounds"), [(0.0005, 3), (0.0015, 5), (0.01, 6)])
def test_a_verdict_needs_three_rounds_and_more_where_time_is_noisy_but_six_at_most(error: float, rounds: int) -> None:
    comparison = PerGpuComparison((200.0,), (180.0,), window(100.0, 0.5, error), EDP)
    while not comparison.settled:
        comparison.add(window(97.0, 0.5, error))
        assert not comparison.settled  # the common cap comes last
        comparison.add(window(100.0, 0.5, error))
    assert math.isclose(comparison.inner.iterations, rounds * 100.0)


def test_what_is_said_of_the_time_of_the_confirmation_has_the_errors_of_all_three() -> None:
    then = window(200.0, 1.0, 0.001)
    moved = compared(window(95.0, 0.5), rounds=1).as_at(then)
    assert (moved.energy_per_iteration_j, moved.period_s) == (pytest.approx(190.0), pytest.approx(1.0))
    more = student_factor(14) / student_factor(7)  # of two windows
    three = math.sqrt(0.0005**2 + (0.0005 * more) ** 2 / 2 + 0.001**2)
    assert (moved.period_rel_stderr, moved.energy_rel_stderr) == (pytest.approx(three), pytest.approx(three, rel=1e-3))
    assert moved.time_energy_corr == pytest.approx(0.9, rel=1e-3)


def test_the_part_of_the_gpus_moves_with_the_whole_machine() -> None:
    whole = window(300.0, 0.5).with_gpus(window(100.0, 0.5))
    comparison = PerGpuComparison((200.0,), (180.0,), whole, EDP)
    comparison.add(window(295.0, 0.5).with_gpus(window(95.0, 0.5)))
    comparison.add(whole)
    moved = comparison.as_at(window(330.0, 0.5).with_gpus(window(120.0, 0.5)))
    assert moved.energy_per_iteration_j == pytest.approx(330.0 * 295 / 300)
    assert moved.of_gpus().energy_per_iteration_j == pytest.approx(120.0 * 0.95)
