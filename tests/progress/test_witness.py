"""Calls beside a period in the power: whether they go with it.

The CPU time of a job's processes, as a witness of a period in its power.
"""

import os
import time

import numpy as np
import pytest

from autocap.clock import VirtualClock
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.job.processes import ProcessId, own_identity, spent_ns
from autocap.progress import Mark
from autocap.progress.calls.counter import CallCounter
from autocap.progress.counter import IterationCounter
from autocap.progress.period.counted import Load
from autocap.progress.period.estimate import Floats
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.witness import CallWitness, HostTime
from autocap.records import Reading, Sample, SensorInfo, StepReading
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from tests.doubles.called import CalledJob, CalledProcess, CalledThread, await_dropped_calls, iteration_counter


def witnessed(calls_a_cycle: float, cycles: int, *, pause_s: float = 0.0) -> str | None:
    """What is said of cycles of 0.5 s, after so many; a pause is in the middle of them, with calls in it."""
    witness, call_s = CallWitness("pass"), 0.5 / calls_a_cycle
    paused_s = 0.25 * cycles
    ends_s = [0.5 * n + (pause_s if n > cycles // 2 else 0.0) for n in range(cycles + 1)]
    called_s = np.arange(-1.0, ends_s[-1] + 2.0, call_s)
    for count, t_s in enumerate(called_s, start=1):
        witness.called(StepReading(count=count, t_s=float(t_s), of_calls=True))
    for n, end_s in enumerate(ends_s):
        if n == cycles // 2 + 1:  # the count stands still in it
            witness.marked((Mark(t_s=paused_s + pause_s, iterations=cycles // 2),))
        witness.marked((Mark(t_s=end_s, iterations=float(n)),))
    return witness.remark


@pytest.mark.parametrize("pause_s", [0.0, 30.0])
@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (1.0, "the period in the power is an iteration: one pass goes with each"),
        (4.0, "the period in the power holds 4 times a pass: it is as many iterations, or one"),
        (0.5, "the period in the power is a part of an iteration: a pass takes 2 of them"),
        (
            1.4,
            "the period in the power does not go with the iterations: 1.40 times a pass in each; pass --progress calls",
        ),
        (30.0, "30 times a pass goes with each period in the power, too many or too few to tell more"),
    ],
)
def test_what_goes_with_a_period_is_told(calls: float, said: str, pause_s: float) -> None:
    assert witnessed(calls, 40, pause_s=pause_s) == said


def test_nothing_is_said_of_too_little() -> None:
    assert witnessed(1.0, 11) is None
    assert witnessed(0.25, 30) is None
    witness = CallWitness("pass")
    witness.called(None)
    witness.marked([Mark(t_s=float(n), iterations=float(n)) for n in range(40)])
    assert witness.remark is None


@pytest.mark.parametrize("ours", [False, True])
def test_attach_by_period_has_calls_counted_until_they_have_told(ours: bool) -> None:
    """And `run` has not: who asks for the period there wants nothing put into the job."""
    clock, profile = VirtualClock(), profiles.load("tesla-v100/resnet50")
    device = SimulatedDevice(clock, SimulatedJob(profile=profile), SimulatedNode(sensor=PRESETS["a100"]))
    thread = CalledThread()
    job = CalledJob({1: CalledProcess({1: thread})})
    with IterationCounter(
        "period",
        ours=ours,
        new_calls=lambda target: CallCounter(target, job, clock.now, lambda seconds: None),
        now=clock.now,
    ) as source:
        source.follow(ProcessId(1, 1))
        progress, marked = source.progress(PRESETS["a100"].info()), 0
        while clock.now() < 25.0:
            clock.wait_until(clock.now() + 0.05)
            done = device.steps(clock.now())
            if done is not None and done.count > thread.count:
                thread.call(done.t_s, done.count - thread.count)
            steps = source.read(0.0)
            assert steps is None  # the period alone drives
            marked += len(progress.marks(Sample(t_s=clock.now(), readings=device.read(), steps=steps)))
        assert marked > 12
        assert progress.kind == "period"
        assert source.fault is None
        said = "the period in the power is an iteration: one backward pass of PyTorch goes with each"
        assert source.remarks == (() if ours else (said,))
        await_dropped_calls()
        assert not job.watched
        assert job.is_closed != ours


def test_where_no_calls_can_be_counted_the_period_does_without_a_witness() -> None:
    job = CalledJob({1: CalledProcess({1: CalledThread()}, has_library=False)}, refusal="not allowed")
    with iteration_counter("period", job) as source:
        source.follow(ProcessId(1, 1))
        assert source.read(0.0) is None
        assert (source.fault, source.remarks) == (None, ())


def test_the_clock_of_a_process_counts_all_of_its_threads_and_takes_no_rights() -> None:
    before_ns = time.process_time_ns()
    seen_ns = spent_ns(os.getpid())
    assert before_ns <= seen_ns <= time.process_time_ns()
    assert spent_ns(1) >= 0  # another user's, where we are not root


def test_a_process_that_is_not_there_is_an_oserror() -> None:
    with pytest.raises(OSError, match=r"."):
        spent_ns(2**22 + 1)  # beyond the highest number that Linux gives


def looked(*cpu_s: float, job: bool = True) -> Load | None:
    """A job that has used so many seconds by each look, a tenth of a second apart; none where that is negative: it has
    ended."""
    left = list(cpu_s)

    def cpu_ns(pid: int) -> int:
        spent_s = left.pop(0)
        if spent_s < 0:
            raise ProcessLookupError
        return round(spent_s * 1e9)

    host = HostTime(cpu_ns)
    host.follow(own_identity() if job else None)
    for number in range(len(cpu_s)):
        host.read(0.1 * number)
    return host.load(np.array([0.0, 0.1 * len(cpu_s)]))


@pytest.fixture(autouse=True)
def _this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocap.progress.witness.tree", lambda job: (own_identity(),))


def test_what_lies_between_two_looks_is_an_average_in_cpus_and_a_number_given_again_takes_nothing_back() -> None:
    load = looked(5.0, 5.05, 5.25, 5.25)
    assert load.cpus == pytest.approx([0.5, 2.0, 0.0])
    assert load.t_s == pytest.approx([0.1, 0.2, 0.3])
    assert load.most == os.cpu_count()
    assert looked(5.0, 5.1, 0.0, 0.05).cpus == pytest.approx([1.0, 0.0, 0.5])  # another process has it by now


def test_where_nothing_is_to_be_seen_there_is_no_witness() -> None:
    assert looked(5.0, 5.1) is None  # too few looks
    assert looked(5.0, 5.1, -1.0) is None  # it has ended
    assert looked(5.0, 5.1, 5.2, job=False) is None  # on another machine


class Blocking:
    """The CPU time of a job that launches each iteration for a third of it, and then waits for the GPU."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s

    def load(self, t_s: Floats) -> Load | None:
        looks_s = np.arange(t_s[0], t_s[-1], 0.02)
        done, part = np.divmod(looks_s / self._period_s, 1.0)
        spent_s = self._period_s * (done / 3 + np.minimum(part, 1 / 3))
        return Load(looks_s[1:], np.diff(spent_s) / np.diff(looks_s), 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [False, True])
def test_what_the_host_shares_is_followed_without_a_trial_where_nothing_is_known_of_the_sensor(blocks: bool) -> None:
    sensor = SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.1, window_known=False)
    progress = PeriodProgress(sensor, Blocking(1.1) if blocks else None)
    marks: list[Mark] = []
    for t_s in np.arange(0.0, 40.0, 0.1003).tolist():
        in_cycle = t_s / 1.1 % 1.0
        power_w = 90.0 if in_cycle < 0.3 else 250.0
        reading = Reading(t_s=t_s, power_w=power_w, requested_w=300.0)
        marks += progress.marks(Sample(t_s=t_s, readings=(reading,)))
    assert (len(marks) > 25) is blocks
    assert (progress.unproven_s is None) is blocks


def test_the_counter_of_a_run_looks_at_the_jobs_cpu_time_for_its_period() -> None:
    with IterationCounter("period") as counting:
        counting.follow(own_identity())
        for _ in range(4):
            assert counting.read(0.0) is None
        host = vars(counting.progress(SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.1)))["_host"]
        assert host.load(np.array([0.0, np.inf])) is not None
