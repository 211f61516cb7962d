"""What is made of power readings and counters as they come."""

import pytest

from autocap.devices.nvml.card import EnergyTrace, PowerTrace


@pytest.mark.parametrize(
    ("shown", "taken"),
    [
        (((1.0, 200.0), (1.05, 201.0)), [(1.0, 200.0), (1.05, 201.0)]),
        (((1.0, 200.0), (1.14, 200.0), (1.16, 200.0)), [(1.0, 200.0), (1.0, 200.0), (1.16, 200.0)]),
        (((1.0, 200.0), (0.9, 201.0)), [(1.0, 200.0), (1.0, 201.0)]),
        (((1.0, 200.0), (1.02, 0.0), (1.04, 200.0)), [(1.0, 200.0), (1.02, None), (1.04, 200.0)]),
    ],
    ids=["a new value", "a repeat within the update, then a plateau", "stamps never go back", "after a gap"],
)
def test_which_readings_are_fresh(shown, taken) -> None:
    trace = PowerTrace(0.1)
    assert [trace.take(t_s, power_w, energy_j=None, busy=True) for t_s, power_w in shown] == taken
    assert trace.gap is None


@pytest.mark.parametrize("power_w", [None, 0.0, -1.0, float("nan")])
def test_what_is_no_power_is_a_gap(power_w) -> None:
    trace = PowerTrace(0.1)
    assert trace.take(1.0, power_w, energy_j=None, busy=True) == (1.0, None)
    assert trace.gap is not None


def hold(trace: PowerTrace, seconds: float, *, counter_w: float | None, busy: bool = True) -> float | None:
    """The last of many equal readings of 200 W."""
    power_w: float | None = None
    for step in range(round(seconds / 0.05)):
        t_s = 0.05 * step
        energy_j = None if counter_w is None else counter_w * t_s
        _, power_w = trace.take(t_s, 200.0, energy_j=energy_j, busy=busy)
    return power_w


@pytest.mark.parametrize(
    ("counter_w", "busy", "seconds", "kept"),
    [
        (None, True, 4.9, True),
        (None, True, 6.0, False),
        (None, False, 6.0, True),
        (203.0, True, 60.0, True),
        (150.0, True, 6.0, False),
        (0.0, True, 6.0, False),
    ],
)
def test_a_value_that_stands_still_at_work_is_stuck_unless_the_counter_confirms_it(
    counter_w, busy, seconds, kept
) -> None:
    assert (hold(PowerTrace(0.1), seconds, counter_w=counter_w, busy=busy) == 200.0) is kept


def test_a_slow_sensor_has_longer_before_it_is_taken_for_stuck() -> None:
    assert hold(PowerTrace(1.0), 25.0, counter_w=None) == 200.0


def test_a_counter_is_held_where_it_does_not_answer() -> None:
    trace = EnergyTrace()
    assert trace.take(0.0, None, 200.0) is None
    taken = [trace.take(t_s, value, 200.0) for t_s, value in ((1, 100.0), (2, None), (3, 300.0))]
    assert taken == [100.0, 100.0, 300.0]


def test_a_counter_that_was_seen_and_never_answers_again_is_dropped() -> None:
    trace = EnergyTrace()
    trace.expect(2.0)
    for t_s in range(3, 8):
        trace.take(float(t_s), None, 200.0)
    assert trace.trouble is None
    trace.take(8.0, None, 200.0)
    assert trace.trouble == "has not moved for 6 s"


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([100.0, 90.0], "went back from 100 J to 90 J"),
        ([100.0] * 8, "has not moved for 6 s"),
        ([100.0] + [None] * 7, "6 s"),
    ],
)
def test_a_counter_that_goes_back_or_stands_still_is_dropped_for_good(values, why) -> None:
    trace = EnergyTrace()
    given = [trace.take(float(t_s), value, 200.0) for t_s, value in enumerate(values)]
    assert given[-1] is None
    assert why in (trace.trouble or "")
    assert trace.take(100.0, 5000.0, 200.0) is None
