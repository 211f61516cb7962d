"""What one run has shown the next of its job begins from: the product's own tuning, in virtual time."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.model import profiles
from autocap.devices.model.profiles import Profile
from autocap.errors import WarmStartRefused
from autocap.events import CardRecalled, Event, Remembered, RunStarted
from autocap.limits import Guardian
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import Measurement, RelativeCurve, Sample, Trial
from autocap.reports.live.terminal import Reporter
from autocap.reports.wording.events import Wording
from autocap.runlog.directory import RunDirectory
from autocap.runlog.memory.job import Job
from autocap.runlog.memory.store import MemoryStore
from autocap.session.recorder import Recorder
from autocap.session.roles import NoInbox
from autocap.session.tuning import SearchPlan, Tuning
from autocap.session.warm_start import JobMemory, WarmStart, warm_start
from autocap.strategies import registry
from autocap.strategies.base import StrategyLike
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from bench.faults.virtual import Unwatched
from tests.doubles.logs import STARTED
from tests.doubles.memories import NOW
from tests.doubles.tuned_job import CountedBy, EndsOnceHeld

PROFILE = profiles.load("quadro-rtx-6000/resnet50")
ENERGY, EDS = Metric(name="energy"), Metric(name="eds", k=2.0)
CAPS_W = (120.0, 150.0, 180.0, 210.0)


class Unsampled(Recorder):
    """Records events alone."""

    def sample(self, sample: Sample) -> None:
        return


@dataclass
class Ran:
    """What a run announced, and the histories and curves of others that its strategy was given."""

    events: list[Event]
    histories: list[Sequence[Trial]]
    elsewhere: list[Sequence[RelativeCurve]]

    @property
    def card(self) -> CardRecalled | None:
        found = next(iter(self.of(CardRecalled)), None)
        assert found is None or isinstance(found, CardRecalled)
        return found

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def remembered(self) -> Remembered | None:
        found = next(iter(self.of(Remembered)), None)
        assert found is None or isinstance(found, Remembered)
        return found

    @property
    def history_w(self) -> list[float]:
        return [trial.setting for trial in self.histories[0]]


@pytest.fixture
def run(tmp_path: Path) -> "Runs":
    return Runs(tmp_path)


@dataclass
class Runs:
    """Runs of one job, each in a directory of its own."""

    folder: Path
    count: int = 0

    @property
    def store(self) -> MemoryStore:
        return MemoryStore(self.folder / "memory")

    def __call__(
        self,
        metric: Metric = ENERGY,
        *,
        days: float = 0.0,
        progress: str = "steps",
        observe: bool = False,
        memory: bool = True,
        named: WarmStart | None = None,
        strategy: str = "linear",
        place: Path | None = None,
        word: str = "train",
        profile: Profile = PROFILE,
        caps_w: tuple[float, ...] = CAPS_W,
    ) -> Ran:
        """days: since the first of them. word: which job it is."""
        self.count += 1
        clock, made, now = VirtualClock(), registry.find(strategy), NOW + timedelta(days=days)
        device = SimulatedDevice(clock, SimulatedJob(profile=profile), seed=self.count)
        histories: list[Sequence[Trial]] = []
        elsewhere: list[Sequence[RelativeCurve]] = []

        def factory(*, baseline: Measurement, history: Sequence[Trial], **known: object) -> StrategyLike:
            histories.append(history)
            elsewhere.append(known.get("elsewhere", ()))  # type: ignore[arg-type]  # as below
            return made(baseline=baseline, history=history, **known)  # type: ignore[arg-type]  # passed on as they are

        factory.ELSEWHERE = getattr(made, "ELSEWHERE", False)  # type: ignore[attr-defined]  # as of a class

        with RunDirectory.create(self.folder / f"run{self.count}", False, now, samples=False) as directory:
            recorder = Unsampled(directory, Reporter())
            recorder.event(started(metric, now))
            store = self.store if place is None else MemoryStore(place)
            guardian = partial(Guardian, state_dir=self.folder / "state", sync=lambda fd: None, start_watch=Unwatched)
            tuning = Tuning(
                config=RunConfig(
                    command=(word,),
                    tune=TuneConfig(metric=metric, caps_w=caps_w, target_stderr=0.05, trial_s=10.0, observe=observe),
                ),
                clock=clock,
                job=EndsOnceHeld(recorder),
                inbox=NoInbox(),
                recorder=recorder,
                plan=SearchPlan(
                    factory=factory,  # type: ignore[arg-type]  # a function in place of a class
                    options=registry.option_values(made, ()),
                    warm_start=named,
                ),
                counting=CountedBy(lambda: device.steps(clock.now()), lambda sensor: StepProgress(progress), progress),
                memory=JobMemory(job=Job.of([word], {}, self.folder), store=store, now=now) if memory else None,
                new_guardian=guardian,
            )

            tuning.tune(device)
            tuning.remember()
        return Ran(recorder.events, histories, elsewhere)


def started(metric: Metric, now: datetime) -> RunStarted:
    info = events.MetricInfo.of(metric)
    return replace(STARTED, command=("train",), started_at=now.isoformat(), metric=info, strategy="linear")


@pytest.mark.slow
def test_the_second_run_begins_from_what_the_first_has_shown(run: Runs) -> None:
    first = run()
    (kept,) = [event.setting for event in first.events if isinstance(event, events.Decided)]
    assert kept is not None
    assert (first.remembered, first.history_w) == (None, [])
    second = run(days=2)
    assert (second.remembered.runs, second.remembered.age_s, second.remembered.setting) == (1, 2 * 86_400, kept)
    tried = {event.trial.setting for event in first.events if isinstance(event, events.TrialEnded)}
    assert second.history_w[0] == 260.0
    assert set(second.history_w[1:]) <= tried
    assert kept in second.history_w
    third = run(EDS, days=3)
    assert (third.remembered.runs, third.remembered.age_s) == (2, 86_400)
    baseline, *others = third.histories[0]
    for trial in others:
        assert trial.cost == pytest.approx(EDS.cost(trial.measurement, baseline.measurement).value)
    (entry,) = run.store.entries()
    assert (entry.runs, entry.command, entry.latest.metric.name) == (3, ("train",), "eds")


@pytest.mark.slow
def test_how_long_the_whole_job_was_is_remembered_where_the_run_saw_it_end(run: Runs) -> None:
    ran = run()
    (entry,) = run.store.entries()
    last = next(event for event in reversed(ran.events) if isinstance(event, events.Tally))
    assert entry.latest.job_iterations == last.iterations > 0
    memory = JobMemory(job=Job.of(["train"], {}, run.folder), store=MemoryStore(run.folder / "other"), now=NOW)
    memory.recall(SimulatedDevice(VirtualClock(), SimulatedJob(profile=PROFILE)), None)
    attached = [replace(one, mode="attach") if isinstance(one, RunStarted) else one for one in ran.events]
    later_s = last.t_s + 60.0  # in which a driver answered no more
    unread = [replace(one, t_s=later_s) if one is last else one for one in ran.events]
    for log, why in ((ran.events, events.ASKED), (attached, events.JOB_ENDED), (unread, events.JOB_ENDED)):
        memory.remember(log, why)
        (entry,) = memory.store.entries()
        assert entry.latest.job_iterations is None


@pytest.mark.slow
def test_what_is_not_of_this_job_any_more_is_not_begun_from(run: Runs) -> None:
    run()
    counted_otherwise = run(progress="period", days=1, memory=True)
    assert counted_otherwise.history_w == []
    late = run(days=200)
    assert (late.remembered, late.history_w) == (None, [])
    (entry,) = run.store.entries()
    assert (entry.runs, len(entry.curves)) == (1, 1)


@pytest.mark.slow
def test_nothing_is_read_or_kept_where_it_is_not_wanted(run: Runs) -> None:
    run(memory=False)
    assert run.store.entries() == []
    run()
    before = run.store.entries()
    without = run(memory=False)
    assert (without.remembered, without.history_w) == (None, [])
    observed = run(observe=True)  # would begin as a run does, and keeps nothing
    assert observed.remembered is not None
    assert observed.history_w
    assert run.store.entries() == before


@pytest.mark.slow
def test_a_run_that_is_named_comes_before_what_is_remembered(run: Runs) -> None:
    run()
    run(days=1)
    named = warm_start(run.folder / "run1")
    third = run(days=2, named=named)
    assert third.remembered is None
    assert third.histories[0] == named.earlier.history(ENERGY, "steps", (260.0,))
    assert run.store.entries()[0].runs == 3
    otherwise = run(days=3, named=named, progress="period")
    assert otherwise.history_w == []
    (warning,) = [event.text for event in otherwise.events if isinstance(event, events.Warned)]
    said = "iterations were counted by steps and are now counted by period, so the search begins from nothing"
    assert warning.endswith(said)


@pytest.mark.slow
def test_what_cannot_be_kept_is_one_warning_and_the_run_is_as_it_was(run: Runs) -> None:
    (run.folder / "file").touch()
    blocked = run(place=run.folder / "file" / "memory")
    (warning,) = [event.text for event in blocked.events if isinstance(event, events.Warned)]
    assert warning == (
        f"{run.folder}/file/memory cannot be written: Not a directory; make it a directory of your own with room in "
        "it, or run with --no-memory"
    )
    assert blocked.of(events.Decided)


@pytest.mark.slow
def test_a_run_without_a_decision_or_with_ratios_alone_leaves_nothing(run: Runs) -> None:
    ran = run()
    memory = JobMemory(job=Job.of(["train"], {}, run.folder), store=MemoryStore(run.folder / "other"), now=NOW)
    memory.recall(SimulatedDevice(VirtualClock(), SimulatedJob(profile=PROFILE)), None)
    memory.remember([event for event in ran.events if not isinstance(event, events.Decided)])
    by_proxy = [
        replace(event, measurement=replace(event.measurement, proxy_rel_stderr=0.0))
        if isinstance(event, events.BaselineMeasured | events.BaselineRefined)
        else event
        for event in ran.events
    ]
    memory.remember(by_proxy)
    assert memory.store.entries() == []
    memory.remember(ran.events)
    assert len(memory.store.entries()) == 1


def test_a_job_whose_environment_is_hidden_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert JobMemory.of(("train",), os.getpid(), None) is not None
    monkeypatch.setattr(Job, "running", lambda pid: None)
    assert JobMemory.of(("train",), os.getpid(), None) is None


V100, V100_CAPS_W = profiles.load("tesla-v100/resnet50"), (150.0, 200.0, 250.0)


@pytest.mark.slow
def test_another_job_on_the_card_begins_from_what_this_one_has_shown(run: Runs) -> None:
    first = run(strategy="model")
    assert (first.card, first.elsewhere[0]) == (None, ())
    again = run(strategy="model")
    assert again.remembered is not None
    assert (again.card, again.elsewhere[0]) == (None, ())  # no job is a hint to itself
    other = run(strategy="model", word="other")
    assert (other.remembered, other.history_w) == (None, [])
    assert (other.card.jobs, other.card.here, other.card.job_on) == (1, 0, ())  # each has a device of its own
    (curve,) = other.elsewhere[0]
    assert 0.5 < curve.draw < 1
    assert not curve.of_job
    assert {point.cap for point in curve.points} <= {cap_w / 260 for cap_w in CAPS_W}
    (record,) = run.store.cards()
    assert [len(one.points) > 0 for one in record.curves] == [True, True]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"jobs": 1, "here": 1}, "1 other job on this GPU; the search begins from what it showed"),
        ({"jobs": 5, "here": 5}, "5 other jobs on this GPU; the search begins from what they showed"),
        ({"jobs": 5, "here": 0}, "5 other jobs on GPUs of this model; the search begins from what they showed"),
        ({"jobs": 5, "here": 2}, "5 other jobs on GPUs of this model, 2 on this GPU; the search begins from"),
        ({"jobs": 0, "here": 0, "job_on": ("A40",)}, "this job on A40; the search begins from what it showed"),
        ({"jobs": 1, "here": 1, "job_on": ("A40",)}, "1 other job on this GPU; this job on A40; the search begins"),
    ],
)
def test_a_line_says_what_is_known_of_the_card(told: dict[str, Any], said: str) -> None:
    line = Wording().line(CardRecalled(t_s=0.0, **told))
    assert line is not None
    assert line.startswith(f"card: {said}")
    how = "--no-memory and no --warm-start" if "job_on" in told else "--no-memory"
    assert line.endswith(f"; {how} to begin without")


@pytest.mark.slow
def test_a_job_begins_from_what_it_has_shown_on_another_model(run: Runs) -> None:
    run(strategy="model")
    named = warm_start(run.folder / "run1")
    moved = run(strategy="model", profile=V100, caps_w=V100_CAPS_W)
    assert (moved.remembered, moved.history_w) == (None, [])
    assert (moved.card.jobs, moved.card.job_on) == (0, ("simulated Quadro RTX 6000",))
    (curve,) = moved.elsewhere[0]
    assert curve.of_job
    by_name = run(strategy="model", profile=V100, caps_w=V100_CAPS_W, memory=False, named=named)
    assert by_name.elsewhere[0] == (curve,)
    assert (by_name.history_w, by_name.card.job_on) == ([], ("simulated Quadro RTX 6000",))
    assert not by_name.of(events.Warned)
    with pytest.raises(WarmStartRefused, match="the GPU model was 'simulated Quadro RTX 6000' and is now"):
        run(profile=V100, caps_w=V100_CAPS_W, memory=False, named=named)  # linear makes no use of it


@pytest.mark.slow
def test_nothing_is_known_of_the_card_where_that_is_not_wanted(run: Runs) -> None:
    run(strategy="model", observe=True)
    run(strategy="model", memory=False)
    assert run.store.cards() == []
    run(strategy="model")
    for ran in (
        run(strategy="model", word="other", memory=False),
        run(strategy="model", word="other", observe=True),
        run(strategy="linear", word="other"),
    ):
        assert (ran.card, ran.elsewhere[0]) == (None, ())
