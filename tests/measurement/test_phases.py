"""What readings that cover a part of the time leave unseen of an iteration."""

import numpy as np
import pytest

from autocap.measurement.phases import Phases
from autocap.records import Reading

UPDATE_S, COVERS_S = 0.1, 0.025


def seen(period_s: float, covers_s: float = COVERS_S, *, counted: bool = False) -> tuple[Phases, np.ndarray]:
    """20 s of a job that draws 300 W in the first tenth of an iteration, and 100 W in the rest."""
    phases = Phases(covers_s)
    for stamp_s in np.arange(UPDATE_S / 2, 20.0, UPDATE_S):
        draws = 300.0 if (stamp_s - covers_s / 2) % period_s < period_s / 10 else 100.0
        reading = Reading(t_s=float(stamp_s), power_w=draws, energy_j=None)
        phases.add([reading], [0.0 if counted else draws * UPDATE_S])
    return phases, np.arange(0.0, 20.0, period_s)


def unseen_w(period_s: float, covers_s: float = COVERS_S, *, counted: bool = False) -> float:
    phases, t_s = seen(period_s, covers_s, counted=counted)
    return phases.unseen_w(t_s, np.arange(t_s.size, dtype=float))


@pytest.mark.parametrize("period_s", [0.4, 0.8])
def test_readings_at_the_same_few_places_of_an_iteration_leave_an_error_though_they_agree(period_s: float) -> None:
    assert unseen_w(period_s) > 2.0  # mean power is 120 W, and they all say 100 W, or the eighth of them 300 W


def test_readings_at_all_places_leave_next_to_none() -> None:
    assert unseen_w(0.417) < 0.4


def test_a_sensor_that_looks_all_the_time_and_a_counter_leave_none() -> None:
    assert unseen_w(0.4, covers_s=UPDATE_S) < 1e-9
    assert unseen_w(0.4, counted=True) == 0.0


def test_iterations_that_are_not_told_apart_and_what_was_forgotten_say_nothing() -> None:
    phases, t_s = seen(0.4)
    assert phases.unseen_w(t_s[::2], 2.0 * np.arange(t_s[::2].size)) == 0.0
    phases.trim(20.0)
    assert phases.unseen_w(t_s, np.arange(t_s.size, dtype=float)) == 0.0
