"""Whatever a job prints, its map holds or its power does, counting goes on and never falls."""

import os
import struct
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autocap.job.processes import own_identity
from autocap.progress import BestProgress, SpeedProgress, StepProgress
from autocap.progress.period import PeriodEstimate, Verdict, detect
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.regex.lines import Board, Numbers
from autocap.progress.steps.hook import sitecustomize as step_hook
from autocap.progress.steps.map import SLOTS, StepMap
from autocap.records import Sample, SensorInfo, StepReading
from tests.doubles import arbitrary


@given(st.lists(st.integers(0, 10**18)))
@example([5, 4] * 20)
def test_numbers_that_fall_never_make_the_count_fall(numbers: list[int]) -> None:
    counter = Numbers()
    counts = [counter.update(number) for number in numbers]
    assert counts == sorted(counts)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**64 - 1))
def test_a_board_with_any_bytes_shows_what_was_last_read_whole(data: bytes, t_ns: int) -> None:
    board = Board.create()
    with open(board.fd, "rb+", buffering=0) as file:
        board.publish(7, t_ns)
        file.seek(0)
        file.write(data)
        assert board.read() in ((7, t_ns, Board.COUNTING), struct.unpack("@QQQQ", data)[:3])


def write(step_map: StepMap, slots: bytes) -> None:
    with step_map.path.open("rb+") as file:
        file.seek(step_hook.HEADER_BYTES)
        file.write(slots[: SLOTS * step_hook.SLOT_BYTES].ljust(SLOTS * step_hook.SLOT_BYTES, b"\0"))


word = st.integers(0, 2**64 - 1)
MOST_STEPS_PER_S = 1e7


@st.composite
def slots(draw: st.DrawFn) -> bytes:
    """A slot that its check confirms, whatever is in it."""
    pid, ticks = draw(st.integers(1, 2**32 - 1)), draw(st.integers(0, 2**63))
    rank, first_ns, count, last_ns = draw(st.integers(-1, 2**63 - 1)), draw(word), draw(word), draw(word)
    check = count ^ last_ns ^ step_hook.salt(pid, ticks)
    return struct.pack(step_hook.SLOT_FORMAT, pid, ticks, rank, draw(word), first_ns, count, last_ns, check)


@given(slots(), st.integers(40, 63), st.integers(1, 255))
def test_a_slot_caught_in_the_middle_of_a_write_is_not_read(slot: bytes, at: int, damage: int) -> None:
    torn = bytearray(slot)
    torn[at] ^= damage  # in the count, its time or their check
    with StepMap.create() as step_map:
        write(step_map, bytes(torn))
        assert step_map.read(0.0) is None


@given(st.lists(st.binary() | st.lists(slots() | st.binary(min_size=64, max_size=64)).map(b"".join), max_size=4))
def test_whatever_processes_write_to_the_map_the_count_never_falls(tables: list[bytes]) -> None:
    count = 0
    with StepMap.create() as step_map:
        for table in tables:
            write(step_map, table)
            found = step_map.read(0.0)
            assert found is None or found.count >= count
            count = found.count if found else count


@st.composite
def near_slots(draw: st.DrawFn) -> bytes:
    """A slot of a process that lives, with times about now: what its job may have done, or a little beyond it."""
    now_ns = time.monotonic_ns()
    about_now = st.integers(-(10**10), 10**9).map(lambda delta: max(0, now_ns + delta))
    first_ns, last_ns = draw(about_now | word), draw(about_now | word)
    count = draw(st.integers(1, 100) | word)
    own = own_identity()
    check = count ^ last_ns ^ step_hook.salt(own.pid, own.start_ticks)
    rank = draw(st.integers(-1, 1))
    return struct.pack(
        step_hook.SLOT_FORMAT, own.pid, own.start_ticks, rank, draw(word), first_ns, count, last_ns, check
    )


hostile = st.lists(slots() | near_slots() | st.binary(min_size=64, max_size=64)).map(b"".join)


@pytest.mark.slow
@given(st.lists(st.binary() | hostile, max_size=6))
def test_whatever_is_in_a_map_what_is_read_is_what_a_job_can_have_done(tables: list[bytes]) -> None:
    before: StepReading | None = None
    with StepMap.create() as step_map:
        for table in tables:
            write(step_map, table)
            found = step_map.read(0.0)
            if found is None:
                assert before is None
                continue
            assert 0 <= found.t_s <= time.monotonic()
            assert 0 < found.count <= 1 + found.t_s * MOST_STEPS_PER_S
            if before is not None and found != before:
                assert 0 < found.count - before.count <= (found.t_s - before.t_s) * MOST_STEPS_PER_S
            before = found


