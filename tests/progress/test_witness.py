"""Calls beside a period in the power: whether they go with it."""

import numpy as np
import pytest

from autocap.clock import VirtualClock
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.job.processes import ProcessId
from autocap.progress import Mark
from autocap.progress.calls.counter import CallCounter
from autocap.progress.counter import IterationCounter
from autocap.progress.witness import CallWitness
from autocap.records import Sample, StepReading
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
