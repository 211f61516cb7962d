"""The loop of a budget's manager: hear clients, read devices, see who computes, carry out what the ledger orders."""

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from autocap import events
from autocap.budget.ledger import Ledger
from autocap.budget.schedule import LEAST_W, MOST_W, Schedule, ScheduleRefused, read_schedule
from autocap.budget.shares import Policy
from autocap.budget.words import Standing
from autocap.clock import Clock
from autocap.errors import AutocapError, UsageError
from autocap.events import Event
from autocap.job.invoking_user import privileged
from autocap.manager.demand import Demand
from autocap.manager.finding import jobs_of
from autocap.manager.hall import Hall
from autocap.manager.plan import BudgetState, save
from autocap.manager.standing import standing
from autocap.manager.steward import Steward
from autocap.records import Sample

SAMPLE_S, _BEAT_S, _LOOK_S, _RECORD_S = 0.2, 0.35, 0.5, 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_MOST_KEPT = 48  # spans of events, for another manager
ASKED = "a signal asked for the end"


class Signals:
    """Arrived ones, as something that a poll wakes up for. A context manager; in the main thread."""

    def __init__(self) -> None:
        self._arrived: list[int] = []

    def __enter__(self) -> "Signals":
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._before = {signum: signal.signal(signum, self._note) for signum in (*_ENDING, signal.SIGHUP)}
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write_fd)

    def take(self) -> list[int]:
        """Those that have arrived since the last time."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        arrived, self._arrived = self._arrived, []
        return arrived

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self._arrived.append(signum)


class Manager:
    """steward: with all devices free. listings: the PIDs that compute on each device, by UUID. asked_w: what a user has
    asked for; a schedule goes before it from its first row on. demand: events that lower either. began_wall_s: when the
    budget began, seconds since 1970. ends_s: on the clock; infinite until somebody ends it. state_dir: where what a
    manager started anew has to know is kept. leash: readable once our supervisor is gone.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        steward: Steward,
        ledger: Ledger,
        listings: Callable[[], Mapping[str, Sequence[int]]],
        say: Callable[[Event], None],
        record: Callable[[Sample], None],
        directory: str,
        policy: Policy,
        asked_w: float | None,
        schedule: Schedule | None,
        source: str | None,
        demand: Demand | None,
        began_wall_s: float,
        ends_s: float,
        state_dir: Path,
        leash: int,
    ) -> None:
        self._clock, self._steward, self._ledger, self._listings = clock, steward, ledger, listings
        self._say, self._record, self._directory, self._policy = say, record, directory, policy
        self._asked_w, self._schedule, self._source, self._demand = asked_w, schedule, source, demand
        self._there_w = ledger.budget_w  # before events lower it
        self._began_wall_s, self._ends_s, self._state_dir, self._leash = began_wall_s, ends_s, state_dir, leash
        self._reader: threading.Thread | None = None
        self._read: Schedule | ScheduleRefused | None = None
        self._next_sample_s = self._next_beat_s = self._next_look_s = self._next_record_s = clock.now()
        self.ended_because: str | None = None
        self.latest: Standing | None = None  # for other threads
        self._keep()

    def run(self, hall: Hall, signals: Signals) -> str:
        """Until it is ended; why it was. Raises AutocapError where the budget cannot be held any more."""
        while self.ended_because is None:
            poll = select.poll()
            hall.watch(poll)
            poll.register(signals.fd, select.POLLIN)
            poll.register(self._leash, select.POLLIN)
            due_s = min(self._next_sample_s, self._next_beat_s, self._next_look_s)
            ready = {fd for fd, _ in poll.poll(1000 * max(0.0, due_s - self._clock.now()))}
            if self._leash in ready:
                self.end("its supervisor is gone")
            for signum in signals.take():
                self._obey(signum)
            hall.serve(ready)
            hall.pass_time()
            self.pass_time()
        return self.ended_because

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        now_s = self._clock.now()
        if now_s >= self._ends_s:
            self.end("its time was over")
        self._follow()
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + _BEAT_S
            self._steward.beat(now_s)
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            with privileged():  # what others have in their environment is hidden from the user behind sudo
                found = jobs_of(self._listings())
            self._steward.look(now_s, found)
            self._steward.act(self._clock.now())  # before a reading of all devices takes its time
        if now_s >= self._next_sample_s:
            self._next_sample_s = max(self._next_sample_s + SAMPLE_S, now_s)
            self._steward.sample(now_s)
            if now_s >= self._next_record_s:
                self._next_record_s = now_s + _RECORD_S
                self._record(Sample(t_s=now_s, readings=self._steward.readings, node=self._steward.rest.reading))
                self.latest = self.standing()
        self._steward.act(self._clock.now())

    # Control, as clients and signals have it.

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises UsageError for what is no budget, or no policy."""
        if watts is not None and not LEAST_W <= watts <= MOST_W:
            raise UsageError(f"a budget of {watts:g} W is none; give {LEAST_W:g} to {MOST_W:g} W")
        if policy is not None and policy not in tuple(Policy):
            raise UsageError(f"policy '{policy}' is none of {', '.join(Policy)}")
        if watts is not None:
            self._asked_w, self._schedule = watts, None  # a user's word ends the schedule, until it is read again
            self._there_w = watts
        self._policy = self._policy if policy is None else Policy(policy)
        self._apply(why)

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises UsageError where the process belongs to no job."""
        steward = self._steward
        with privileged():  # as where they are found
            same = steward.weights.put(pid, weight, (one.pid for one in steward.tenants.values()))
        if not same:
            raise UsageError(f"process {pid} belongs to no job under the budget; `autocap budget status` names them")
        for tenant in (one for one in steward.tenants.values() if one.pid in same):
            self._ledger.weigh(tenant.name, weight)
            self._say(events.JobWeighed(t_s=self._clock.now(), name=tenant.name, weight=weight, why=why))
        self._keep()
        steward.act(self._clock.now())

    def end(self, why: str) -> None:
        self.ended_because = self.ended_because or why

    def standing(self) -> Standing:
        """How it stands."""
        follows = () if self._demand is None else self._demand.sentences(self._there_w, time.time())
        return standing(self._steward, policy=self._policy, record=self._directory, follows=follows)

    def _lowered(self) -> tuple[float, str]:
        """What events leave of the budget now, watts, and why that is less."""
        return (self._there_w, "") if self._demand is None else self._demand.lowered(self._there_w, time.time())

    def _apply(self, why: str = "") -> None:
        """why: there are other watts before events lower them, or another policy."""
        watts, lowered = self._lowered()
        if not why and not lowered and self._demand is not None:
            why = self._demand.over
        why = "; ".join(filter(None, (why, lowered)))
        self._ledger.budget(self._clock.now(), watts)
        self._ledger.policy(self._policy)
        self._keep()
        self._say(events.BudgetChanged(t_s=self._clock.now(), budget_w=watts, policy=self._policy, why=why))
        self._steward.act(self._clock.now())

    def _keep(self) -> None:
        """What a manager started anew has to know."""
        state = BudgetState(
            asked_w=self._asked_w,
            watts=self._there_w,
            policy=self._policy,
            began_wall_s=self._began_wall_s,
            record=self._directory,
            weights=self._steward.weights.known,
            spans=() if self._demand is None else self._demand.spans[:_MOST_KEPT],
        )
        save(self._state_dir, state)

    def _obey(self, signum: int) -> None:
        if signum in _ENDING:
            self.end(ASKED)
        elif self._source is None:
            self._warn("SIGHUP has a schedule read again, and there is none; start with --schedule")
        elif self._reader is None:
            source = self._source
            self._reader = threading.Thread(target=self._read_schedule, args=(source,), daemon=True)
            self._reader.start()

    def _read_schedule(self, source: str) -> None:
        """In a thread of its own: a command may take long."""
        try:
            self._read = read_schedule(source, self._began_wall_s)
        except AutocapError as error:
            self._read = ScheduleRefused(str(error))

    def _follow(self) -> None:
        """Have the watts of now be in force, as the schedule and events have them."""
        if self._demand is not None and self._demand.hear():
            self._keep()
        why = self._follow_schedule()
        if why or self._lowered()[0] != self._ledger.budget_w:
            self._apply(why)

    def _follow_schedule(self) -> str:
        """Why there are other watts now, "" where there are not."""
        if self._reader is not None and not self._reader.is_alive():
            self._reader, found = None, self._read
            if isinstance(found, ScheduleRefused):
                self._warn(f"{found}; the budget stays at {self._ledger.budget_w:g} W")
            else:
                self._schedule = found
        step = None if self._schedule is None else self._schedule.at(time.time())
        if step is None or step.watts == self._there_w:
            return ""
        self._there_w = step.watts
        return f"{self._source} says so"

    def _warn(self, text: str) -> None:
        self._say(events.Warned(t_s=self._clock.now(), text=text))


def ends_at(for_s: float | None, began_wall_s: float, now_s: float) -> float:
    """When a budget ends, on a clock that shows now_s."""
    return math.inf if for_s is None else now_s + began_wall_s + for_s - time.time()
