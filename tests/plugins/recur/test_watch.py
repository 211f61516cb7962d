"""A recurrence as it is followed, in virtual time: what it came to, what it cost, and when its job is ended."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autocap import events
from autocap.errors import RecurrenceUnavailable
from autocap.events import Event
from autocap.metrics import Metric
from autocap.plugins.recur.config import target
from autocap.plugins.recur.events import RecurrenceEnded
from autocap.plugins.recur.meter import JobMeter
from autocap.plugins.recur.policy import Choice, Outcome
from autocap.plugins.recur.record import KeptRecurrence
from autocap.plugins.recur.watch import Aim, RecurrenceWatch
from autocap.progress.values import OF_OUTPUT, OUT_OF_MEMORY, ReportedValue
from autocap.records import CapRange, GpuInfo, Reading, Sample
from tests.plugins.recur.test_meter import search_of

BEGAN_S, POWER_W = 2.0, 100.0  # the job starts at 2 s, and uses the device from 4 s on
GPU = GpuInfo(index=0, uuid="GPU-1", name="Test", cap_range=CapRange(min_w=100.0, max_w=260.0, default_w=250.0))
FOUND = events.DeviceFound(t_s=4.0, kind="nvml", emulated=False, gpus=(GPU,), original=(250.0,))


def at(t_s: float, power_w: float | None = POWER_W) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=power_w, requested_w=250.0),))


@dataclass
class Followed:
    """A watch with a job, a sink and a store that are only played. busy: how often the store is."""

    most_cost: float | None = None
    most_values: int | None = None
    obey: bool = True
    gpus: tuple[str, ...] = ()
    short: int = 0
    busy: int = 0
    is_reset: bool = False
    events: list[Event] = field(default_factory=list)
    kept: list[KeptRecurrence] = field(default_factory=list)
    coming: list[ReportedValue] = field(default_factory=list)
    fault: str | None = None
    ended_s: float | None = None

    def __post_init__(self) -> None:
        aim = Aim(
            name="nightly",
            target=target(r"acc (\S+) >= 0.9"),
            metric=Metric(name="energy"),
            choice=Choice(batch_size=64, most_cost=self.most_cost, phase="exploring", why="not tried yet"),
            most_values=self.most_values,
            obey=self.obey,
            gpus=self.gpus,
            short=self.short,
        )
        running = KeptRecurrence(number=3, batch_size=64, outcome=Outcome.RUNNING, started_at="now")
        self.watch = RecurrenceWatch(aim, running, self, self._keep, lambda: "later")
        self.watch.begin(self, BEGAN_S, Path("/runs/one"))

    def _keep(self, kept: KeptRecurrence, patience_s: float) -> bool:
        if self.busy:
            self.busy -= 1
            raise RecurrenceUnavailable("database is locked")
        self.kept.append(kept)
        return not self.is_reset

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, sample: Sample) -> None: ...

    def reason(self, error: Exception) -> str:
        raise error

    def read(self) -> list[ReportedValue]:
        now, self.coming = self.coming, []
        return now

    def say(self, t_s: float, value: float, name: str = OF_OUTPUT) -> None:
        self.coming.append(ReportedValue(t_s=t_s, name=name, value=value))

    def run(self, until_s: float, power: Callable[[float], float | None] = lambda t_s: POWER_W) -> "Followed":
        """Seconds from 4 s on, each with a sample and a look, until the job is asked to end."""
        self.watch.event(FOUND)
        for second in range(4, int(until_s) + 1):
            self.watch.sample(at(float(second), power(second)))
            if self.watch.wants_end(float(second)) and self.ended_s is None:
                self.ended_s = float(second)
                break
        return self

    @property
    def outcome(self) -> RecurrenceEnded:
        (found,) = [event for event in self.events if isinstance(event, RecurrenceEnded)]
        return found

    @property
    def warned(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, events.Warned)]


def test_a_target_that_is_reached_is_kept_at_once_with_its_cost_up_to_that_value() -> None:
    job = Followed(most_cost=500.0)
    job.say(5.0, 0.5)
    job.say(7.5, 0.9)
    job.say(8.0, 0.1)
    job.run(30)
    assert job.ended_s is None, "a job that has reached its target is left to its own end"
    (kept,) = job.kept
    assert (kept.outcome, kept.ended_at, kept.gpus, kept.run_dir) == (Outcome.REACHED, "later", ("Test",), "/runs/one")
    assert (kept.spent.energy_j, kept.spent.time_s) == (pytest.approx(3.5 * POWER_W), pytest.approx(7.5 - BEGAN_S))
    assert kept.spent.most_w == 260.0
    job.watch.finish(31.0, 0, signalled=True)
    assert len(job.kept) == 1
    assert job.outcome.cost == pytest.approx(3.5 * POWER_W)


def test_a_target_reached_with_the_jobs_last_words_counts_to_them() -> None:
    job = Followed().run(10)
    job.say(10.4, 0.95)
    job.watch.finish(11.0, 0, signalled=False)
    assert (job.outcome.outcome, job.outcome.energy_j) == ("reached", pytest.approx(6.4 * POWER_W))


def test_a_job_that_costs_too_much_is_asked_to_end_once() -> None:
    job = Followed(most_cost=500.0)
    job.say(5.0, 0.8)
    job.run(30)
    assert job.ended_s == 10.0, "500 J at 9 s are not more than 500 J"
    assert "recurrence 3 has cost 600 J without reaching its target, and more than 500 J is not worth" in job.warned[0]
    assert not job.watch.wants_end(11.0)
    job.watch.sample(at(12.0))
    job.watch.finish(12.0, 143, signalled=False)
    assert job.outcome.outcome == "stopped"
    assert job.outcome.cost == pytest.approx(8 * POWER_W), "until it has really ended"
    assert job.watch.ended_because == job.outcome.reason


def test_a_job_that_needs_too_many_epochs_has_failed() -> None:
    job = Followed(most_values=3)
    for epoch in range(3):
        job.say(5.0 + epoch, 0.1)
        job.say(5.0 + epoch, 0.95, name="of_somebody_else")
    job.run(30)
    assert job.ended_s == 4.0
    job.watch.sample(at(9.0))
    job.watch.finish(9.0, 0, signalled=False)
    assert job.kept[0].outcome is Outcome.FAILED
    assert job.kept[0].reason == "the target was not reached within 3 of its values, as --max-epochs has it"


def test_under_observe_no_job_is_ended() -> None:
    assert Followed(most_cost=1.0, most_values=1, obey=False).run(30).ended_s is None


@pytest.mark.parametrize(
    ("status", "signalled", "value", "outcome", "reason"),
    [
        (0, False, 0.7, "failed", "it ended (exit status 0) with 0.7 at best, of 1 values, and >= 0.9 was its target"),
        (0, False, None, "lost", "it ended (exit status 0), and no value of its target was seen"),
        (1, False, None, "lost", "it crashed (exit status 1) before its target"),
        (139, False, 0.7, "lost", "it crashed (exit status 139) before its target"),
        (0, True, 0.7, "lost", "a signal ended it before its target"),
        (128 + signal.SIGKILL, False, 0.7, "lost", "something outside killed it (exit status 137)"),
        (128 + signal.SIGTERM, False, 0.7, "lost", "something outside killed it (exit status 143)"),
    ],
)
def test_what_a_job_came_to_that_ended_without_its_target(status, signalled, value, outcome, reason) -> None:
    job = Followed().run(10)
    if value is not None:
        job.say(9.0, value)
    job.watch.finish(11.0, status, signalled=signalled)
    assert job.outcome.outcome == outcome
    assert job.outcome.reason.startswith(reason)
    assert job.kept[0].reason == job.outcome.reason
    assert (job.outcome.cost is None) == (outcome == "lost")


def test_without_a_device_nothing_is_known_of_the_cost() -> None:
    job = Followed()
    job.say(5.0, 0.95)
    assert not job.watch.wants_end(6.0)
    job.watch.finish(40.0, 0, signalled=False)
    assert job.outcome.outcome == "lost"
    assert job.outcome.reason == "it reached its target, but what it cost is not known, as its energy is not"


def test_a_job_that_crashes_before_it_uses_a_device_says_nothing_of_its_batch_size() -> None:
    job = Followed()
    job.watch.finish(3.0, 1, signalled=False)
    assert job.kept[0].outcome is Outcome.LOST
    assert job.kept[0].spent is None
    said = job.outcome.sentence("")
    assert (
        said == "warning: this recurrence says nothing of its batch size: it crashed (exit status 1) before its target"
    )


@pytest.mark.parametrize(
    ("before", "follows"),
    [
        (0, "where that comes again, 64 and larger batch sizes wait for some recurrences"),
        (1, "that happened 2 times: 64 and larger batch sizes wait for 8 recurrences"),
    ],
)
def test_a_job_that_ran_out_of_memory_says_what_follows(before: int, follows: str) -> None:
    job = Followed(short=before).run(10)
    job.say(9.0, 1.0, name=OUT_OF_MEMORY)
    job.watch.finish(11.0, 1, signalled=False)
    assert job.kept[0].outcome is Outcome.OUT_OF_MEMORY
    assert job.outcome.reason == f"it ran out of memory (exit status 1); {follows}"
    assert job.outcome.sentence("").endswith(follows)


def test_an_error_for_want_of_memory_that_the_job_survives_is_none() -> None:
    job = Followed().run(10)
    job.say(8.0, 1.0, name=OUT_OF_MEMORY)
    job.say(9.0, 0.7)
    job.watch.finish(11.0, 0, signalled=False)
    assert job.kept[0].outcome is Outcome.FAILED


def test_the_bound_counts_what_a_run_costs_without_its_search() -> None:
    job = Followed(most_cost=2500.0)
    for event in search_of(extra_j=1000.0, held_from_s=10, until_s=40):
        job.watch.event(event)
    job.run(60)
    assert job.ended_s == 40.0, "3,600 J at 40 s, of which 1,000 J are the search's"
    job.watch.finish(41.0, 143, signalled=False)
    spent = job.kept[0].spent
    assert spent.searched
    assert spent.search.energy_j == pytest.approx(1000.0)
    assert "of which the search for a cap took 1000 J" in replace(job.outcome, outcome="reached").sentence("")


def test_other_devices_than_before_are_not_compared() -> None:
    job = Followed(gpus=("Other",), most_cost=1.0).run(10)
    assert job.ended_s is None
    job.say(9.0, 0.95)
    job.watch.finish(11.0, 0, signalled=False)
    assert (job.outcome.outcome, job.outcome.reason) == ("lost", "it ran on Test, and the recurrences before on Other")


def test_a_store_that_is_busy_is_tried_again_and_holds_nobody_up() -> None:
    job = Followed(busy=2)
    job.say(4.5, 0.95)
    job.run(6)
    assert job.kept == []
    job.watch.sample(at(7.0))
    job.watch.wants_end(7.0)
    assert [one.outcome for one in job.kept] == [Outcome.REACHED]
    assert job.warned == []


def test_what_was_reset_meanwhile_is_said() -> None:
    job = Followed(is_reset=True)
    job.say(4.5, 0.95)
    job.run(6)
    assert job.warned == ["the recurring job nightly was reset meanwhile, so this recurrence is not kept"]


def test_a_store_that_fails_at_the_end_is_a_warning() -> None:
    job = Followed(busy=9).run(6)
    job.watch.finish(7.0, 0, signalled=False)
    assert job.warned == ["what this recurrence came to is not kept: database is locked"]


def metered(power: Callable[[float], float | None], seconds: int = 100) -> JobMeter:
    meter = JobMeter(0.0)
    meter.found(FOUND)
    for second in range(seconds + 1):
        meter.add(at(float(second), power(second)))
    return meter


def test_a_short_gap_in_the_power_is_filled_with_its_mean_and_says_so() -> None:
    spent = metered(lambda t_s: None if 50 < t_s <= 53 else POWER_W).spent(100.0)
    assert (spent.energy_j, spent.energy_stderr_j) == (pytest.approx(100 * POWER_W), pytest.approx(4 * POWER_W))


def test_with_a_long_gap_or_when_nobody_looks_any_more_the_energy_is_not_known() -> None:
    assert metered(lambda t_s: None if 50 < t_s <= 70 else POWER_W).spent(100.0) is None
    assert metered(lambda t_s: POWER_W).spent(109.0) is not None
    assert metered(lambda t_s: POWER_W).spent(200.0) is None


def test_thousands_of_samples_cost_no_memory_and_an_early_moment_is_still_found() -> None:
    meter = metered(lambda t_s: POWER_W, seconds=3000)
    early, late = meter.spent(2800.25), meter.spent(3000.0)
    assert (early.energy_j, late.energy_j) == (pytest.approx(280025.0), pytest.approx(300000.0))
