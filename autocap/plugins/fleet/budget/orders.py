"""In which order shares of a budget are taken and given. Pure: told the time, it gives orders.

Whoever has a share is charged with the highest one that may be in force: with what it had until less is confirmed,
with more from the moment at which it is ordered. Nobody is raised while that sum, with what is reserved, would leave
the budget. So it is kept in whatever order those who have shares come, go, fall silent and answer, but for the moments
in which a budget that fell, or somebody who came with a share of their own, is being answered by orders to lower.

Watts are of the cap of one of a job's devices; `charged_w` is of all."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autocap.limits.times import ORDER_AGAIN_S
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.config import Policy

SLACK_W = 5.0  # that a cap stays above the draw of a job whom it does not bind
EVERY_S = 5.0  # between two times at which shares are given anew, unless somebody needs room at once
ROUNDING_W = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A cap for all devices of a job, watts. serial: of this order; whoever carries it out disregards an order whose
    serial is lower than one it has had, and confirms with it."""

    name: str
    cap_w: float
    serial: int


@dataclass(slots=True, kw_only=True)
class Account:
    """ordered_w: by the latest order; the cap found where there was none yet. standing_w: the highest cap that may be
    in force, which is higher until that order is confirmed. target_w: what the job is to have, `None` until caps were
    shared among all. order: the latest, `None` once it is confirmed; sent_s: when it was last sent. lost_s: when it was
    last heard of, `None` while it is. draw_w: what its devices draw at most, where no cap binds them. weight: in place
    of its curve's. measures: whether somebody measures what caps cost it. place: its devices, by which it is known that
    somebody was there before.
    """

    name: str
    curve: JobCurve
    ordered_w: float
    standing_w: float
    target_w: float | None = None
    expected: float = 0.0
    order: Order | None = None
    sent_s: float = 0.0
    told: bool = False
    lost_s: float | None = None
    draw_w: float | None = None
    weight: float | None = None
    measures: bool = False
    place: str = ""

    @property
    def lowest_w(self) -> float:
        """The lowest cap that may be set."""
        return float(self.curve.caps_w[0])

    @property
    def charged_w(self) -> float:
        """What it takes of the budget, whatever it draws."""
        return self.curve.devices * self.standing_w

    def wanted(self) -> JobCurve:
        """The curve, up to what its devices draw and some slack: a cap above that is of no use to it."""
        curve = self.curve if self.draw_w is None else self.curve.up_to(self.draw_w + SLACK_W)
        return curve if self.weight is None else replace(curve, weight=self.weight)

    def drew(self, watts: float) -> bool:
        """Take in what a device draws at most; whether that changes what the job wants. A cap binds where the draw
        comes near it: then the draw says nothing of what the job would take."""
        before_w = self.draw_w
        if watts > self.standing_w - SLACK_W / 2:
            self.draw_w = None
        elif self.draw_w is not None or watts + SLACK_W <= self.standing_w:
            self.draw_w = watts
        if before_w is None or self.draw_w is None:
            return before_w is not self.draw_w
        if abs(before_w - self.draw_w) < SLACK_W:
            self.draw_w = before_w
        return self.draw_w != before_w


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """orders: to be carried out now, those that lower first. short_w: by how much the lowest caps of all exceed the
    budget, watts. pause: the jobs that would have to be paused for it to be kept, the latest first."""

    orders: tuple[Order, ...]
    short_w: float = 0.0
    pause: tuple[str, ...] = ()


