"""The loop of a budget's manager: hear clients, read devices, see who computes, carry out what the ledger orders."""

import math
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from autocap.clock import Clock
from autocap.errors import UsageError
from autocap.events import Event
from autocap.limits.times import BEAT_APART_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.words import Standing
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.course import Course, require_budget
from autocap.plugins.fleet.manager.finding import jobs_of
from autocap.plugins.fleet.manager.standing import standing
from autocap.plugins.fleet.manager.state import BudgetState, save
from autocap.plugins.fleet.manager.steward import Steward
from autocap.records import Sample

SAMPLE_S, _LOOK_S, _RECORD_S = 0.2, 0.5, 1.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
ASKED, LEASHED = "a signal asked for the end", "its supervisor is gone"


class Signals:
    """Arrived ones, as something that a poll wakes up for. A context manager; in the main thread."""

    def __init__(self) -> None:
        self._arrived: list[int] = []

    def __enter__(self) -> "Signals":
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        self._before = {signum: signal.signal(signum, self._note) for signum in (*ENDING, signal.SIGHUP)}
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


class Ears(Protocol):
    """Who speaks to a manager from outside."""

    def watch(self, poll: "select.poll") -> None:
        """Have a poll wake up for whoever speaks."""

    def serve(self, ready: set[int]) -> None:
        """Hear those who are ready, by their descriptors."""

    def pass_time(self) -> None:
        """See who was silent for too long, once what is due was done."""


class Manager:
    """steward: with all devices free. listings: the PIDs that compute on each device, by UUID. course: of the budget.
    ends_s: on the clock; infinite until somebody ends it. state_dir: where what a manager started anew has to know is
    kept. leash: readable once our supervisor is gone.
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
        course: Course,
        ends_s: float,
        state_dir: Path,
        leash: int,
    ) -> None:
        self._clock, self._steward, self._ledger, self._listings = clock, steward, ledger, listings
        self._say, self._record, self._directory, self._policy = say, record, directory, policy
        self._course, self._ends_s, self._state_dir, self._leash = course, ends_s, state_dir, leash
        self._next_sample_s = self._next_beat_s = self._next_look_s = self._next_record_s = clock.now()
        self.ended_because: str | None = None
        self.latest: Standing | None = None  # for other threads
        self._keep()

    def run(self, hall: Ears, signals: Signals) -> str:
        """Until it is ended; why it was. Raises AutocapError where the budget cannot be held any more."""
        while self.ended_because is None:
            poll = select.poll()
            hall.watch(poll)
            poll.register(signals.fd, select.POLLIN)
            poll.register(self._leash, select.POLLIN)
            due_s = min(self._next_sample_s, self._next_beat_s, self._next_look_s)
            ready = {fd for fd, _ in poll.poll(1000 * max(0.0, due_s - self._clock.now()))}
            if self._leash in ready:
                self.end(LEASHED)
            for signum in signals.take():
                self._obey(signum)
            hall.serve(ready)
            self.pass_time()
            hall.pass_time()
        return self.ended_because

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        now_s = self._clock.now()
        if now_s >= self._ends_s:
            self.end("its time was over")
        self._follow()
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_APART_S
            self._steward.beat(now_s)
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
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
        require_budget(watts, policy)
        if watts is not None:
            self._course.ask(watts)
        self._policy = self._policy if policy is None else Policy(policy)
        self._apply(self._course.reasons(why))

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises UsageError where the process belongs to no job."""
        steward = self._steward
        same = steward.weights.put(pid, weight, (one.pid for one in steward.tenants.values()))
        if not same:
            raise UsageError(f"process {pid} belongs to no job under the budget; `autocap budget status` names them")
        for tenant in (one for one in steward.tenants.values() if one.pid in same):
            self._ledger.weigh(tenant.name, weight)
            self._say(budget.JobWeighed(t_s=self._clock.now(), name=tenant.name, weight=weight, why=why))
        self._keep()
        steward.act(self._clock.now())

    def end(self, why: str) -> None:
        self.ended_because = self.ended_because or why

    def standing(self) -> Standing:
        """How it stands."""
        return standing(self._steward, policy=self._policy, record=self._directory, follows=self._course.follows)

    def _apply(self, why: str) -> None:
        """why: there are other watts, or another policy."""
        watts = self._course.watts
        self._ledger.budget(self._clock.now(), watts)
        self._ledger.policy(self._policy)
        self._keep()
        self._say(budget.BudgetChanged(t_s=self._clock.now(), budget_w=watts, policy=self._policy, why=why))
        self._steward.act(self._clock.now())

    def _keep(self) -> None:
        """What a manager started anew has to know."""
        state = BudgetState(
            asked_w=self._course.asked_w,
            watts=self._course.there_w,
            policy=self._policy,
            began_wall_s=self._course.began_wall_s,
            record=self._directory,
            weights=self._steward.weights.known,
            spans=self._course.spans,
        )
        save(self._state_dir, state)

    def _obey(self, signum: int) -> None:
        if signum in ENDING:
            self.end(ASKED)
        else:
            self._course.read_again()

    def _follow(self) -> None:
        """Have the watts of now be in force, as the schedule and events have them."""
        if self._course.hear():
            self._keep()
        why = self._course.follow(self._ledger.budget_w)
        if why is not None:
            self._apply(why)


def ends_at(for_s: float | None, began_wall_s: float, now_s: float) -> float:
    """When a budget ends, on a clock that shows now_s."""
    return math.inf if for_s is None else now_s + began_wall_s + for_s - time.time()