@given(st.integers(0, 40000), st.binary(max_size=100))
def test_a_map_of_any_length_reads_as_what_it_said_or_as_nothing(size: int, header: bytes) -> None:
    with StepMap.create() as step_map:
        step_hook.StepCounter(str(step_map.path)).step()
        os.truncate(step_map.path, size)
        with step_map.path.open("rb+") as file:
            file.write(header[: step_hook.HEADER_BYTES])
        found = step_map.read(0.0)
        assert found is None or found.count == 1


def seen(power_w: np.ndarray, *, start_s: float = 0.0, update_s: float = 0.1) -> PeriodEstimate:
    return detect(start_s + update_s * np.arange(len(power_w)), power_w, update_s=update_s)


@settings(max_examples=25)
@given(
    st.lists(
        st.sampled_from([0.0, -5.0, 1e-300, 100.0, 100.1, 150.0, 300.0, 1e9, np.nan, np.inf, -np.inf]), max_size=40
    ),
    st.integers(1, 8),
)
@example([100.0], 120)
@example([100.0, 300.0], 60)
@example([], 1)
def test_whatever_the_power_does_there_is_a_verdict_with_its_reason(watts: list[float], times: int) -> None:
    estimate = seen(np.array(watts * times))
    assert estimate.reason
    assert 0 <= estimate.confidence <= 1
    assert estimate.verdict is not Verdict.PERIODIC or (estimate.period_s or 0) > 0
    assert not estimate.verified  # there is no witness


def test_a_period_of_under_three_readings_may_be_an_alias_and_is_not_called_found() -> None:
    rng = np.random.default_rng(1)
    t_s = np.cumsum(0.1 * (1 + 0.02 * rng.standard_normal(600)))
    estimate = detect(t_s, 200 + 60 * np.sin(2 * np.pi * t_s / 0.27) + rng.normal(0, 1, t_s.size), update_s=0.1)
    assert estimate.verdict is Verdict.UNRESOLVABLE
    assert estimate.reason == "0.270 s is under three updates of the sensor: it may be an alias"


@pytest.mark.slow
@settings(max_examples=6)
@given(
    seed=st.integers(0, 2**32),
    factor=st.sampled_from([1e-3, 0.5, 2.0, 1e3]),
    shift_s=st.sampled_from([-50.0, 7.5, 1e5]),
    period_s=st.sampled_from([0.9, 1.7]),
)
def test_neither_the_scale_of_the_power_nor_the_time_of_day_changes_the_period(seed, factor, shift_s, period_s) -> None:
    rng = np.random.default_rng(seed)
    t_s = 0.1 * np.arange(240)
    watts = 200 + 60 * np.sign(np.sin(2 * np.pi * t_s / period_s)) + rng.normal(0, 1, t_s.size)
    estimate = seen(watts)
    for other in (seen(factor * watts), seen(watts, start_s=shift_s)):
        assert other.verdict is estimate.verdict is Verdict.PERIODIC
        assert other.period_s == pytest.approx(estimate.period_s, rel=1e-3)
    assert estimate.period_s == pytest.approx(period_s, rel=0.02)


@given(arbitrary.samples(most=40), st.integers(0, 2**32))
def test_marks_never_go_back_whatever_is_fed(samples: list[Sample], seed: int) -> None:
    sensor = SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5)
    rng = np.random.default_rng(seed)
    for progress in (
        StepProgress(), SpeedProgress(), PeriodProgress(sensor), BestProgress(StepProgress(), SpeedProgress(), 5.0),
    ):  # fmt: skip
        count, t_s, done = 0.0, -1.0, 0
        for sample in samples:
            done += int(rng.integers(3))
            steps = StepReading(count=done, t_s=sample.t_s) if done else None
            fed = Sample(t_s=sample.t_s, readings=sample.readings, node=sample.node, steps=steps)
            for mark in progress.marks(fed):
                assert mark.iterations >= count
                assert mark.t_s >= t_s
                count, t_s = mark.iterations, mark.t_s
