"""What reading the devices costs a job is found out once, in whole jobs of the product's own tuning in virtual time."""

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.model import profiles
from autocap.job.processes import ProcessId, own_identity
from autocap.limits import Guardian
from autocap.limits.heartbeat import Pulse
from autocap.limits.times import BEAT_S
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import GpuInfo, Reading, Sample, StepReading
from autocap.reports.live.terminal import Reporter
from autocap.runlog.directory import RunDirectory
from autocap.session import polling
from autocap.session.polling import PollingComparison
from autocap.session.recorder import Recorder
from autocap.session.roles import NoInbox
from autocap.session.tuning import SearchPlan, Tuning
from autocap.strategies import registry
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import Episode, SimulatedJob
from autocap.testing.simulated.node import LimitChange, SimulatedNode
from bench.faults.virtual import Unwatched
from tests.doubles.tuned_job import CountedBy

JOB = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), jitter=0.01)
CAPS_W = (120.0, 150.0, 180.0, 210.0)
LONG_S, BLIND_S = 1400.0, 10.0
COST = 1 - 1 / 1.01


class StalledClock:
    """The time of a job that stands still for a moment at each reading, for a share of the time since the last one, up
    to a second. clock: of all others."""

    def __init__(self, clock: VirtualClock, share: float) -> None:
        self._clock, self._share = clock, share
        self._read_s = -1.0
        self._stalls_s: list[float] = []  # when, by the job's time,
        self._until_s: list[float] = [0.0]  # and for how long in all by then

    def now(self) -> float:
        return max([*self._stalls_s[-1:], self._clock.now() - self._until_s[-1]])

    def wait_until(self, t_s: float) -> int | None:
        return self._clock.wait_until(self._clock.now() + t_s - self.now())

    def stall(self) -> None:
        lasts_s = self._share * min(1.0, self._clock.now() - self._read_s)
        self._read_s = self._clock.now()
        self._stalls_s.append(self.now())
        self._until_s.append(self._until_s[-1] + lasts_s)

    def of_all(self, t_s: float) -> float:
        """A time of the job's as others have it."""
        return t_s + self._until_s[bisect_left(self._stalls_s, t_s)]


class Card(SimulatedDevice):
    """Whose readings hold its job up."""

    def __init__(self, clock: StalledClock, job: SimulatedJob, node: SimulatedNode) -> None:
        self.stalled = clock
        super().__init__(clock, job, node, seed=3)

    def read(self) -> tuple[Reading, ...]:
        found = super().read()
        self.stalled.stall()
        return tuple(replace(one, t_s=self.stalled.of_all(one.t_s)) for one in found)

    def counted(self) -> StepReading | None:
        found = self.steps(self.stalled.now())
        return None if found is None else replace(found, t_s=self.stalled.of_all(found.t_s))


@dataclass
class Ran:
    """What happened in a job. sampled_s, beats_s: when. limits_w: in the end."""

    warned: list[tuple[float, str]]
    decided: list[events.Decided]
    sampled_s: Sequence[float]
    beats_s: Sequence[float]
    limits_w: Sequence[float | None]
    tally: events.Tally

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.sampled_s)]

    @property
    def stints(self) -> int:
        """In which the devices were left alone."""
        return sum(gap_s > 5.0 for gap_s in self.gaps_s)


class Watched(Recorder):
    """Keeps samples in memory."""

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__(directory, Reporter())
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


@dataclass
class Process:
    """The job as a process, until it ends."""

    clock: VirtualClock
    end_s: float
    pid: int = field(default_factory=os.getpid)
    identity: ProcessId | None = field(default_factory=own_identity)

    def poll(self) -> int | None:
        return 0 if self.clock.now() >= self.end_s else None


