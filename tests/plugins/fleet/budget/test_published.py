"""What is known of a job, in the words of a budget."""

import pytest

from autocap.plugins.fleet.budget.client import known_of
from tests.session.test_pricing import CURVE


def test_a_curve_is_published_up_to_what_the_job_asks_for() -> None:
    searching, held = known_of(CURVE, 250.0, searching=True), known_of(CURVE, 250.0, searching=False)
    assert searching.caps_w == (100.0, 150.0, 200.0, 250.0)
    assert (held.caps_w, held.slowdown) == ((100.0, 150.0), pytest.approx((0.5, 0.1)))
    assert held.slowdown_stderr == pytest.approx((1.0, 0.011))  # what is hardly known stays a number
    assert held.energy_stderr == pytest.approx((0.018, 0.018))


def test_what_was_measured_below_a_ceiling_is_published_over_the_limit_found() -> None:
    below = known_of(CURVE, 300.0, searching=False)
    assert below.caps_w == (100.0, 150.0)
    assert all(slower > more for slower, more in zip(below.slowdown, (0.5, 0.1), strict=True))
    assert known_of(CURVE, 300.0, searching=True).caps_w[-1] == 300.0
