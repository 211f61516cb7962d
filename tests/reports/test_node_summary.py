import math
from dataclasses import replace

import pytest

from autocap.events import IdleEstimated, NodeMetered
from autocap.reports.summary.summarise import node_summary, standardised
from tests.doubles.feeds import measurement

METERED = NodeMetered(t_s=0.0, source="ipmi", whole=True, refresh_s=1.0, idle_w=None, standard_idle_w=None)
ESTIMATED = IdleEstimated(t_s=5.0, power_w=50.0, seen_s=4.0)


def test_without_a_source_there_is_nothing_to_say() -> None:
    assert node_summary(None, None, measurement(), None) is None


def test_what_the_user_gave_goes_before_what_was_seen() -> None:
    seen = node_summary(METERED, ESTIMATED, measurement(), None)
    given = node_summary(replace(METERED, idle_w=80.0), ESTIMATED, measurement(), None)
    assert (seen.idle_w, seen.idle_source, seen.idle_seen_s, seen.idle_share) == (50.0, "estimated", 4.0, 0.25)
    assert (given.idle_w, given.idle_source, given.idle_seen_s, given.idle_share) == (80.0, "given", None, 0.4)


def test_the_difference_of_idle_powers_is_taken_off_for_the_time_that_an_iteration_took() -> None:
    metered = replace(METERED, idle_w=80.0, standard_idle_w=30.0)
    found = node_summary(metered, None, measurement(100.0, 0.5), measurement(90.0, 0.6, cap_w=200.0))
    assert [one.energy_per_iteration_j for one in found.standard] == [pytest.approx(75.0), pytest.approx(60.0)]


def test_where_nobody_knows_the_idle_power_nothing_is_taken_off() -> None:
    found = node_summary(replace(METERED, standard_idle_w=30.0), None, measurement(), None)
    assert found.standard == ()


@pytest.mark.parametrize(("corr", "stderr_j"), [(0.0, math.hypot(1.0, 0.25)), (1.0, 0.75), (-1.0, 1.25)])
def test_errors_of_time_and_energy_that_go_together_cancel(corr: float, stderr_j: float) -> None:
    found = standardised(measurement(100.0, 0.5, energy_error=0.01, period_error=0.01, corr=corr), 50.0)
    assert found.stderr_j == pytest.approx(stderr_j)
