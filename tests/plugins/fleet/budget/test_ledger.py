"""Who may draw how much of a budget, in virtual time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from autocap.plugins.fleet.budget.ledger import LOAN_S, Ledger
from autocap.plugins.fleet.budget.orders import EVERY_S, Decision, Order
from autocap.plugins.fleet.budget.shares import JobCurve, prior
from autocap.plugins.fleet.config import Policy

LOW_W, HIGH_W, STEP_W = 100.0, 300.0, 5.0


def unused() -> JobCurve:
    """What a device has that nobody uses."""
    return JobCurve(caps_w=np.array([LOW_W]), slowdown=np.array([0.0]), energy=np.array([1.0]))


def ledger(budget_w: float, policy: Policy = Policy.FAIR) -> Ledger:
    return Ledger(budget_w, step_w=STEP_W, policy=policy)


def joined(names: str, budget_w: float, *, cap_w: float = LOW_W, policy: Policy = Policy.FAIR) -> Ledger:
    """One that jobs of these names, alike, have just joined."""
    book = ledger(budget_w, policy)
    for name in names:
        book.join(0.0, name, prior(LOW_W, HIGH_W), cap_w)
    return book


def confirmed(ledger: Ledger, t_s: float) -> dict[str, float]:
    """Carry out all orders at once, as often as there are any; the caps in the end."""
    while orders := ledger.decide(t_s).orders:
        for order in orders:
            ledger.confirm(order.name, order.serial)
    return {account.name: account.ordered_w for account in ledger}


def caps_of(decision: Decision) -> dict[str, float]:
    return {order.name: order.cap_w for order in decision.orders}


def test_where_all_fit_all_have_what_they_ask_for() -> None:
    book = ledger(1000.0)
    book.join(0.0, "a", prior(LOW_W, 287.5), 287.5)
    book.join(0.0, "b", prior(LOW_W, HIGH_W, devices=2), HIGH_W)
    assert confirmed(book, 0.0) == {"a": 287.5, "b": HIGH_W}
    book.join(0.1, "free", unused(), HIGH_W)
    assert confirmed(book, 0.1) == {"a": 287.5, "b": HIGH_W, "free": LOW_W}


def test_a_newcomer_gets_its_lowest_cap_until_others_were_lowered() -> None:
    book = ledger(420.0)
    book.join(0.0, "a", prior(LOW_W, HIGH_W), HIGH_W)
    assert confirmed(book, 0.0) == {"a": HIGH_W}
    book.join(1.0, "b", prior(LOW_W, HIGH_W), LOW_W)
    first = book.decide(1.0)
    assert caps_of(first) == {"a": pytest.approx(210.0), "b": LOW_W}
    assert book.decide(1.1).orders == ()  # a's cap may still be 300 W
    for order in first.orders:
        book.confirm(order.name, order.serial)
    assert caps_of(book.decide(1.2)) == {"b": pytest.approx(210.0)}


def test_a_budget_that_falls_lowers_all_in_the_same_call() -> None:
    book = joined("abcd", 1200.0, cap_w=HIGH_W)
    confirmed(book, 0.0)
    book.budget(0.1, 900.0)
    assert caps_of(book.decide(0.1)) == dict.fromkeys("abcd", pytest.approx(225.0))


def test_news_of_a_curve_waits_for_its_turn_and_a_job_that_ends_does_not() -> None:
    book = joined("ab", 400.0)
    confirmed(book, 0.0)
    caps_w = np.array([LOW_W, 120.0, HIGH_W])
    book.curve("a", JobCurve(caps_w=caps_w, slowdown=np.array([0.01, 0.0, 0.0]), energy=np.ones(3)))
    assert book.decide(EVERY_S - 0.1).orders == ()
    assert caps_of(book.decide(EVERY_S))["a"] < 200.0
    book.leave(EVERY_S + 0.1, "a")
    assert confirmed(book, EVERY_S + 0.1) == {"b": HIGH_W}


def test_what_a_job_does_not_draw_is_for_others_until_its_cap_binds() -> None:
    book = joined("ab", 400.0)
    assert confirmed(book, 0.0) == {"a": 200.0, "b": 200.0}
    book.drew("a", 150.0)
    book.drew("b", 199.0)
    after = confirmed(book, EVERY_S)
    assert after == {"a": pytest.approx(155.0, abs=STEP_W), "b": pytest.approx(245.0, abs=STEP_W)}
    book.drew("a", after["a"])
    assert confirmed(book, 2 * EVERY_S) == {"a": 200.0, "b": 200.0}


def test_a_change_of_less_than_a_step_disturbs_nobody() -> None:
    book = joined("ab", 400.0)
    confirmed(book, 0.0)
    book.budget(10.0, 400.8)
    assert book.decide(10.0).orders == ()


def test_an_order_that_nobody_confirms_is_given_again() -> None:
    book = ledger(400.0)
    book.join(0.0, "a", prior(LOW_W, HIGH_W), LOW_W)
    (order,) = book.decide(0.0).orders
    assert book.decide(0.5).orders == ()
    assert book.decide(1.0).orders == (order,)
    book.confirm("a", order.serial + 1)
    assert book.decide(2.0).orders == (order,)


def test_a_confirmation_that_comes_late_frees_nothing() -> None:
    book = joined("ab", 600.0, cap_w=HIGH_W)
    first = {order.name: order for order in book.decide(0.0).orders}
    book.budget(1.0, 400.0)
    book.decide(1.0)
    for name, order in first.items():
        book.confirm(name, order.serial)
    assert book.room_w == pytest.approx(-200.0)


def test_lowest_caps_above_the_budget_are_told_with_who_would_have_to_pause() -> None:
    book = joined("abcd", 350.0, cap_w=HIGH_W)
    decision = book.decide(0.0)
    assert set(caps_of(decision).values()) == {LOW_W}
    assert (decision.short_w, decision.pause) == (pytest.approx(50.0), ("d",))


def test_what_is_reserved_is_no_jobs() -> None:
    book = joined("ab", 500.0)
    book.reserve(100.0)
    assert confirmed(book, 0.0) == {"a": 200.0, "b": 200.0}
    book.reserve(200.0)
    assert confirmed(book, 0.1) == {"a": 150.0, "b": 150.0}


def measured(error: float, top_w: float = HIGH_W) -> JobCurve:
    """Half as slow as a prior has it. error: of all of it."""
    guess = prior(LOW_W, top_w)
    return JobCurve(
        caps_w=guess.caps_w, slowdown=guess.slowdown / 2, energy=guess.energy, slowdown_stderr=error, energy_stderr=0.01
    )


def test_a_job_whose_baseline_is_only_estimated_is_lent_its_limit_until_it_is_measured() -> None:
    book = joined("abcdefgh", 2000.0)
    confirmed(book, 0.0)
    for name in "abc":
        book.curve(name, measured(0.03))
    lent = confirmed(book, EVERY_S)
    full = [name for name, cap_w in lent.items() if cap_w == HIGH_W]
    assert full  # some of them,
    assert set(full) < set("abc")  # as not all can be at a time
    assert sum(lent.values()) <= 2000.0
    assert len({lent[name] for name in "defgh"}) <= 2  # the others are as equal as whole steps let them be
    for name in full:
        book.curve(name, measured(0.001))
    after = confirmed(book, 2 * EVERY_S)
    assert all(after[name] < 0.9 * HIGH_W for name in full)
    assert HIGH_W in after.values()  # the next one's turn


def test_a_loan_that_comes_to_nothing_ends_and_is_not_given_again_soon() -> None:
    book = joined("abcd", 1000.0)
    book.curve("a", measured(0.03))
    assert confirmed(book, 0.0)["a"] == HIGH_W
    assert confirmed(book, LOAN_S - 1)["a"] == HIGH_W
    assert confirmed(book, LOAN_S)["a"] < 0.9 * HIGH_W
    book.curve("a", measured(0.031))
    assert confirmed(book, LOAN_S + 60)["a"] < 0.9 * HIGH_W


def test_who_leaves_and_comes_back_or_says_something_else_for_a_while_is_lent_nothing_anew() -> None:
    book = joined("bcd", 1000.0)
    book.join(0.0, "a", prior(LOW_W, HIGH_W), LOW_W, "its GPU")
    book.curve("a", measured(0.03))
    assert confirmed(book, 0.0)["a"] == HIGH_W
    book.curve("a", measured(0.001))
    assert confirmed(book, EVERY_S)["a"] < 0.9 * HIGH_W
    book.curve("a", measured(0.03))
    assert confirmed(book, 2 * EVERY_S)["a"] < 0.9 * HIGH_W
    book.leave(3 * EVERY_S, "a")
    book.join(3 * EVERY_S, "a again", prior(LOW_W, HIGH_W), LOW_W, "its GPU")
    book.curve("a again", measured(0.03))
    assert confirmed(book, 4 * EVERY_S)["a again"] < 0.9 * HIGH_W
    book.curve("a again", measured(0.031))
    assert confirmed(book, 2000.0)["a again"] == HIGH_W


def test_a_loan_ends_with_the_tuner_that_had_it() -> None:
    book = joined("abcd", 1000.0)
    book.curve("a", measured(0.03))
    assert confirmed(book, 0.0)["a"] == HIGH_W
    book.unattended("a")
    assert confirmed(book, EVERY_S)["a"] < 0.9 * HIGH_W


@pytest.mark.parametrize("policy", [Policy.FAIR, Policy.ENERGY])
def test_nothing_is_lent_that_others_cannot_give_nor_where_joules_alone_count(policy: Policy) -> None:
    book = joined("abcd", 420.0 if policy is Policy.FAIR else 1000.0, policy=policy)
    book.curve("a", measured(0.03))
    assert confirmed(book, 0.0)["a"] < 0.9 * HIGH_W


def test_what_nobody_has_to_spare_is_not_lent() -> None:
    book = ledger(1200.0)
    book.join(0.0, "a", prior(LOW_W, HIGH_W, devices=4), HIGH_W)
    book.curve("a", replace(measured(0.03), devices=4))
    assert confirmed(book, 0.0) == {"a": HIGH_W}
    book.budget(EVERY_S, 1094.0)  # nine percent less, which would be within what may be lent
    assert confirmed(book, EVERY_S)["a"] <= 1094.0 / 4


class World(RuleBasedStateMachine):
    """Jobs, and what they really have set: orders arrive late, out of order or never."""

    @initialize(budget_w=st.floats(50, 3000), policy=st.sampled_from(Policy), reserved_w=st.floats(0, 100))
    def begin(self, budget_w: float, policy: Policy, reserved_w: float) -> None:
        self.book = ledger(budget_w, policy)
        self.change_reserve(reserved_w)
        self.t_s, self.born = 0.0, 0
        self.caps_w: dict[str, float] = {}
        self.had: dict[str, int] = {}  # the serial of the latest order that was carried out
        self.on_the_way: list[Order] = []
        self.answers: list[Order] = []

    def names(self) -> list[str]:
        return list(self.caps_w)

    @rule(cap_w=st.floats(LOW_W, HIGH_W), devices=st.integers(1, 4), draws=st.floats(LOW_W, HIGH_W))
    def join(self, cap_w: float, devices: int, draws: float) -> None:
        self.born += 1
        name = f"job {self.born}"
        self.book.join(self.t_s, name, prior(LOW_W, draws, devices=devices), cap_w)
        self.caps_w[name] = cap_w

    @precondition(lambda self: self.caps_w)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.names()))
        self.book.leave(self.t_s, name)
        del self.caps_w[name]

    @rule(watts=st.floats(50, 3000))
    def change_budget(self, watts: float) -> None:
        self.book.budget(self.t_s, watts)

    @rule(watts=st.floats(0, 200))
    def change_reserve(self, watts: float) -> None:
        self.reserved_w = watts
        self.book.reserve(watts)

    @precondition(lambda self: self.caps_w)
    @rule(data=st.data(), share=st.floats(0.3, 1))
    def draw(self, data: st.DataObject, share: float) -> None:
        name = data.draw(st.sampled_from(self.names()))
        self.book.drew(name, share * self.caps_w[name])

    @rule(seconds=st.floats(0, 4))
    def pass_time(self, seconds: float) -> None:
        self.t_s += seconds

    @rule()
    def decide(self) -> None:
        before_w = self.book.room_w
        decision = self.book.decide(self.t_s)
        self.on_the_way += decision.orders
        assert self.book.room_w >= min(before_w, 0) - 1e-3  # nothing that was decided takes more than there is

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        order = self.on_the_way.pop(data.draw(st.integers(0, len(self.on_the_way) - 1)))
        if order.name in self.caps_w and order.serial > self.had.get(order.name, 0):
            self.caps_w[order.name], self.had[order.name] = order.cap_w, order.serial
            self.answers.append(order)

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.on_the_way.pop(data.draw(st.integers(0, len(self.on_the_way) - 1)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        order = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.book.confirm(order.name, order.serial)

    @precondition(lambda self: self.caps_w)
    @rule(data=st.data(), error=st.sampled_from([0.001, 0.03]))
    def learn(self, data: st.DataObject, error: float) -> None:
        name = data.draw(st.sampled_from(self.names()))
        self.book.curve(name, replace(measured(error), devices=self.book[name].curve.devices))

    @rule()
    def come_to_rest(self) -> None:
        """Everything arrives: then the budget is kept, or all are at their lowest caps."""
        self.t_s += EVERY_S
        for _ in range(4):
            for order in self.book.decide(self.t_s).orders:
                self.caps_w[order.name] = order.cap_w
                self.had[order.name] = max(order.serial, self.had.get(order.name, 0))
                self.book.confirm(order.name, order.serial)
            self.t_s += 1.0
        self.on_the_way, self.answers = [], []
        taken_w = sum(self.book[name].curve.devices * cap_w for name, cap_w in self.caps_w.items()) + self.reserved_w
        floors = all(cap_w <= LOW_W + 1e-3 for cap_w in self.caps_w.values())
        assert taken_w <= self.book.budget_w + 1e-3 or floors
        assert not self.book.decide(self.t_s).orders

    @invariant()
    def nothing_in_force_is_unaccounted_for(self) -> None:
        for name, cap_w in getattr(self, "caps_w", {}).items():
            assert cap_w <= self.book[name].standing_w + 1e-9


World.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
