"""A job that counts its steps as it likes misleads its own tuning at most: the controller goes on, within bounds.

Calls that are counted only now and then while a cap is held, as the whole controller meets them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from autocap import events
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.controller.context import SetCaps
from autocap.controller.controller import Controller
from autocap.devices.model import profiles
from autocap.events import State
from autocap.job.processes import ProcessId
from autocap.measurement.drift import DriftWatch
from autocap.measurement.metering import PauseWatch
from autocap.metrics import Metric
from autocap.progress import Mark, StepProgress
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.target import TORCH_BACKWARD
from autocap.records import Reading, Sample, SensorInfo, StepReading
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from bench.simulation.jobs import new_strategy, tune
from tests.doubles.called import CalledJob, CalledProcess, CalledThread
from tests.doubles.feeds import Meter, measurement
from tests.doubles.logs import announced, states, warnings

MOST_PER_S = 10**7  # what is ever read out of a step map
METRIC = Metric(name="eds", k=2.0)
GRID = CapGrid(tuple(float(watts) for watts in range(100, 261, 20)))


def controller() -> Controller:
    return Controller(
        config=TuneConfig(metric=METRIC),
        sensor=SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5),
        original_w=(260.0,),
        grid=GRID,
        progress=StepProgress(),
        new_strategy=new_strategy(registry.find("golden"), GRID),
    )


def counts(rises: list[int], seed: int) -> Iterator[Sample]:
    """A job whose count rises by one of these at every sample, at times that lag behind by up to five seconds."""
    random = Random(seed)
    count, step_s = 0, -1e6
    for number in range(600):
        t_s = 0.05 * number
        ended_s = max(step_s + 1e-6, t_s - random.choice((0.0, 0.05 * random.random(), 5 * random.random())))
        rise = min(random.choice(rises), int((ended_s - step_s) * MOST_PER_S))
        if rise and ended_s <= t_s:
            count, step_s = count + rise, ended_s
        steps = StepReading(count=count, t_s=step_s) if count else None
        yield Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=random.gauss(200, 5)),), steps=steps)


@pytest.mark.parametrize(
    "rises", [[0, 1, 1, 2, 500_000], [1, 1, 1, 1, 1, 1, 10**12], [500_000], [1, 400_000], [0] * 50 + [10**12]]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_a_map_can_be_read_as_the_controller_goes_on(rises: list[int], seed: int) -> None:
    one = controller()
    for sample in counts(rises, seed):
        for action in one.feed(sample):
            assert not isinstance(action, SetCaps) or all(100.0 <= cap_w <= 260.0 for cap_w in action.settings)


RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
_SHARE = 0.004  # of the job's time, that counting each call takes


@dataclass
class SparingCounter:
    """The real counter, of a job whose only thread makes a call an iteration. suspended: of all readings in a hold."""

    suspended: list[bool] = field(default_factory=list)

    def __call__(
        self, device: SimulatedDevice, clock: Clock, controller: Controller
    ) -> Callable[[], StepReading | None]:
        thread = CalledThread()
        job = CalledJob({1: CalledProcess({1: thread})}, cost_s=_SHARE * RESNET50.time_s(260.0))
        counter = CallCounter(TORCH_BACKWARD, job, clock.now, lambda seconds: None)
        counter.watch(ProcessId(1, 1))

        def read() -> StepReading | None:
            done = device.steps(clock.now())
            if done is not None and done.count > thread.count:
                thread.call(done.t_s, done.count - thread.count)
            counter.need(needed=controller.needs_count)
            found = counter.read(0.0)
            if controller.state is State.HOLDING and found is not None:
                self.suspended.append(found.suspended)
            return found

        return read


@pytest.mark.slow
def test_a_hold_looks_like_no_pause_and_no_change_and_the_baseline_is_measured_again_in_it() -> None:
    counter = SparingCounter()
    job = SimulatedJob(profile=RESNET50, iterations=3600)
    outcome = tune(job, TuneConfig(metric=EDS), "golden", progress=StepProgress("calls", "call"), counter=counter)
    assert 0.6 < sum(counter.suspended) / len(counter.suspended) < 0.9
    assert State.PAUSED not in states(outcome)
    assert warnings(outcome) == []
    decided = announced(outcome, events.Decided)
    assert len(decided) > 1
    assert len({event.setting for event in decided}) == 1


@pytest.mark.slow
def test_a_changed_workload_is_noticed_all_the_same() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=1400, change=WorkloadChange(at=600, time=1.3))
    counted = {"progress": StepProgress("calls", "call"), "counter": SparingCounter()}
    outcome = tune(job, TuneConfig(metric=EDS), "golden", **counted)
    warned = warnings(outcome)
    assert len(warned) == 1
    assert warned[0].startswith("tuning anew: the workload has changed: +")
    assert states(outcome).count(State.BASELINE) == 2
    assert State.PAUSED not in states(outcome)


def counted(t_s: float, count: int, last_s: float, *, suspended: bool = False) -> Sample:
    steps = StepReading(count=count, t_s=last_s, of_calls=True, suspended=suspended)
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0),), steps=steps)


def test_marks_of_the_same_count_enclose_what_was_not_counted() -> None:
    progress = StepProgress("calls", "call")
    assert progress.marks(counted(1.1, 7, 1.0)) == (Mark(t_s=1.0, iterations=7.0),)
    assert progress.marks(counted(9.0, 7, 1.0, suspended=True)) == ()
    assert progress.marks(counted(20.0, 7, 1.0)) == ()  # no call since it went on
    assert progress.marks(counted(20.6, 7, 20.5)) == (Mark(t_s=20.5, iterations=7.0),)
    assert progress.marks(counted(20.7, 7, 20.5)) == ()
    assert progress.marks(counted(21.1, 8, 21.0)) == (Mark(t_s=21.0, iterations=8.0),)


@pytest.mark.parametrize("suspended", [True, False])
def test_only_what_is_counted_can_be_paused(suspended: bool) -> None:
    watch = PauseWatch()
    for count in range(1, 21):
        watch.add(counted(0.5 * count, count, 0.5 * count), (Mark(t_s=0.5 * count, iterations=count),), "calls", (1.0,))
    for tenths in range(101, 400):
        watch.add(counted(tenths / 10, 20, 10.0, suspended=suspended), (), "calls", (1.0,))
        assert not (suspended and (watch.paused or watch.is_long))
    assert watch.paused != suspended
    watch.add(counted(40.1, 20, 40.0), (Mark(t_s=40.0, iterations=20.0),), "calls", (1.0,))
    assert not watch.paused
    assert not watch.ended


def test_no_change_is_seen_in_what_is_not_counted() -> None:
    watch, meter, t_s = DriftWatch(measurement(energy_j=100.0, period_s=0.5)), Meter(), 0.0
    for count in range(1, 400):
        t_s += 0.5
        if count % 20 == 0:  # and nobody knows how many there were meanwhile
            assert watch.add(meter.of(counted(t_s, count - 1, t_s - 0.5, suspended=True), ())) is None
            t_s += 60.0
            first = Mark(t_s=t_s, iterations=count - 1.0)
            assert watch.add(meter.of(counted(t_s, count - 1, t_s), (first,))) is None
            t_s += 0.5
        assert watch.add(meter.of(counted(t_s, count, t_s), (Mark(t_s=t_s, iterations=float(count)),))) is None
    assert watch.knows


@pytest.mark.parametrize(("period_s", "changed"), [(0.5, False), (0.7, True)])
def test_pauses_that_marks_enclose_are_no_change_and_what_lies_between_them_may_be(period_s, changed) -> None:
    """As a period that is followed tells of validation and checkpoints: afterwards, both ends at once."""
    watch, meter, t_s, count = DriftWatch(measurement(energy_j=100.0, period_s=0.5)), Meter(), 0.0, 0.0
    said, readings_s = set(), np.arange(1, 2000) / 10
    for batch in range(40):
        begun_s, marks = t_s, list[Mark]()
        for place in range(5):
            t_s, count = t_s + period_s, count + 1
            marks.append(Mark(t_s=t_s, iterations=count))
            if batch >= 20 and place == 2:
                t_s += 3.0
                marks.append(Mark(t_s=t_s, iterations=count))
        for read_s in (*readings_s[(readings_s > begun_s) & (readings_s < t_s)], t_s):
            sample = Sample(t_s=read_s, readings=(Reading(t_s=read_s, power_w=100.0 / period_s),))
            said.add(watch.add(meter.of(sample, marks if read_s == t_s else ())) is not None)
    assert watch.knows
    assert (True in said) == changed
