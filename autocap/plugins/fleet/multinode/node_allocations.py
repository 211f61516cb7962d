"""Which part of a budget each of several nodes has, and what the record says of their jobs. Pure: told the time and
what the nodes say.

A node is charged with its part until it has confirmed that no more than a lower one may be in force there. One that is
not heard keeps it until its lease has ended, and has its floor afterwards, where it has fallen by itself; once it may
have left, or is known to be gone, its limits are as they were found, and so it is charged with these."""

import math
from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from autocap.events import Event
from autocap.limits.times import LEASE_S, NODE_SILENT_S, SITE_GONE_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.orders import ROUNDING_W, Account, Decision, Order, Orders
from autocap.plugins.fleet.budget.protocol import JobStanding
from autocap.plugins.fleet.budget.shares import STEP_W, Curves, JobCurve, in_steps
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.nodes.protocol import JobReport, NodeReport

_NEAR_W = 0.05  # a cap that differs by less is the same
_LEFT = "it computes no more"


class NodeAllocations(Orders):
    """budget_w: watts for all nodes. The account of a node is of its part: the cap of an order is that.

    A lease, from the last answer that we heard, is what a node has for itself, and a second to lower its caps.
    """

    def __init__(self, budget_w: float, *, policy: Policy = Policy.FAIR) -> None:
        super().__init__(budget_w, policy=policy)
        self.books: dict[str, NodeReport] = {}
        self._heard_s: dict[str, float] = {}
        self._answered_s: dict[str, float] = {}
        self._gone: set[str] = set()
        self._serials: dict[str, int] = {}
        self._caps_w: dict[tuple[str, str], float] = {}  # by node and job

    @property
    def floor_w(self) -> float:
        """What all nodes take at least."""
        return sum(books.floor_w for books in self.books.values())

    def part(self, name: str) -> tuple[int, float]:
        """The serial and the watts of what a node may have; 0 of both for its floor."""
        if name not in self or not self[name].told:
            return 0, 0.0
        return self._serials[name], self[name].ordered_w

    def report(self, t_s: float, name: str, books: NodeReport, answered_s: float) -> None:
        """A node says how it stands. answered_s: when the latest word was said that it has answered."""
        before = self.books.get(name)
        self.books[name], self._heard_s[name] = books, t_s
        self._answered_s[name] = max(answered_s, self._answered_s.get(name, answered_s))
        if before is None:
            self.join(t_s, name, _floor(books.floor_w), books.may_w)
            return
        account = self[name]
        if before.floor_w != books.floor_w:
            account.curve = _floor(books.floor_w)
        self._note(before, books)
        self._gone.discard(name)
        if not account.told:  # it holds no part of ours, and none that is still under way can hold
            account.lost_s = None
            account.ordered_w = account.standing_w = books.may_w
            self._stale = self._urgent = True
            return
        if account.lost_s is not None:  # within its lease: all that it was told stands
            account.lost_s, self._stale = None, True
        if account.order is None:
            account.standing_w = max(account.ordered_w, books.may_w)
        elif account.order.serial == books.serial and books.may_w <= account.ordered_w + ROUNDING_W:
            self.confirm(name, books.serial)
        else:
            account.standing_w = max(account.standing_w, books.may_w)
        if self.room_w < -ROUNDING_W:
            self._stale = self._urgent = True

    def gone(self, t_s: float, name: str) -> None:
        """What holds a node's limits is known to have ended, so that they are put back."""
        if name in self.books and name not in self._gone:
            self._gone.add(name)
            self[name].told, self[name].order = False, None
            self._lose(t_s, name)

    def is_heard(self, name: str) -> bool:
        """Whether it has a part in what is shared."""
        return name in self and self[name].lost_s is None

    def silence_s(self, t_s: float, name: str) -> float:
        """For how long it has said nothing; 0 before it has said anything."""
        return t_s - self._heard_s.get(name, t_s)

    def decide(self, t_s: float) -> Decision:
        self._end_leases(t_s)
        return super().decide(t_s)

    def _lose(self, t_s: float, name: str) -> None:
        """It is silent, and was last heard of at t_s."""
        if self[name].lost_s is None:
            self[name].lost_s = t_s
        self._stale = True
        self._urgent |= self.room_w < -ROUNDING_W

    def _end_leases(self, t_s: float) -> None:
        for account in self:
            name = account.name
            if account.lost_s is None and t_s > self._heard_s[name] + NODE_SILENT_S:
                self._lose(self._heard_s[name], name)
            if account.lost_s is None:
                continue
            if name in self._gone or t_s >= self._answered_s[name] + SITE_GONE_S:
                may_w = max(self.books[name].found_w, self.books[name].floor_w)
            elif t_s >= account.lost_s + LEASE_S:
                may_w = min(account.standing_w, account.lowest_w)
            else:
                continue
            if account.standing_w != may_w:
                self._stale = self._urgent = True
            account.ordered_w = account.standing_w = may_w
            account.order, account.told = None, False

    def _share(self, t_s: float) -> None:
        there = [one for one in self if one.lost_s is None]
        jobs = [(one.name, job) for one in there for job in self.books[one.name].jobs]
        targets_w = {one.name: self.books[one.name].fixed_w for one in there}
        gone_w = sum(one.charged_w for one in self if one.lost_s is not None)
        left_w = self.budget_w - self._reserved_w - gone_w - sum(targets_w.values())
        if jobs:
            curves = Curves.of([curve_of(job) for _, job in jobs])
            held_w = np.array([self._caps_w.get((node, job.at.name), np.nan) for node, job in jobs])
            caps_w = in_steps(curves, left_w, self._policy, held_w, STEP_W)
            self._caps_w = {(node, job.at.name): float(w) for (node, job), w in zip(jobs, caps_w, strict=True)}
            for (node, job), cap_w in zip(jobs, caps_w, strict=True):
                targets_w[node] += len(job.at.devices) * float(cap_w)
        for one in there:
            one.target_w = max(targets_w[one.name], one.lowest_w)

    def _first_w(self, account: Account, target_w: float) -> float:
        """Of a node that comes, or comes back: what it says may be old, so it stays where it says it is only where that
        is within the budget."""
        first_w = super()._first_w(account, target_w)
        return first_w if first_w == target_w or self.room_w >= -ROUNDING_W else account.lowest_w

    def _order(self, account: Account, cap_w: float, t_s: float) -> Order:
        order = super()._order(account, cap_w, t_s)
        self._serials[account.name] = order.serial
        return order

    def _to_pause(self, short_w: float) -> tuple[str, ...]:
        names = []
        for node, books in reversed(self.books.items()):
            for job in reversed(books.jobs):
                if short_w > ROUNDING_W:
                    names.append(named(node, job))
                    short_w -= len(job.at.devices) * job.caps_w[0]
        return tuple(names)

    def _note(self, before: NodeReport, books: NodeReport) -> None:
        """What of it asks for other parts, and what does so at once."""
        if _shape(before) != _shape(books):
            self._stale = self._urgent = True
        elif before.fixed_w != books.fixed_w or _curves(before) != _curves(books):
            self._stale = True


