"""Follows a recurrence while it runs: meters it, reads its target, and says when it is reached or costs too much."""

import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from autocap import events
from autocap.errors import AutocapError
from autocap.events import Event
from autocap.metrics import Metric
from autocap.plugins.recur import events as recur_events
from autocap.plugins.recur.config import Target
from autocap.plugins.recur.meter import JobMeter, Searching
from autocap.plugins.recur.policy import Choice, Outcome, closed_for
from autocap.plugins.recur.record import KeptRecurrence, Spent, cost, search_cost
from autocap.progress.values import OUT_OF_MEMORY, ReportedValue
from autocap.records import Sample
from autocap.reports.live.terminal import Reporter
from autocap.session.roles import Sink

log = logging.getLogger(__name__)
_IN_THE_LOOP_S = 0.05  # to keep what came out: the loop that holds the caps waits no longer, and tries again
_AGAIN_S = 1.0
_FROM_OUTSIDE = {128 + one for one in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
Keep = Callable[[KeptRecurrence, float], bool]


class Values(Protocol):
    """Values that the job has reported. fault: why there are no more, `None` while all is well."""

    @property
    def fault(self) -> str | None: ...

    def read(self) -> list[ReportedValue]:
        """Since the last call, oldest first, on the run's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a recurrence is to do. most_values: of the target's, `None` for any number. obey: whether the job may be
    ended early. gpus: the devices' models of the recurrences before, () for none. short: how often before this batch
    size, or a smaller one, ran out of memory, where none as large has reached the target."""

    name: str
    target: Target
    metric: Metric
    choice: Choice
    most_values: int | None = None
    obey: bool = True
    gpus: tuple[str, ...] = ()
    short: int = 0


class RecurrenceWatch(Reporter):
    """A Follower of the run. keep: puts a record in the store, within so many seconds; False where it was reset.

    kept: the recurrence, as it stands. now_of_day: the moment, as it is kept.
    """

    def __init__(
        self, aim: Aim, kept: KeptRecurrence, values: Values, keep: Keep, now_of_day: Callable[[], str]
    ) -> None:
        self._aim, self.kept, self._values, self._keep = aim, kept, values, keep
        self._now_of_day = now_of_day
        self._sink: Sink | None = None
        self._meter = JobMeter(0.0)
        self._searching = Searching()
        self._seen = 0  # values of the target
        self._lacked_memory = False
        self._best: float | None = None  # the nearest of them to it
        self._reached_s: float | None = None
        self._unkept, self._try_s = False, 0.0
        self.ended_because: str | None = None
        self._stopped = Outcome.STOPPED
        self._said: str | None = None

    @property
    def reporter(self) -> Reporter:
        return self

    @property
    def began(self) -> bool:
        """Whether the job was started."""
        return self._sink is not None

    def begin(self, sink: Sink, t_s: float, run_dir: Path) -> None:
        """As Follower has it."""
        self._sink, self._meter = sink, JobMeter(t_s)
        self.kept = replace(self.kept, run_dir=str(run_dir.absolute()))
        aim = self._aim
        sink.event(
            recur_events.RecurrenceStarted(
                t_s=t_s,
                name=aim.name,
                number=self.kept.number,
                batch_size=self.kept.batch_size,
                phase=aim.choice.phase,
                why=aim.choice.why,
                most_cost=aim.choice.most_cost if aim.obey else None,
                unit=aim.metric.unit or "",
            )
        )

    def event(self, event: Event) -> None:
        """Take in what is recorded."""
        self._searching.event(event)
        match event:
            case events.DeviceFound():
                self._meter.found(event)
            case events.Decided(setting=cap_w, confirmed=confirmed):
                self.kept = replace(self.kept, cap_w=cap_w if confirmed else None)

    def sample(self, sample: Sample) -> None:
        """Take in what is measured."""
        self._meter.add(sample)

    def wants_end(self, t_s: float) -> bool:
        """As Follower has it."""
        try:
            return self._look(t_s)
        except Exception as error:  # noqa: BLE001 - no record of it is worth the job, nor its tuning
            self._warn(t_s, f"the recurrence is not followed any more: {self._reason(error)}")
            return False

    def finish(self, t_s: float, exit_status: int, *, signalled: bool) -> None:
        """As Follower has it."""
        try:
            self._read(t_s)
            if self._reached_s is not None:
                self._settle_reached(t_s, ended=True)
            else:
                self._settle(t_s, *self._judged(exit_status, signalled=signalled))
            if self._unkept:
                self._put(t_s, patience_s=10.0)
        except Exception as error:  # noqa: BLE001 - the job has its exit status
            self._warn(t_s, f"what this recurrence came to is not kept: {self._reason(error)}")

    def _look(self, t_s: float) -> bool:
        self._read(t_s)
        if self._reached_s is not None:
            self._settle_reached(t_s, ended=False)
        if self._unkept and t_s >= self._try_s:
            self._put(t_s, patience_s=_IN_THE_LOOP_S)
        if self.ended_because is not None or self._reached_s is not None or not self._aim.obey:
            return False
        self.ended_because = self._too_much(t_s)
        if self.ended_because is not None:
            self._warn(t_s, f"the job is asked to end (SIGTERM): {self.ended_because}")
        return self.ended_because is not None

    def _too_much(self, t_s: float) -> str | None:
        """Why the job is to be ended; `None` where it goes on."""
        aim = self._aim
        if aim.most_values is not None and self._seen >= aim.most_values:
            self._stopped = Outcome.FAILED
            return f"the target was not reached within {aim.most_values} of its values, as --max-epochs has it"
        spent, most = self._spent(t_s), aim.choice.most_cost
        if most is None or spent is None or not self._alike:
            return None
        so_far = cost(spent, aim.metric) - (search_cost(spent, aim.metric) or 0.0)
        if so_far <= most:
            return None
        unit = aim.metric.unit or ""
        return (
            f"recurrence {self.kept.number} has cost {so_far:.4g} {unit} without reaching its target, and more than "
            f"{most:.4g} {unit} is not worth it with batch size {self.kept.batch_size}"
        )

    def _read(self, t_s: float) -> None:
        """Take in the values that were reported since."""
        fault = self._values.fault
        if fault is not None and fault != self._said:
            self._said = fault
            self._warn(t_s, fault)
        for value in self._values.read():
            self._lacked_memory = self._lacked_memory or value.name == OUT_OF_MEMORY
            if value.name == self._aim.target.name:
                self._take(value)

    def _take(self, value: ReportedValue) -> None:
        target = self._aim.target
        self._seen += 1
        if self._best is None or target.better(value.value, self._best):
            self._best = value.value
        if self._reached_s is None and target.reached(value.value):
            self._reached_s = value.t_s

    def _settle_reached(self, t_s: float, *, ended: bool) -> None:
        """Once the energy by then is known: when a sample has come after it, or none will."""
        reached_s = self._reached_s
        assert reached_s is not None
        if self.kept.outcome is Outcome.RUNNING and (ended or self._meter.last_s >= reached_s or t_s > reached_s + 30):
            self._settle(t_s, Outcome.REACHED, "", reached_s)

    def _judged(self, exit_status: int, *, signalled: bool) -> tuple[Outcome, str]:
        """What came of a job that ended without its target, and why."""
        if self.ended_because is not None:
            return self._stopped, self.ended_because
        target = self._aim.target
        if signalled:
            return Outcome.LOST, "a signal ended it before its target"
        if self._lacked_memory and exit_status != 0:
            return Outcome.OUT_OF_MEMORY, f"it ran out of memory (exit status {exit_status}); {self._after_memory}"
        if exit_status in _FROM_OUTSIDE:
            return Outcome.LOST, f"something outside killed it (exit status {exit_status}) before its target"
        if exit_status != 0:
            return Outcome.LOST, f"it crashed (exit status {exit_status}) before its target"
        if not self._seen:
            return Outcome.LOST, f"it ended (exit status {exit_status}), and no value of its target was seen"
        return (
            Outcome.FAILED,
            f"it ended (exit status {exit_status}) with {self._best:g} at best, of {self._seen} values, and "
            f"{target.comparison} {target.bound:g} was its target",
        )

    @property
    def _after_memory(self) -> str:
        """What follows for this batch size."""
        size, times = self.kept.batch_size, self._aim.short + 1
        if closed := closed_for(times):
            return f"that happened {times} times: {size} and larger batch sizes wait for {closed} recurrences"
        return f"where that comes again, {size} and larger batch sizes wait for some recurrences"

    def _spent(self, t_s: float) -> Spent | None:
        """By a moment, the search for a cap in it."""
        spent = self._meter.spent(t_s)
        if spent is None:
            return None
        return replace(spent, searched=self._searching.searched, search=self._searching.spent)

    @property
    def _alike(self) -> bool:
        """Whether its costs can be compared with those of the recurrences before."""
        return not self._aim.gpus or sorted(self._aim.gpus) == sorted(self._meter.gpus)

    def _settle(self, t_s: float, outcome: Outcome, reason: str, at_s: float | None = None) -> None:
        """Say and keep what it came to. at_s: when, where it goes on."""
        spent = self._spent(t_s if at_s is None else at_s)
        if spent is None and outcome in (Outcome.REACHED, Outcome.STOPPED):
            reached = "it reached its target" if outcome is Outcome.REACHED else reason
            outcome, reason = Outcome.LOST, f"{reached}, but what it cost is not known, as its energy is not"
        if not self._alike and self._meter.gpus and outcome is not Outcome.LOST:
            theirs, ours = ", ".join(self._aim.gpus), ", ".join(self._meter.gpus)
            outcome, reason, spent = Outcome.LOST, f"it ran on {ours}, and the recurrences before on {theirs}", None
        self._tell(t_s, outcome, reason, spent)
        self.kept = replace(
            self.kept,
            outcome=outcome,
            reason=reason,
            spent=spent,
            gpus=self._meter.gpus,
            ended_at=self._now_of_day(),
        )
        self._unkept, self._try_s = True, t_s

    def _tell(self, t_s: float, outcome: Outcome, reason: str, spent: Spent | None) -> None:
        if self._sink is None:
            return
        says_nothing = (Outcome.LOST, Outcome.OUT_OF_MEMORY)
        self._sink.event(
            recur_events.RecurrenceEnded(
                t_s=t_s,
                outcome=str(outcome),
                reason=reason,
                cost=None if spent is None or outcome in says_nothing else cost(spent, self._aim.metric),
                search_cost=None if spent is None else search_cost(spent, self._aim.metric) or None,
                unit=self._aim.metric.unit or "",
                time_s=0.0 if spent is None else spent.time_s,
                energy_j=None if spent is None else spent.energy_j,
                energy_stderr_j=None if spent is None else spent.energy_stderr_j or None,
            )
        )

    def _put(self, t_s: float, patience_s: float) -> None:
        """Keep it; in the loop, where others write just now, a second later."""
        try:
            is_there = self._keep(self.kept, patience_s)
        except AutocapError:
            self._try_s = t_s + _AGAIN_S
            if patience_s > _IN_THE_LOOP_S:
                raise
            log.debug("what came out is not kept yet", exc_info=True)
            return
        self._unkept = False
        if not is_there:
            self._warn(t_s, f"the recurring job {self._aim.name} was reset meanwhile, so this recurrence is not kept")

    def _warn(self, t_s: float, text: str) -> None:
        if self._sink is not None:
            self._sink.event(events.Warned(t_s=t_s, text=text))

    def _reason(self, error: Exception) -> str:
        return str(error) if self._sink is None or isinstance(error, AutocapError) else self._sink.reason(error)
