import numpy as np
import pytest

from autocap.strategies.findings import smooth

CAPS_W = np.arange(100.0, 261.0, 5.0)
VALLEY = 0.9 + ((CAPS_W - 170) / 200) ** 2


def test_a_quadratic_is_left_as_it_is() -> None:
    smoothed = smooth(CAPS_W, VALLEY, np.full_like(CAPS_W, 0.01), [20.0])
    assert smoothed == pytest.approx(VALLEY, abs=1e-12)


def test_neighbours_halve_the_noise_of_a_smooth_curve() -> None:
    rng = np.random.default_rng(3)
    noisy = [VALLEY + rng.normal(0, 0.01, len(CAPS_W)) for _ in range(20)]
    errors = [smooth(CAPS_W, costs, np.full_like(CAPS_W, 0.01), [20.0]) - VALLEY for costs in noisy]
    assert np.std(errors) < 0.007


def test_a_cliff_is_not_smoothed_away() -> None:
    costs = np.where(CAPS_W < 150, 2.0, VALLEY)
    smoothed = smooth(CAPS_W, costs, np.full_like(CAPS_W, 0.005), [20.0, 10.0])
    assert smoothed == pytest.approx(costs, abs=0.005)


def test_too_few_neighbours_say_nothing() -> None:
    costs = np.array([1.0, 0.5, 1.0, 0.9])
    caps_w = np.array([100.0, 105.0, 110.0, 115.0])
    assert smooth(caps_w, costs, np.full(4, 0.1), [40.0]).tolist() == costs.tolist()


def test_without_errors_every_cap_keeps_its_own_cost() -> None:
    costs = VALLEY + 0.01 * np.cos(CAPS_W)
    assert smooth(CAPS_W, costs, np.zeros_like(CAPS_W), [20.0, 10.0]).tolist() == costs.tolist()
