"""The loop: when it beats and reads, and when it gives up; on a machine with too few cores what a sample says is what
held at its time, however late it comes; and nothing of ours that comes before a job keeps it from its start."""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.controller.context import Action, SetCaps
from autocap.devices.model import profiles
from autocap.errors import DeviceError
from autocap.events import Event
from autocap.job.signals import SignalClock
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo, Reading, Sample
from autocap.session import modes
from autocap.session.backend import Backend
from autocap.session.roles import Decider, NoInbox, Order
from autocap.session.runner import Runner
from autocap.session.sampling import LocalSampler
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import Spell
from bench.simulation.clock import Starvation
from bench.simulation.jobs import tune
from tests.doubles.recorded import Kept

GPU = GpuInfo(index=0, uuid="GPU-1", name="none", cap_range=CapRange(min_w=100.0, max_w=300.0, default_w=250.0))
INTERVAL_S = 0.1


class Stall(VirtualClock):
    """Others have the CPU now and then: each time that the loop waits to such a moment it comes back so much later."""

    def __init__(self, late_s: Callable[[float], float]) -> None:
        super().__init__()
        self._late_s = late_s

    def wait_until(self, t_s: float) -> int | None:
        before_s = self.now()
        super().wait_until(t_s)
        super().wait_until(t_s + (self._late_s(self.now()) if t_s > before_s else 0.0))
        return None


@dataclass
class Loop(Decider):
    """Everything around a runner. put_back_at_s: when the watchdog has put the limits back. taking_s: of a reading.
    changed_at_s: when somebody else sets a limit."""

    clock: VirtualClock
    put_back_at_s: list[float] = field(default_factory=list)
    end_s: float = 100.0
    taking_s: float = 0.0
    pace: Callable[[], float] = lambda: INTERVAL_S
    changed_at_s: float = float("inf")
    setters: Callable[[], list[tuple[str, int]]] = lambda: []
    log: list[Event] = field(default_factory=list)
    story: list[tuple[str, float]] = field(default_factory=list)
    settings: tuple[float, ...] = (200.0,)
    ended_because: str | None = None
    gpus: tuple[GpuInfo, ...] = (GPU,)

    def run(self, inbox: NoInbox | None = None) -> Runner:
        runner = Runner(
            clock=self.clock, sampler=LocalSampler(clock=self.clock, device=self, steps=lambda: None),
            controller=self, job=self, sink=self, pace=self.pace, setter=self, inbox=inbox,
            setters=lambda: self.setters(),
        )  # fmt: skip
        assert runner.run() == 0
        return runner

    def note(self, what: str) -> None:
        self.story.append((what, self.clock.now()))

    def gaps_s(self, what: str) -> list[float]:
        return [later_s - former_s for former_s, later_s in pairwise(self.times(what))]

    def times(self, what: str) -> list[float]:
        return [t_s for one, t_s in self.story if one == what]

    # The job, the device, the sink.

    def poll(self) -> int | None:
        return 0 if self.clock.now() >= self.end_s else None

    def read(self) -> tuple[Reading, ...]:
        self.note("read")
        self.clock.wait_until(self.clock.now() + self.taking_s)
        requested_w = self.settings[0] - (10.0 if self.clock.now() >= self.changed_at_s else 0.0)
        return (Reading(t_s=self.clock.now(), power_w=150.0, requested_w=requested_w),)

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self, t_s: float = 0.0) -> list[Action]:
        return []

    def event(self, event: Event) -> None:
        self.log.append(event)

    def sample(self, sample: Sample) -> None:
        """Not kept."""

    def reason(self, error: Exception) -> str:
        raise error

    # The controller and the guardian.

    def feed(self, sample: Sample) -> list[Action]:
        return []

    def interrupted(self, t_s: float) -> list[Action]:
        return [SetCaps(settings=self.settings)]

    def stop(self, t_s: float, why: str) -> list[Action]:
        self.note("stop")
        return []

    def set_caps(self, settings: Sequence[float]) -> None:
        self.note("set")

    def restore(self) -> None:
        self.note("restore")

    def beat(self) -> bool:
        self.note("beat")
        due = bool(self.put_back_at_s) and self.clock.now() >= self.put_back_at_s[0]
        if due:
            self.put_back_at_s.pop(0)
        return due

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.log if isinstance(event, events.Warned)]


