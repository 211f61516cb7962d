"""A node's end of the line to its site: takes parts of the budget, tells how the node stands, and lets a part lapse.

Its manager sees to it in the same thread that hears clients, so that nothing is between a word and the caps."""

import math
import select
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autocap.clock import Clock
from autocap.errors import UsageError
from autocap.limits.lease import Lease
from autocap.limits.times import PART_HOLDS_S, SITE_GONE_S
from autocap.plugins.fleet.budget.words import Standing
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.hall import Hall
from autocap.plugins.fleet.manager.loop import Manager
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.nodes.agent.standard_streams import Inbox, Outbox
from autocap.plugins.fleet.nodes.protocol import Books, Deed, Do, JobBooks, Message, Share

_DIGITS = 6
_NEAR_W = 0.01


def books_of(steward: Steward, *, number: int, serial: int) -> Books:
    """number, serial: as `Books` has them. Where a part is held it is the ledger's budget, and may all be in force."""
    ledger, now = steward.ledger, steward.standing(policy="", record="")
    of_jobs_w = sum(len(one.devices) * ledger[one.name].lowest_w for one in now.jobs)
    charged_w = ledger.budget_w - ledger.room_w
    reserved_w = steward.rest.reserved_w
    return Books(
        number=number,
        serial=serial,
        may_w=max(charged_w, ledger.budget_w if serial else 0.0),
        floor_w=ledger.least_w,
        fixed_w=ledger.least_w - of_jobs_w,
        found_w=sum(steward.caps.counted_w.get(gpu, w) for gpu, w in enumerate(steward.caps.found_w)) + reserved_w,
        reserved_w=reserved_w,
        jobs=tuple(
            JobBooks(at=replace(one, doubt=None, most_slowdown=_most(steward, one.name)), **_curve(steward, one.name))
            for one in now.jobs
        ),
        free=now.free,
        powers_w=tuple(reading.power_w for reading in steward.readings),
        power_w=now.power_w,
        failed=now.failed,
    )


def _most(steward: Steward, name: str) -> float | None:
    """The slowdown that is kept to as long as the budget holds for all."""
    most = steward.ledger[name].curve.most_slowdown
    return most if most < math.inf else None


def _curve(steward: Steward, name: str) -> dict[str, tuple[float, ...]]:
    curve = steward.ledger[name].wanted()
    caps_w, slowdown, energy = (
        tuple(float(f"{value:.{_DIGITS}g}") for value in column)
        for column in (curve.caps_w, curve.slowdown, np.maximum(curve.energy, 1e-6))
    )
    return {"caps_w": caps_w, "slowdown": slowdown, "energy": energy}


class Bond:
    """What a node owes its site. number: of this node. policy: as the site has said.
    end: the number of the deed that has ended it, `None` before.

    It begins without a part, as if nothing had ever been heard.
    """

    def __init__(self, number: int, steward: Steward, now_s: float) -> None:
        self._number, self._steward = number, steward
        self._lease = Lease(now_s, restore_s=PART_HOLDS_S, leave_s=SITE_GONE_S)
        self._lease.lapses_at_once()
        self._word, self._serial = 0, 0
        self.policy = Policy.FAIR
        self.end: int | None = None

    def hear(self, t_s: float, message: Message) -> bool:
        """Do what a message of the site asks for; whether it is to be answered with books."""
        self._lease.word(t_s)
        if isinstance(message, Do) and message.what is Deed.END:
            self.end = message.number
        if not isinstance(message, Share) or self._number >= len(message.serials):
            return False
        self._word = message.number
        if self._number < len(message.since):
            self._lease.heard(message.number - message.since[self._number])
        self._lease.answer(message.number, t_s)
        self.policy = Policy(message.policy)
        self._steward.ledger.policy(self.policy)
        self._hold(t_s, message.serials[self._number], message.parts_w[self._number])
        return True

    def pass_time(self, t_s: float) -> bool:
        """Fall to the floor where the lease has ended; whether the site is gone for good."""
        if self._serial and self._lease.is_lapsed(t_s):
            self._hold(t_s, 0, 0.0)
        elif not self._serial:
            self._steward.ledger.budget(t_s, self._steward.ledger.least_w)
        return self._lease.is_over(t_s)

    @property
    def has_part(self) -> bool:
        return self._serial > 0

    def books(self) -> Books:
        """How the node stands."""
        return books_of(self._steward, number=self._word, serial=self._serial)

    def _hold(self, t_s: float, serial: int, part_w: float) -> None:
        ledger = self._steward.ledger
        self._serial = 0 if self._lease.is_lapsed(t_s) else serial
        ledger.budget(t_s, max(part_w, ledger.least_w) if self._serial else ledger.least_w)
        self._steward.act(t_s)


class Tie:
    """The ears of a node's manager: its hall's, and the line to the site."""

    def __init__(
        self, *, bond: Bond, hall: Hall, end: Callable[[str], None], clock: Clock, inbox: Inbox, outbox: Outbox
    ):
        self._bond, self._hall, self._end, self._clock = bond, hall, end, clock
        self._inbox, self._outbox = inbox, outbox
        self._said: Books | None = None

    def watch(self, poll: "select.poll") -> None:
        """As `Ears` has it. A site whose line has ended may come back by another one, and is waited for."""
        self._hall.watch(poll)
        if not self._inbox.ended:
            poll.register(self._inbox.fd, select.POLLIN)

    def serve(self, ready: set[int]) -> None:
        """As `Ears` has it. Raises as the steward."""
        if self._inbox.fd in ready:
            for message in self._inbox.messages():
                if self._bond.hear(self._clock.now(), message):
                    self._tell(anyway=True)
            if self._bond.end is not None:
                self._end("the site has ended it")
        self._hall.serve(ready)

    def pass_time(self) -> None:
        """As `Ears` has it."""
        self._hall.pass_time()
        if self._bond.pass_time(self._clock.now()):
            self._end(f"nothing was heard of its site for {SITE_GONE_S:g} s")
        self._tell(anyway=False)
        self._outbox.flush()

    def _tell(self, *, anyway: bool) -> None:
        books = self._bond.books()
        if anyway or self._said is None or _news(books) != _news(self._said):
            self._said = books
            if not self._outbox.broken:
                self._outbox.put(books)


class NodeControl:
    """What may be asked of a node's part by who speaks to its manager: what is the site's is refused."""

    def __init__(self, manager: Manager, bond: Bond) -> None:
        self._manager, self._bond = manager, bond

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        raise UsageError("this is a node's part of a budget over several nodes; speak to it where that was started")

    def weigh(self, pid: int, weight: float, why: str) -> None:
        self._manager.weigh(pid, weight, why)

    def end(self, why: str) -> None:
        if self._bond.has_part:
            raise UsageError("this node's part is its site's to end; end the budget where that was started")
        self._manager.end(why)

    def standing(self) -> Standing:
        return replace(self._manager.standing(), policy=self._bond.policy)


def _news(books: Books) -> Books:
    """Without what is different every time."""
    jobs = tuple(replace(job, at=replace(job.at, draw_w=None)) for job in books.jobs)
    may_w = round(books.may_w / _NEAR_W) * _NEAR_W
    return replace(books, number=0, powers_w=(), power_w=None, jobs=jobs, may_w=may_w)
