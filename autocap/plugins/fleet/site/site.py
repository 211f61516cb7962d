"""The loop of a site: hear clients and nodes, share the budget among the nodes, and tell them."""

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autocap import events
from autocap.clock import Clock
from autocap.errors import EngineUnavailable, UsageError
from autocap.events import Event
from autocap.limits.times import LEASE_S, NOBODY_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.orders import ROUNDING_W, Decision
from autocap.plugins.fleet.budget.words import Standing
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.course import Course, require_budget
from autocap.plugins.fleet.manager.manager import ASKED, ENDING, LEASHED, Ears, Signals
from autocap.plugins.fleet.manager.state import SITE_STATE, BudgetState, save
from autocap.plugins.fleet.site.chronicle import Chronicle
from autocap.plugins.fleet.site.nodes import BEGINNING_S, Nodes
from autocap.plugins.fleet.site.parts import Parts
from autocap.records import Reading, Sample

_LOOK_S, _RECORD_S = 0.2, 1.0
_WAIT_S = 0.02  # for the answer to a word


class Site:
    """nodes: to be opened. say, record: take what happens. ends_s: on the clock. leash: readable once our supervisor is
    gone. state_dir: where what a site started anew has to know is kept."""

    def __init__(
        self,
        *,
        clock: Clock,
        nodes: Nodes,
        parts: Parts,
        course: Course,
        policy: Policy,
        directory: str,
        say: Callable[[Event], None],
        record: Callable[[Sample], None],
        ends_s: float,
        state_dir: Path,
        leash: int,
    ) -> None:
        self._clock, self._nodes, self._parts, self._course, self._policy = clock, nodes, parts, course, policy
        self._directory, self._say, self._record = directory, say, record
        self._ends_s, self._state_dir, self._leash = ends_s, state_dir, leash
        self._chronicle = Chronicle(say)
        self._next_record_s = self._someone_s = clock.now()
        self._decision = Decision(orders=())
        self.ended_because: str | None = None
        self.latest: Standing | None = None  # for other threads
        nodes.policy = policy
        self._keep()

    def begin(self, signals: Signals, *, patient: bool) -> None:
        """Until all nodes hold their floors. patient: those that cannot be reached are tried again, as their ends of an
        earlier site may be leaving. Raises EngineUnavailable where a node is not there, and UsageError where the budget
        is less than all floors."""
        until_s = self._clock.now() + BEGINNING_S
        while not self._nodes.are_all_there and self.ended_because is None:
            self._nodes.open()
            for name, why in () if patient else self._nodes.gone.items():
                raise EngineUnavailable(f"{name} has no part in the budget: {why}")
            if self._clock.now() > until_s:
                missing = [name for name in self._nodes.names if not self._parts.is_heard(name)]
                whys = "".join(f"; {why}" for why in dict.fromkeys(self._nodes.gone.values()))
                raise EngineUnavailable(f"nothing was heard of {', '.join(missing)} within {BEGINNING_S:g} s{whys}")
            self._wait(signals, None, _LOOK_S)
            self._nodes.tend()
        floor_w, budget_w = self._parts.floor_w, self._parts.budget_w
        if self.ended_because is None and budget_w < floor_w - ROUNDING_W:
            raise UsageError(_below(budget_w, floor_w))

    def run(self, ears: Ears, signals: Signals) -> str:
        """Until it is ended; why it was. Raises EngineUnavailable once no node is left."""
        while self.ended_because is None:
            due_s = min(self._nodes.next_s, self._next_record_s, self._clock.now() + _LOOK_S)
            self._wait(signals, ears, max(0.0, due_s - self._clock.now()))
            self.pass_time()
        return self.ended_because

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        now_s = self._clock.now()
        if now_s >= self._ends_s:
            self.end("its time was over")
        if self._course.hear():
            self._keep()
        why = self._course.follow(self._parts.budget_w)
        if why is not None:
            self._apply(why)
        self._turn()
        if any(self._parts.is_heard(name) for name in self._nodes.names):
            self._someone_s = now_s
        elif self._nodes.have_all_left or now_s > self._someone_s + NOBODY_S:
            whys = "; ".join(dict.fromkeys(self._nodes.gone.values())) or "nothing was heard of any"
            raise EngineUnavailable(f"no node is left: {whys}")
        if now_s >= self._next_record_s:
            self._next_record_s = now_s + _RECORD_S
            self._record(Sample(t_s=now_s, readings=self._readings(now_s)))
            self.latest = self.standing()

    def _turn(self) -> None:
        """Hear the nodes, and tell them what follows from it."""
        try:
            self._nodes.open()
        except EngineUnavailable as error:
            self._warn(str(error))
        self._nodes.tend()
        now_s = self._clock.now()
        self._decision = self._parts.decide(now_s)
        if self._decision.orders:
            self._nodes.say()
        for text in self._nodes.notes:
            self._warn(text)
        self._nodes.notes.clear()
        self._chronicle.write(now_s, self._parts, self._decision)

    def _wait(self, signals: Signals, ears: Ears | None, seconds: float) -> None:
        poll = select.poll()
        for fd in (signals.fd, self._leash, *self._nodes.descriptors):
            poll.register(fd, select.POLLIN)
        if ears is not None:
            ears.watch(poll)
        ready = {fd for fd, _ in poll.poll(1000 * seconds)}
        if self._leash in ready:
            self.end(LEASHED)
        for signum in signals.take():
            self._obey(signum)
        if ears is not None:
            ears.serve(ready)
            ears.pass_time()

    # Control, as clients and signals have it.

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Lower caps hold on return, or have had the time. Raises UsageError for what is no budget, or less than all
        floors, or no policy."""
        require_budget(watts, policy)
        floor_w = self._parts.floor_w
        if watts is not None and watts < floor_w - ROUNDING_W:
            raise UsageError(_below(watts, floor_w))
        if watts is not None:
            self._course.ask(watts)
        self._policy = self._policy if policy is None else Policy(policy)
        self._apply(self._course.reasons(why))
        until_s = time.monotonic() + LEASE_S
        while self._parts.room_w < -ROUNDING_W and time.monotonic() < until_s:
            time.sleep(_WAIT_S)
            self._turn()

    def weigh(self, pid: int, weight: float, why: str) -> None:
        raise UsageError("a job's weight is given on its node: say `autocap budget weight` there")

    def end(self, why: str) -> None:
        self.ended_because = self.ended_because or why

    def standing(self) -> Standing:
        """How it stands."""
        heard = {name: self._parts.books[name] for name in self._nodes.names if self._parts.is_heard(name)}
        powers_w = [books.power_w for books in heard.values()]
        known_w = [w for w in powers_w if w is not None]
        outside = tuple(
            f"{name} is outside the budget, and counted with its limits found: {why}"
            for name, why in self._nodes.gone.items()
        )
        return Standing(
            budget_w=self._parts.budget_w,
            policy=self._policy,
            reserved_w=sum(books.reserved_w for books in heard.values()),
            room_w=self._parts.room_w,
            power_w=sum(known_w) if len(known_w) == len(self._nodes.names) else None,
            short_w=self._decision.short_w,
            pause=self._decision.pause,
            jobs=tuple(
                replace(job.at, node=name, lowest_w=job.caps_w[0])
                for name, books in heard.items()
                for job in books.jobs
            ),
            free=tuple(uuid for books in heard.values() for uuid in books.free),
            record=self._directory,
            pid=os.getpid(),
            follows=self._course.follows,
            failed=(*outside, *(f"{name}: {text}" for name, books in heard.items() for text in books.failed)),
        )

    def _apply(self, why: str) -> None:
        now_s, watts = self._clock.now(), self._course.watts
        self._parts.budget(now_s, watts)
        self._parts.policy(self._policy)
        self._nodes.policy = self._policy
        self._keep()
        self._say(budget.BudgetChanged(t_s=now_s, budget_w=watts, policy=self._policy, why=why))
        self._turn()

    def _keep(self) -> None:
        state = BudgetState(
            asked_w=self._course.asked_w,
            watts=self._course.there_w,
            policy=self._policy,
            began_wall_s=self._course.began_wall_s,
            record=self._directory,
            spans=self._course.spans,
        )
        save(self._state_dir, state, SITE_STATE)

    def _obey(self, signum: int) -> None:
        if signum in ENDING:
            self.end(ASKED)
        elif signum == signal.SIGHUP:
            self._course.read_again()

    def _readings(self, now_s: float) -> tuple[Reading, ...]:
        """Of all devices, in the order of the nodes."""
        made: list[Reading] = []
        for name in self._nodes.names:
            books, found = self._parts.books[name], self._nodes.found[name]
            powers_w = books.powers_w if self._parts.is_heard(name) else ()
            made += [Reading(t_s=now_s, power_w=w) for w in (*powers_w, *[None] * len(found.gpus))[: len(found.gpus)]]
        return tuple(made)

    def _warn(self, text: str) -> None:
        self._say(events.Warned(t_s=self._clock.now(), text=text))


def _below(watts: float, floor_w: float) -> str:
    return f"{watts:g} W are less than the {floor_w:.0f} W that the lowest caps of all nodes take; give that or more"
