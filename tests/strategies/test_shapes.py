import numpy as np
import pytest

from autocap.strategies.model.parameters import CLOCKS, Rising
from autocap.strategies.model.shapes import _EDGE, _STEEPNESS, FAMILIES, shapes

CAPS_W = np.arange(100.0, 301.0, 5.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lower_cap_never_draws_more_nor_is_faster(family: str) -> None:
    found = shapes(CAPS_W, 300.0, 240.0, None, [family])
    likely = np.exp(found.log_weight - found.log_weight.max()) > 0.01
    assert likely.sum() > 300
    assert np.diff(found.log_power[likely]).min() > -1e-9
    assert np.diff(found.log_time[likely]).max() < 1e-9
    assert np.abs(found.log_power[:, -1]).max() == np.abs(found.log_time[:, -1]).max() == 0


def test_jobs_that_wait_for_memory_have_flat_tops_and_then_a_cliff() -> None:
    found = shapes(CAPS_W, 300.0, 240.0, True, ["memory"])
    slower = np.exp(found.log_time)
    flat = slower[:, CAPS_W == 240][:, 0] < 1.01
    assert 0.2 < np.mean(flat) < 0.9
    assert np.mean(slower[flat, 0] > 1.5) > 0.3
    assert np.exp(found.log_power[flat][:, CAPS_W == 240]).mean() < 0.9


def test_in_some_curves_the_caps_right_below_the_limit_are_one_and_the_limit_is_none_of_them() -> None:
    for family in FAMILIES:
        found = shapes(CAPS_W, 300.0, 300.0, True, [family])
        at = [list(CAPS_W).index(cap_w) for cap_w in (265.0, 280.0, 300.0)]
        one = (found.log_power[:, at[0]] == found.log_power[:, at[1]]) & (found.log_power[:, at[1]] < -1e-3)
        assert 0.02 < np.mean(one) < 0.2
        assert np.all(found.log_time[one, at[0]] == found.log_time[one, at[1]])


def test_a_power_law_ends_where_the_clock_does() -> None:
    found = shapes(CAPS_W, 300.0, 300.0, True, ["law"])
    assert np.exp(found.log_power).min() > 0.03
    assert np.exp(found.log_time).max() < 10.01 * np.exp(_STEEPNESS[1] * _EDGE[1])


def test_what_the_device_says_of_its_cap_counts_against_curves_that_deny_it() -> None:
    binds, free = (shapes(CAPS_W, 300.0, 240.0, said) for said in (True, False))
    expected = [np.average(found.log_power[:, -3], weights=np.exp(found.log_weight)) for found in (binds, free)]
    assert expected[0] < expected[1] < 0


def test_a_clock_is_found_for_each_value_and_the_ends_for_values_beyond() -> None:
    curves = np.array([CLOCKS**2, 3 + CLOCKS])
    found = Rising.of(curves).clocks(np.array([[0.25, 7.0], [3.5, 0.0]]))
    assert found.clock == pytest.approx(np.array([[0.5, 1.0], [0.5, CLOCKS[0]]]), abs=1e-3)
    assert found.of_values(curves) == pytest.approx(np.array([[0.25, 1.0], [3.5, 3 + CLOCKS[0]]]), abs=1e-6)
