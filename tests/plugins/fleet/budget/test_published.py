"""What is known of a job, in the words of a budget."""

import pytest

from autocap.controller.known_curve import KnownCurve
from autocap.plugins.fleet.budget.published import known_of
from autocap.records import Measurement, Prediction

BASELINE = Measurement(
    cap_w=(250.0, 250.0), start_s=0.0, duration_s=10.0, iterations=100.0, period_s=0.1, period_rel_stderr=0.01,
    power_w=400.0, power_rel_stderr=0.01, energy_per_iteration_j=40.0, energy_rel_stderr=0.02, time_energy_corr=0.5,
    cap_binding=True, sm_clock_hz=None, valid=True,
)  # fmt: skip


def point(cap_w: float, time: float, stderr: float = 0.01) -> Prediction:
    return Prediction(
        cap_w=cap_w, energy=0.9, time=time, energy_rel_stderr=0.02, period_rel_stderr=stderr, time_energy_corr=0.5
    )


CURVE = KnownCurve(
    baseline=BASELINE,
    points=(point(100.0, 1.5, 1e9), point(150.0, 1.1), point(200.0, 1.02), point(250.0, 1.0)),
    asked_w=150.0,
)


def test_a_curve_is_published_up_to_what_the_job_asks_for() -> None:
    searching, held = known_of(CURVE, 250.0, searching=True), known_of(CURVE, 250.0, searching=False)
    assert searching.caps_w == (100.0, 150.0, 200.0, 250.0)
    assert held.caps_w == (100.0, 150.0)
    assert held.slowdown == pytest.approx((0.5, 0.1))
    assert held.slowdown_stderr == pytest.approx((1.0, 0.011))  # what is hardly known stays a number
    assert held.energy_stderr == pytest.approx((0.018, 0.018))


def test_what_was_measured_below_a_ceiling_is_published_over_the_limit_found() -> None:
    below = known_of(CURVE, 300.0, searching=False)
    assert below.caps_w == (100.0, 150.0)
    assert all(slower > more for slower, more in zip(below.slowdown, (0.5, 0.1), strict=True))
    assert known_of(CURVE, 300.0, searching=True).caps_w[-1] == 300.0