def named(node: str, job: JobReport) -> str:
    """What reports call a job."""
    return f"{node}: {job.at.name}"


def curve_of(job: JobReport) -> JobCurve:
    """Raises ValueError where it is none."""
    return JobCurve(
        caps_w=np.array(job.caps_w),
        slowdown=np.array(job.slowdown),
        energy=np.array(job.energy),
        devices=len(job.at.devices),
        weight=job.at.weight,
        most_slowdown=math.inf if job.at.most_slowdown is None else job.at.most_slowdown,
    )


def require_sane(books: NodeReport) -> None:
    """Raises ValueError where a number is none, or a curve no curve."""
    for one in fields(books):
        value = getattr(books, one.name)
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{one.name} is {value:g} W")
    for job in books.jobs:
        curve_of(job)
        numbers = {one.name: getattr(job.at, one.name) for one in fields(job.at)}
        unknown = [name for name, value in numbers.items() if isinstance(value, float) and not math.isfinite(value)]
        if unknown:
            raise ValueError(f"{unknown[0]} of a job is no number")


def _floor(floor_w: float) -> JobCurve:
    """The account of a node knows its lowest part alone: targets come from the jobs of all nodes together."""
    return JobCurve(caps_w=np.array([max(floor_w, ROUNDING_W)]), slowdown=np.zeros(1), energy=np.ones(1))