def test_after_each_late_wake_the_first_thing_is_a_beat_and_one_reading_follows_not_many():
    loop = Loop(Stall(lambda now_s: 5.0 if int(now_s) % 3 == 2 else 0.0))
    loop.run()
    assert max(loop.gaps_s("beat")) > 5.0
    for (_, before_s), (what, t_s) in pairwise(loop.story):
        if t_s - before_s > 1.0:
            assert what == "beat"
    assert min(loop.gaps_s("read")) > 0.5 * INTERVAL_S


def test_readings_that_take_longer_than_their_interval_do_not_come_in_bursts():
    loop = Loop(VirtualClock(), taking_s=0.35)
    loop.run()
    assert min(loop.gaps_s("read")) == pytest.approx(0.35 + INTERVAL_S)
    assert max(loop.gaps_s("beat")) < 1.0


def test_samples_come_as_soon_as_they_are_asked_for_and_beats_as_often_as_ever():
    loop = Loop(VirtualClock())
    loop.pace = lambda: 0.05 if loop.clock.now() < 30.0 else 0.8 if loop.clock.now() < 70.0 else 0.25
    loop.run()
    reads_s = np.array(loop.times("read"))
    for begin_s, end_s, interval_s in ((0.0, 30.0, 0.05), (31.0, 70.0, 0.8), (71.0, 100.0, 0.25)):
        assert np.diff(reads_s[(reads_s >= begin_s) & (reads_s < end_s)]) == pytest.approx(interval_s)
    assert min(loop.gaps_s("beat")) + 1e-9 >= 0.35
    assert max(loop.gaps_s("beat")) <= 0.4 + 1e-9
    held = [what for what, t_s in loop.story if 31.0 < t_s < 69.0]
    assert held.count("beat") == pytest.approx(2 * held.count("read"), abs=2)  # no wake-up of its own


def test_a_limit_that_somebody_else_has_changed_is_noticed_soon_however_seldom_samples_come():
    loop = Loop(VirtualClock(), pace=lambda: 0.8, changed_at_s=50.1)
    assert "somebody else has changed it" in loop.run().ended_because
    assert 0.1 <= loop.times("stop")[0] - 50.1 <= 0.9 + 1e-9


def test_whoever_may_have_set_it_is_named_once_where_it_is_seen():
    loop = Loop(VirtualClock(), changed_at_s=50.1)
    loop.setters = lambda: [("DCGM (nv-hostengine)", 77), ("nvidia-smi", 78)]
    loop.run()
    assert [one for one in loop.warnings if "PID" in one] == [
        "DCGM (nv-hostengine) (PID 77) and nvidia-smi (PID 78) run here, and may have set it; "
        "have only one of them set limits"
    ]


def test_nobody_is_named_for_what_is_nobodys_doing():
    loop = Loop(VirtualClock(), end_s=60.0)
    loop.setters = lambda: [("DCGM (nv-hostengine)", 77)]
    loop.run()
    assert not any("PID" in one for one in loop.warnings)


@pytest.mark.slow
def test_a_few_interruptions_are_got_over():
    loop = Loop(VirtualClock(), put_back_at_s=[70.0 * n for n in range(1, 30)], end_s=2500.0)
    assert loop.run().ended_because == "the job ended"
    assert len(loop.times("set")) == 29
    assert loop.times("restore") == []


def test_a_driver_that_takes_seconds_to_answer_is_not_said_to_be_a_stop():
    loop = Loop(VirtualClock(), put_back_at_s=[12.0 * n for n in range(1, 100)], end_s=2000.0, taking_s=6.0)
    assert loop.run().ended_because == (
        "calls to the device took seconds 10 times within 600 s, so no trial can be measured; update the driver"
    )
    assert loop.warnings[0] == "a call to the device took 6.0 s; the limits were put back meanwhile"