def ran(
    folder: Path,
    share: float,
    *,
    job: SimulatedJob = JOB,
    node: SimulatedNode | None = None,
    kind: str = "steps",
    observe: bool = False,
    sample_hz: float | None = None,
    end_s: float = LONG_S,
) -> Ran:
    """A job that is slower by a share of its speed, about, while it is polled."""
    clock, made = VirtualClock(), registry.find("linear")
    device = Card(StalledClock(clock, share), job, node or SimulatedNode())
    beats_s: list[float] = []

    class Watchdog(Unwatched):
        def beat(self) -> Pulse:
            beats_s.append(clock.now())
            return super().beat()

    with RunDirectory.create(folder / "run", False, datetime.now(UTC), samples=False) as directory:
        recorder = Watched(directory)
        tuning = Tuning(
            config=RunConfig(
                command=("train",),
                tune=TuneConfig(
                    metric=Metric(name="energy"), caps_w=CAPS_W, target_stderr=0.05, trial_s=10.0, observe=observe
                ),
                sample_hz=sample_hz,
            ),
            clock=clock,
            job=Process(clock, end_s),
            inbox=NoInbox(),
            recorder=recorder,
            plan=SearchPlan(factory=made, options=registry.option_values(made, ())),
            counting=CountedBy(device.counted, lambda sensor: StepProgress(kind), kind),
            new_guardian=partial(Guardian, state_dir=folder / "state", sync=lambda fd: None, start_watch=Watchdog),
        )
        tuning.tune(device)
    return Ran(
        warned=[(one.t_s, one.text) for one in recorder.events if isinstance(one, events.Warned)],
        decided=[one for one in recorder.events if isinstance(one, events.Decided)],
        sampled_s=[one.t_s for one in recorder.samples],
        beats_s=beats_s,
        limits_w=[one.requested_w for one in device.read()],
        tally=[one for one in recorder.events if isinstance(one, events.Tally)][-1],
    )


def stated(text: str) -> tuple[float, float, float]:
    """How often the devices are read, what that costs and its error, as shares of the job's speed."""
    found = re.match(r"reading the devices ([\d.]+) times a second costs the job ([\d.]+) ± ([\d.]+) % of its", text)
    assert found is not None, text
    rate_hz, cost, error = map(float, found.groups())
    return rate_hz, cost / 100, error / 100


@pytest.mark.slow
def test_a_job_that_is_slower_while_it_is_polled_has_that_said_once(tmp_path: Path) -> None:
    there = ran(tmp_path, 0.01)
    ((said_s, text),) = there.warned
    rate_hz, cost, error = stated(text)
    assert (rate_hz, cost) == (1.25, pytest.approx(COST, abs=2 * error))
    assert error < 0.002
    assert text.endswith("; pass --sample-hz 1 to have them read less often, which makes searches longer")
    assert there.stints == 24
    assert max(there.gaps_s) < BLIND_S
    assert max(gap_s for t_s, gap_s in zip(there.sampled_s, there.gaps_s, strict=False) if t_s > said_s) < 1.0
    assert max(after_s - before_s for before_s, after_s in pairwise(there.beats_s)) <= BEAT_S + 1e-6
    assert there.limits_w == [JOB.profile.cap_range.default_w]


@pytest.mark.slow
def test_nothing_is_said_of_a_job_that_is_not_and_nothing_else_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ran(tmp_path / "compared", 0.0)
    monkeypatch.setattr(polling, "_TURNS", 0)
    plain = ran(tmp_path / "not", 0.0)
    assert (there.stints, plain.stints) == (24, 0)
    assert there.warned == plain.warned == []
    assert [(one.t_s, one.setting) for one in there.decided] == [(one.t_s, one.setting) for one in plain.decided]
    tally, other = there.tally, plain.tally
    assert tally.iterations == pytest.approx(other.iterations, abs=3)
    assert tally.energy_j / tally.elapsed_s == pytest.approx(other.energy_j / other.elapsed_s, rel=1e-3)
    assert tally.counted_j / tally.iterations == pytest.approx(other.counted_j / other.iterations, rel=1e-4)
    assert (tally.paused_s, tally.paused_iterations) == (other.paused_s, other.paused_iterations)


@pytest.mark.slow
def test_checkpoints_hide_nothing_and_are_not_taken_for_a_cost(tmp_path: Path) -> None:
    often = replace(JOB, episodes=(Episode(every=301, duration_s=4.0),))
    ((_, text),) = ran(tmp_path / "slowed", 0.01, job=often).warned
    _, cost, error = stated(text)
    assert cost == pytest.approx(COST, abs=2 * error)
    assert ran(tmp_path / "not", 0.0, job=often).warned == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        {"kind": "regex"},
        {"node": SimulatedNode(energy_counter=False), "end_s": 700.0},
        {"observe": True},
        {"end_s": 330.0},
    ],
    ids=["lines that are late", "no energy counter", "observed", "short"],
)
def test_where_it_could_not_be_told_or_would_leave_something_out_the_devices_are_always_read(
    tmp_path: Path, other: dict[str, object]
) -> None:
    there = ran(tmp_path, 0.01, **other)  # type: ignore[arg-type]  # as they are named
    assert (there.stints, there.warned) == (0, [])


