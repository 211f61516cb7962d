"""What whoever holds a budget does alike, on one machine and over several: it wakes up for signals, for clients and for
the end of its supervisor, follows the watts that there are, and does what users ask for. The manager of one machine
reads its devices as well, sees who computes, and carries out what the ledger orders."""

import os
import select
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from autocap.clock import Clock
from autocap.errors import UsageError
from autocap.limits.times import BEAT_APART_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.orders import Orders
from autocap.plugins.fleet.budget.protocol import Standing
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.budget_target import BudgetTarget, require_budget
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.finding import jobs_of
from autocap.plugins.fleet.manager.supervising import STATE, BudgetState, save
from autocap.records import Sample
from autocap.session.guarding import Records

_RECORD_S = 1.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
ASKED, LEASHED = "a signal asked for the end", "its supervisor is gone"
_SAMPLE_S, _LOOK_S = 0.2, 0.5


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


class RequestSource(Protocol):
    """Who speaks to a manager from outside."""

    def watch(self, poll: "select.poll") -> None:
        """Have a poll wake up for whoever speaks."""

    def serve(self, ready: set[int]) -> None:
        """Hear those who are ready, by their descriptors."""

    def pass_time(self) -> None:
        """See who was silent for too long, once what is due was done."""


class Recording(Records, Protocol):
    """Takes all that becomes of a budget."""

    def sample(self, sample: Sample) -> None: ...


@dataclass(kw_only=True, eq=False)
class Loop(ABC):
    """shares: of the budget. course: of its watts. directory: in which it is recorded. ends_s: on the clock; infinite
    until somebody ends it. parent_fd: readable once our supervisor is gone. state_dir, state: where what one started
    anew has to know is kept, and the name of that. latest: how it stood, for other threads."""

    clock: Clock
    shares: Orders
    course: BudgetTarget
    policy: Policy
    recorder: Recording
    directory: str
    ends_s: float
    parent_fd: int
    state_dir: Path
    state: str = STATE
    ended_because: str | None = field(default=None, init=False)
    latest: Standing | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._next_record_s = self.clock.now()
        self._keep()

    def run(self, sources: RequestSource, signals: Signals) -> str:
        """Until it is ended; why it was. Raises AutocapError where the budget cannot be held any more."""
        while self.ended_because is None:
            self._wait(signals, sources, max(0.0, self._due_s() - self.clock.now()))
            self.pass_time()
            sources.pass_time()
        return self.ended_because

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        if self.clock.now() >= self.ends_s:
            self.end("its time was over")
        if self.course.hear():
            self._keep()
        why = self.course.follow(self.shares.budget_w)
        if why is not None:
            self._apply(why)

    # Control, as clients and signals have it.

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises UsageError for what is no budget, or no policy."""
        require_budget(watts, policy)
        if watts is not None:
            self.course.ask(watts)
        self.policy = self.policy if policy is None else Policy(policy)
        self._apply(self.course.reasons(why))

    def end(self, why: str) -> None:
        self.ended_because = self.ended_because or why

    @abstractmethod
    def standing(self) -> Standing:
        """How it stands."""

    @abstractmethod
    def _due_s(self) -> float:
        """When `pass_time` is to be called next, should nobody speak before."""

    @abstractmethod
    def _carry_out(self) -> None:
        """Have other watts, or another policy, be in force."""

    def _descriptors(self) -> Sequence[int]:
        """Others, on which somebody may be heard."""
        return ()

    def _weights(self) -> tuple[tuple[int, float], ...]:
        """Of jobs, as `BudgetState` has them."""
        return ()

    def _wait(self, signals: Signals, sources: RequestSource | None, seconds: float) -> None:
        poll = select.poll()
        for fd in (signals.fd, self.parent_fd, *self._descriptors()):
            poll.register(fd, select.POLLIN)
        if sources is not None:
            sources.watch(poll)
        ready = {fd for fd, _ in poll.poll(1000 * seconds)}
        if self.parent_fd in ready:
            self.end(LEASHED)
        for signum in signals.take():
            if signum in ENDING:
                self.end(ASKED)
            else:
                self.course.read_again()
        if sources is not None:
            sources.serve(ready)

    def _apply(self, why: str) -> None:
        """why: there are other watts, or another policy."""
        now_s, watts = self.clock.now(), self.course.watts
        self.shares.budget(now_s, watts)
        self.shares.policy(self.policy)
        self._keep()
        self.recorder.event(budget.BudgetChanged(t_s=now_s, budget_w=watts, policy=self.policy, why=why))
        self._carry_out()

    def _record(self, now_s: float, sample: Sample) -> None:
        """Keep what was read, and show how it stands."""
        self._next_record_s = now_s + _RECORD_S
        self.recorder.sample(sample)
        self.latest = self.standing()

    def _keep(self) -> None:
        """What one started anew has to know."""
        state = BudgetState(
            asked_w=self.course.asked_w,
            watts=self.course.there_w,
            policy=self.policy,
            began_wall_s=self.course.began_wall_s,
            record=self.directory,
            weights=self._weights(),
            spans=self.course.spans,
        )
        save(self.state_dir, state, self.state)


@dataclass(kw_only=True, eq=False)
class Manager(Loop):
    """enforcer: with all devices free. listings: the PIDs that compute on each device, by UUID."""

    enforcer: BudgetEnforcer
    listings: Callable[[], Mapping[str, Sequence[int]]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._next_sample_s = self._next_beat_s = self._next_look_s = self.clock.now()

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        super().pass_time()
        now_s = self.clock.now()
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_APART_S
            self.enforcer.beat(now_s)
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            found = jobs_of(self.listings())
            self.enforcer.look(now_s, found)
            self.enforcer.act(self.clock.now())  # before a reading of all devices takes its time
        if now_s >= self._next_sample_s:
            self._next_sample_s = max(self._next_sample_s + _SAMPLE_S, now_s)
            self.enforcer.sample(now_s)
            if now_s >= self._next_record_s:
                readings, rest = self.enforcer.readings, self.enforcer.rest
                self._record(now_s, Sample(t_s=now_s, readings=readings, node=rest.reading))
        self.enforcer.act(self.clock.now())

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises UsageError where the process belongs to no job."""
        enforcer = self.enforcer
        same = enforcer.weights.put(pid, weight, (one.pid for one in enforcer.allocations.values()))
        if not same:
            raise UsageError(f"process {pid} belongs to no job under the budget; `autocap budget status` names them")
        for allocation in (one for one in enforcer.allocations.values() if one.pid in same):
            enforcer.ledger.weigh(allocation.name, weight)
            self.recorder.event(budget.JobWeighed(t_s=self.clock.now(), name=allocation.name, weight=weight, why=why))
        self._keep()
        enforcer.act(self.clock.now())

    def standing(self) -> Standing:
        return self.enforcer.standing(policy=self.policy, record=self.directory, follows=self.course.follows)

    def _due_s(self) -> float:
        return min(self._next_sample_s, self._next_beat_s, self._next_look_s)

    def _carry_out(self) -> None:
        self.enforcer.act(self.clock.now())

    def _weights(self) -> tuple[tuple[int, float], ...]:
        return self.enforcer.weights.known