def _shape(books: NodeReport) -> tuple[object, ...]:
    """What never changes but by somebody's coming, going or failing, or by a user's word."""
    return (
        books.found_w,
        books.free,
        books.failed,
        *((job.at.name, job.at.devices, job.at.weight, job.at.tuned) for job in books.jobs),
    )


def _curves(books: NodeReport) -> tuple[object, ...]:
    return tuple((job.caps_w, job.slowdown, job.energy, job.at.most_slowdown) for job in books.jobs)


class EventsFromReports:
    """say: takes what has happened."""

    def __init__(self, say: Callable[[Event], None]) -> None:
        self._say = say
        self._jobs: dict[str, JobStanding] = {}
        self._free_w: dict[str, float] = {}
        self._reserved_w = -1.0
        self._short: tuple[float, tuple[str, ...]] = (0.0, ())
        self._lowering: dict[str, tuple[int, float, float]] = {}  # by node: serial, part, since when

    def write(self, t_s: float, parts: NodeAllocations, decision: Decision) -> None:
        """Say what is different from the last time."""
        for event in (*self._of_jobs(t_s, parts), *self._of_all(t_s, parts, decision), *self._lowered(t_s, parts)):
            self._say(event)
        for order in decision.orders:
            if parts[order.name].standing_w > order.cap_w:
                serial, _, since_s = self._lowering.get(order.name, (None, 0.0, t_s))
                self._lowering[order.name] = (order.serial, order.cap_w, since_s if serial == order.serial else t_s)

    def _of_jobs(self, t_s: float, parts: NodeAllocations) -> Iterator[Event]:
        now = {named(node, job): job.at for node, books in parts.books.items() for job in books.jobs}
        for name in [name for name in self._jobs if name not in now]:
            yield budget.JobLeft(t_s=t_s, name=name, why=_LEFT)
        for name, job in now.items():
            before = self._jobs.get(name)
            if before is None or (before.devices, before.tuned) != (job.devices, job.tuned):
                yield budget.JobJoined(t_s=t_s, name=name, uuids=job.devices, pid=job.pid, tuned=job.tuned)
                before = None
            if job.weight != (1.0 if before is None else before.weight):
                yield budget.JobWeighed(t_s=t_s, name=name, weight=job.weight, why="its node says so")
            ceiling_w = job.ceiling_w or job.cap_w
            if before is None or abs((before.ceiling_w or before.cap_w) - ceiling_w) > _NEAR_W:
                yield budget.CapGranted(t_s=t_s, name=name, cap_w=ceiling_w)
            if before is None or abs(before.cap_w - job.cap_w) > _NEAR_W or before.slowdown != job.slowdown:
                yield budget.CapHeld(
                    t_s=t_s, name=name, cap_w=job.cap_w, slowdown=job.slowdown, slowdown_stderr=job.slowdown_stderr
                )
        self._jobs = now

    def _of_all(self, t_s: float, parts: NodeAllocations, decision: Decision) -> Iterator[Event]:
        reserved_w = sum(books.reserved_w for books in parts.books.values())
        if abs(reserved_w - self._reserved_w) > _NEAR_W:
            self._reserved_w = reserved_w
            yield budget.BudgetReserved(t_s=t_s, reserved_w=reserved_w)
        for node, books in parts.books.items():
            free_w = max(0.0, books.fixed_w - books.reserved_w)  # the caps of its devices that no job has
            if abs(self._free_w.get(node, 0.0) - free_w) > _NEAR_W:
                self._free_w[node] = free_w
                yield budget.CapGranted(t_s=t_s, name=f"{node}: no job", cap_w=free_w)
        short = (round(decision.short_w), decision.pause)
        if short != self._short:
            self._short = short
            yield budget.BudgetShort(t_s=t_s, short_w=decision.short_w, pause=decision.pause)

    def _lowered(self, t_s: float, parts: NodeAllocations) -> Iterator[Event]:
        for name, (_, part_w, since_s) in list(self._lowering.items()):
            if parts[name].order is None:
                del self._lowering[name]
                if parts.is_heard(name):
                    yield budget.CapLowered(t_s=t_s, name=name, cap_w=part_w, after_s=t_s - since_s)