@pytest.mark.slow
def test_another_limit_that_is_set_meanwhile_is_seen_soon(tmp_path: Path) -> None:
    there = ran(tmp_path / "before", 0.0)
    from_s = next(t_s for t_s, gap_s in zip(there.sampled_s, there.gaps_s, strict=False) if gap_s > 5.0)
    node = SimulatedNode(changes=(LimitChange(t_s=from_s + 2.0, cap_w=205.0),))
    changed = ran(tmp_path / "changed", 0.0, node=node, end_s=from_s + 60.0)
    said_s, text = changed.warned[0]
    assert "the limit of GPU 0 is 205 W" in text
    assert said_s - (from_s + 2.0) < BLIND_S
    assert changed.limits_w == [205.0]


@dataclass
class Stand:
    """A sampler by itself, of a job of 0.25 s an iteration that a reading holds up."""

    share: float
    hz: float = 1.25
    suspended: bool = False
    is_steady: Callable[[float], bool] = lambda t_s: True
    gpus: tuple[GpuInfo, ...] = ()
    clock: VirtualClock = field(default_factory=VirtualClock)
    read_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    count: int = 0
    ended_s: float = 0.0

    def run(self, for_s: float) -> None:
        comparison = PollingComparison(
            self,
            clock=self.clock,
            steps=self.steps,
            is_steady=lambda: self.is_steady(self.clock.now()),
            pace=lambda: 1 / self.hz,
        )
        while self.clock.now() < for_s:
            self.clock.wait_until(self.clock.now() + 1 / self.hz)
            list(comparison.samples())
            self.said += comparison.notes()

    def steps(self) -> StepReading:
        while True:
            polled = bool(self.read_s) and self.ended_s - self.read_s[-1] < 1.5 / self.hz
            ends_s = self.ended_s + 0.25 * (1 + self.share * polled)
            if ends_s > self.clock.now():
                return StepReading(count=self.count, t_s=self.ended_s, suspended=self.suspended)
            self.count, self.ended_s = self.count + 1, ends_s

    def samples(self) -> tuple[Sample, ...]:
        self.steps()
        self.read_s.append(self.clock.now())
        return ()

    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def stints(self) -> int:
        return sum(after_s - before_s > 5.0 for before_s, after_s in pairwise(self.read_s))


@pytest.mark.parametrize(
    ("hz", "remedy"),
    [(20.0, "leave out --sample-hz, or pass a lower rate"), (1.0, "they cannot be read less often")],
)
def test_what_is_said_is_what_helps_at_that_rate(hz: float, remedy: str) -> None:
    stand = Stand(share=0.01, hz=hz)
    stand.run(1200.0)
    (text,) = stand.said
    assert text.endswith(f"by how it ran while they were left alone; {remedy}")
    assert stated(text) == (hz, pytest.approx(COST, abs=2e-4), 1e-4)


def test_a_cost_of_less_than_a_thousandth_is_not_worth_a_word() -> None:
    stand = Stand(share=0.0009)
    stand.run(1200.0)
    assert (stand.stints, stand.said) == (24, [])


def test_where_calls_are_not_counted_for_now_devices_are_read() -> None:
    stand = Stand(share=0.01, suspended=True)
    stand.run(1200.0)
    assert (stand.stints, stand.said) == (0, [])


def test_what_interrupts_costs_its_turn_alone_and_nothing_is_said_of_too_few() -> None:
    seldom = Stand(share=0.01, is_steady=lambda t_s: t_s % 60.0 > 8.0)
    seldom.run(1800.0)
    assert len(seldom.said) == 1
    often = Stand(share=0.01, is_steady=lambda t_s: t_s % 20.0 > 8.0)
    often.run(1800.0)
    assert often.said == []
    assert often.stints <= 24