class Orders(ABC):
    """budget_w: watts for all.

    Times are seconds on one clock that does not go back.
    """

    def __init__(self, budget_w: float, *, policy: Policy) -> None:
        self.budget_w, self._reserved_w, self._policy = budget_w, 0.0, policy
        self._accounts: dict[str, Account] = {}
        self._shared_s = -np.inf
        self._stale = self._urgent = False
        self._serial = 0

    @abstractmethod
    def _share(self, t_s: float) -> None:
        """Give all who are heard of a target."""

    @property
    def room_w(self) -> float:
        """What is left of the budget; below 0 while it is exceeded, watts."""
        return self.budget_w - self._reserved_w - sum(one.charged_w for one in self._accounts.values())

    @property
    def least_w(self) -> float:
        """What is taken even if all is done to lower it, watts."""
        return sum(self._least_w(one) for one in self._accounts.values()) + self._reserved_w

    def __getitem__(self, name: str) -> Account:
        return self._accounts[name]

    def __contains__(self, name: str) -> bool:
        return name in self._accounts

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def join(self, t_s: float, name: str, curve: JobCurve, cap_w: float, place: str = "") -> None:
        """A job has come; a device that nobody uses is one whose curve has its lowest cap alone. cap_w: in force at its
        devices. place: these, where its name says nothing of them."""
        if name in self._accounts:
            raise ValueError(f"{name} has joined already")
        self._accounts[name] = Account(name=name, curve=curve, ordered_w=cap_w, standing_w=cap_w, place=place or name)
        self._stale = self._urgent = True

    def leave(self, t_s: float, name: str) -> None:
        """It has ended, and draws nothing of this budget any more."""
        del self._accounts[name]
        self._stale = self._urgent = True

    def rename(self, name: str, other: str) -> None:
        """It goes by another name from now on."""
        self._accounts = {other if one == name else one: account for one, account in self._accounts.items()}
        account = self._accounts[other]
        account.name = other
        if account.order is not None:
            account.order = replace(account.order, name=other)

    def budget(self, t_s: float, watts: float) -> None:
        """From now on there are so many."""
        if watts != self.budget_w:
            self.budget_w, self._stale, self._urgent = watts, True, True

    def reserve(self, watts: float) -> None:
        """For what is no job, such as the machines themselves, and for the sensors' errors."""
        if watts != self._reserved_w:
            self._reserved_w, self._stale = watts, True
            self._urgent |= self.room_w < 0

    def policy(self, policy: Policy) -> None:
        if policy is not self._policy:
            self._policy, self._stale, self._urgent = policy, True, True

    def confirm(self, name: str, serial: int) -> None:
        """An order's cap was read back, and no more than that is drawn. One that another has followed is as good as
        none."""
        account = self._accounts.get(name)
        if account is not None and account.order is not None and account.order.serial == serial:
            account.standing_w, account.order = account.ordered_w, None

    def decide(self, t_s: float) -> Decision:
        """What is to be ordered now. To be asked often: also whether those were lowered who make room for others."""
        if self._stale and (self._urgent or t_s >= self._shared_s + EVERY_S):
            self._shared_s, self._stale, self._urgent = t_s, False, False
            self._share(t_s)
        orders = (*self._lower(t_s), *self._raise(t_s), *self._again(t_s))
        short_w = self.least_w - self.budget_w
        if short_w <= ROUNDING_W:
            return Decision(orders=orders)
        return Decision(orders=orders, short_w=short_w, pause=self._to_pause(short_w))

    def _lower(self, t_s: float) -> list[Order]:
        orders = []
        for account in self._reachable():
            target_w = account.target_w
            assert target_w is not None
            if not account.told:
                orders.append(self._order(account, self._first_w(account, target_w), t_s))
            elif target_w < account.ordered_w:
                orders.append(self._order(account, target_w, t_s))
        return orders

    def _first_w(self, account: Account, target_w: float) -> float:
        """Of a newcomer, which comes with caps of somebody else's: what can be had now, or else the least until others
        were lowered."""
        if account.curve.devices * target_w <= self.room_w + account.charged_w + ROUNDING_W:
            return target_w
        return account.ordered_w if account.ordered_w <= target_w else account.lowest_w

    def _raise(self, t_s: float) -> list[Order]:
        orders, room_w = [], self.room_w
        waiting = [one for one in self._reachable() if one.target_w is not None and one.target_w > one.ordered_w]
        for account in sorted(waiting, key=lambda one: one.ordered_w - (one.target_w or 0.0)):
            assert account.target_w is not None
            more_w = account.curve.devices * max(0.0, account.target_w - account.standing_w)
            if more_w <= room_w + ROUNDING_W:
                orders.append(self._order(account, account.target_w, t_s))
                room_w -= more_w
        return orders

    def _again(self, t_s: float) -> list[Order]:
        orders = []
        for account in self._reachable():
            if account.order is not None and t_s >= account.sent_s + ORDER_AGAIN_S:
                account.sent_s = t_s
                orders.append(account.order)
        return orders

    def _order(self, account: Account, cap_w: float, t_s: float) -> Order:
        self._serial += 1
        order = Order(name=account.name, cap_w=cap_w, serial=self._serial)
        account.order, account.ordered_w, account.sent_s, account.told = order, cap_w, t_s, True
        account.standing_w = max(account.standing_w, cap_w)
        return order

    def _reachable(self) -> Iterator[Account]:
        return (one for one in self._accounts.values() if one.lost_s is None and one.target_w is not None)

    def _least_w(self, account: Account) -> float:
        """What it takes even if all is done to lower it."""
        return account.charged_w if account.lost_s is not None else account.curve.devices * account.lowest_w

    def _to_pause(self, short_w: float) -> tuple[str, ...]:
        """The latest first: who came earlier was promised more."""
        names = []
        for account in reversed(self._accounts.values()):
            if short_w <= ROUNDING_W:
                break
            names.append(account.name)
            short_w -= self._least_w(account)
        return tuple(names)