@pytest.mark.slow
def test_a_controller_that_is_interrupted_again_and_again_ends_the_tuning_instead_of_beginning_for_ever_anew():
    loop = Loop(VirtualClock(), put_back_at_s=[12.0 * n for n in range(1, 100)], end_s=2000.0)
    assert loop.run().ended_because == (
        "autocap was stopped or got no CPU 10 times within 600 s, so no trial can be measured; run it where it has a "
        "CPU now and then"
    )
    assert len(loop.times("set")) == 9
    assert loop.times("restore")[0] == pytest.approx(120.0, abs=0.5)
    assert sum("tuning ended, the job goes on: autocap was stopped" in text for text in loop.warnings) == 1
    assert loop.times("read")[-1] > 1990.0  # the job is measured to its end


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_device_that_goes_with_the_job_is_no_news_once_a_signal_asked_for_the_end(is_asked: bool) -> None:
    class Gone(Loop):
        def read(self) -> tuple[Reading, ...]:
            if self.clock.now() > 20.0:
                raise DeviceError("node1: a signal has ended its agent")
            return super().read()

    class Asked(NoInbox):
        def due(self, now_s: float) -> Order:
            return Order.STOP_TUNING if is_asked and now_s > 10.0 else Order.NOTHING

    loop = Gone(VirtualClock(), end_s=30.0)
    runner = loop.run(Asked())
    said = [] if is_asked else ["tuning ended, the job goes on: node1: a signal has ended its agent"]
    assert loop.warnings == said
    assert loop.times("restore")
    assert (runner.ended_because == events.ASKED) == is_asked


def test_whoever_can_have_no_other_caps_ends_where_the_device_makes_another_limit_of_ours() -> None:
    loop = Loop(VirtualClock(), changed_at_s=0.5, end_s=5.0)
    loop.run()
    (warning,) = [event.text for event in loop.log if isinstance(event, events.Warned)]
    assert warning == (
        "tuning ended, the job goes on: GPU 0 takes limits in steps: it made 190 W of 200 W, as steps of 25 W would; "
        "pass only caps that it takes as they are"
    )
    assert "restore" in [what for what, _ in loop.story]


def test_a_driver_that_does_not_answer_keeps_no_job_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    place = Backend()
    monkeypatch.setattr(place, "source", lambda *_: answers.wait(10.0))
    monkeypatch.setattr(modes, "_OPENED_WITHIN_S", 0.1)
    config = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")))
    with ExitStack() as stack, SignalClock() as clock:
        found, why = modes._source_or_why(config, clock, modes._plan(config), modes.JobOrigin.RUN, place, stack)
    answers.set()
    assert (found, why) == (None, "no device to tune: the driver has not answered for 0.1 s")


JOB = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), iterations=400)
OBSERVE = TuneConfig(metric=Metric(name="energy"), observe=True)
ALWAYS = (Spell(start_s=0.0, end_s=math.inf),)


def seen(starvation: Starvation) -> tuple[list[Sample], SimulatedDevice]:
    log = Kept()
    outcome = tune(JOB, OBSERVE, "golden", log=log, starvation=starvation)
    return log.samples, outcome.device


@pytest.mark.slow
def test_no_step_has_ended_after_its_sample() -> None:
    samples, _ = seen(Starvation(spells=ALWAYS, gap_s=0.5, spread=1.0, held_up=0.3))
    assert len(samples) > 100
    for sample in samples:
        assert sample.steps is None or sample.steps.t_s <= sample.t_s


@pytest.mark.slow
def test_a_reading_in_whose_middle_we_were_held_up_is_taken_again() -> None:
    samples, device = seen(Starvation(spells=ALWAYS, gap_s=1.0, spread=0.3, held_up=0.3))
    counted_j = np.array([sample.readings[0].energy_j for sample in samples], dtype=float)
    truth_j = np.array([device.true_energy_j(samples[0].t_s, sample.t_s)[0] for sample in samples])
    behind_j = truth_j - (counted_j - counted_j[0]) * truth_j[-1] / (counted_j[-1] - counted_j[0])
    assert np.mean(np.abs(behind_j) > 60.0) < 0.1  # J, a quarter of a second; three in ten without a second look


@pytest.mark.slow
def test_samples_come_late_several_at_once_and_as_usual_afterwards() -> None:
    spell = Spell(start_s=20.0, end_s=120.0)
    samples, _ = seen(Starvation(spells=(spell,), gap_s=0.8, spread=1.2, bursts=0.3))
    t_s = np.array([sample.t_s for sample in samples])
    starved_s = np.diff(t_s[(t_s > 20.0) & (t_s < 120.0)])
    assert starved_s.max() <= 5.0 + 1e-9
    assert np.mean(starved_s < 0.021) > 0.2
    assert np.mean(starved_s > 1.0) > 0.2
    usual_s = np.diff(t_s[t_s < 20.0])  # while a cap is searched for, and while it is held
    assert np.all(np.isclose(usual_s, 0.05) | np.isclose(usual_s, 0.8))
