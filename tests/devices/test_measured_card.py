"""What the functions and sensors of a GPU do, measured above an emulated NVML library, and on readings made by hand.

What is made of power readings and counters as they come.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.clock import VirtualClock
from autocap.devices import nvml
from autocap.devices.nvml.card import EnergyTrace, PowerTrace
from autocap.devices.nvml.library import Library, open_library
from autocap.devices.nvml.measured_card import (
    POLLED,
    call_times,
    fields,
    lag,
    noise,
    poll,
    questions,
    updates,
)
from autocap.testing.nvml import Fault, Machine, MemoryBoard, emulated, machine, times

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 3, 4, 13
NOT_ASKED = {"nvmlInit", "nvmlShutdown", "nvmlDeviceSetPowerManagementLimit"}  # what opens, ends and sets


@contextmanager
def opened(made: Machine) -> Iterator[tuple[Library, str, VirtualClock]]:
    clock, board = VirtualClock(), MemoryBoard(made)
    with emulated(board, clock), open_library(**times(clock)) as library:
        yield library, made.cards[0].uuid, clock
    assert board.read().changes == ()


def one_gpu() -> Machine:
    return replace(machine("quadro-rtx-6000/resnet50"), sensor="rtx-4090")


def test_every_function_that_our_readers_call_is_asked_and_none_that_sets() -> None:
    sources = [path for path in Path(nvml.__file__).parent.glob("*.py") if path.name != "measured_card.py"]
    called = {name for path in sources for name in re.findall(r"pynvml\.(nvml[A-Z]\w+)", path.read_text())}
    with opened(one_gpu()) as (library, uuid, _):
        assert questions(library, uuid).keys() == called - NOT_ASKED - {"nvmlLib"}


@pytest.mark.slow
def test_of_each_function_the_codes_and_the_times_are_told() -> None:
    denied = Fault(code=NO_PERMISSION, function="nvmlDeviceGetTemperature", times=150)
    with opened(replace(one_gpu(), faults=(denied,))) as (library, uuid, _):
        found = call_times(library, uuid)
    assert found["nvmlDeviceGetPowerUsage"].codes == {0: 200}
    assert found["nvmlDeviceGetTemperature"].codes == {NO_PERMISSION: 150, 0: 50}
    assert found["nvmlDeviceGetSamples"].codes == {NOT_SUPPORTED: 200}
    assert found["nvmlDeviceGetMPSComputeRunningProcesses_v3"].codes == {FUNCTION_NOT_FOUND: 200}
    assert all(0 < one.median_s <= one.p99_s < 1.0 for one in found.values())


def test_which_fields_there_are_is_told() -> None:
    with opened(one_gpu()) as (library, uuid, _):
        found = fields(library, uuid)
    there = [name for name, answer in found.items() if answer.code == 0]
    assert there == ["POWER_INSTANT (186)", "POWER_CURRENT_LIMIT (190)", "POWER_REQUESTED_LIMIT (192)"]
    assert found["POWER_AVERAGE (185) of the module"].code == NOT_SUPPORTED


@pytest.mark.slow
def test_intervals_of_the_sensors_and_the_counters_step_are_the_emulated_ones() -> None:
    with opened(one_gpu()) as (library, uuid, clock):
        polls = poll(library, uuid, clock, lambda: clock.now() >= 20.0)
    seen = dict(zip(POLLED, polls.T, strict=True))
    assert np.isnan(seen["module_w"]).all()
    for name in ("instant_w", "usage_w", "energy_j"):
        one = updates(seen["t_s"], seen[name])
        assert one is not None
        assert one.every_s == pytest.approx(0.1, rel=0.01)
        assert one.early_s < one.every_s < one.late_s
        assert one.wander_s < 0.01
    counter = updates(seen["t_s"], seen["energy_j"])
    assert counter is not None
    assert 0.1 * 100.0 < counter.step < 0.1 * 260.0


def test_a_quantity_that_stands_has_no_interval() -> None:
    t_s = np.arange(0, 10, 0.004)
    assert updates(t_s, np.full(t_s.size, 200.0)) is None


def test_two_equal_readings_in_succession_are_no_longer_interval() -> None:
    t_s = np.arange(0, 20, 0.004)
    number = np.floor(t_s / 0.1)
    one = updates(t_s, np.where(number % 7 == 3, number - 1, number))
    assert one is not None
    assert one.every_s == pytest.approx(0.1, rel=0.01)
    assert one.wander_s < 0.004


def test_the_lag_behind_steps_of_a_load_is_told_of_what_follows_them() -> None:
    t_s = np.arange(0, 24, 0.004)
    edges_s = [2.0, 4.0, 6.0, 8.0, 10.0]
    late_s = 0.15 + t_s * 0
    loaded = ((t_s - late_s) // 2 % 2 == 1) & (t_s - late_s < 8.0)
    found = lag(t_s, np.where(loaded, 300.0, 80.0), edges_s)
    assert found is not None
    assert (found.steps, found.half_s) == (4, pytest.approx(0.15, abs=0.005))
    mean_w = 80.0 + 220.0 * np.convolve(loaded, np.ones(250) / 250)[: t_s.size]  # of the last second
    found = lag(t_s, mean_w, edges_s)
    assert found is not None
    assert (found.half_s, found.most_s) == (pytest.approx(0.65, abs=0.01), pytest.approx(1.05, abs=0.01))
    assert lag(t_s, np.full(t_s.size, 80.0), edges_s) is None
    assert lag(t_s, np.full(t_s.size, np.nan), edges_s) is None


@pytest.mark.parametrize("colour", [0.0, 0.8])
def test_noise_is_told_with_its_colour(colour: float) -> None:
    rng, off = np.random.default_rng(1), [0.0]
    for _ in range(2000):
        off.append(colour * off[-1] + (1 - colour**2) ** 0.5 * rng.standard_normal())
    t_s = np.arange(0, 200, 0.01)
    found = noise(t_s, 250.0 + 2.5 * np.array(off)[(t_s / 0.1 + 1e-9).astype(int)])
    assert found is not None
    assert found.relative == pytest.approx(0.01, rel=0.1)
    assert found.colour[0] == pytest.approx(colour, abs=0.06)
    assert found.colour[1] == pytest.approx(colour**2, abs=0.1)


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
