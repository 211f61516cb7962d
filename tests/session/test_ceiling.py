"""A session under a budget: ceilings reach who decides, and what is known reaches the budget."""

from dataclasses import dataclass, field

from autocap.controller.actions import Action, SetCaps
from autocap.controller.known_curve import KnownCurve
from autocap.events import State
from autocap.records import Measurement
from autocap.session.pricing import BudgetLink
from autocap.sweep.running import WholeRun
from tests.doubles.feeds import prediction

BASELINE = Measurement(
    setting=(250.0, 250.0), start_s=0.0, duration_s=10.0, iterations=100.0, period_s=0.1, period_rel_stderr=0.01,
    power_w=400.0, power_rel_stderr=0.01, energy_per_iteration_j=40.0, energy_rel_stderr=0.02, time_energy_corr=0.5,
    cap_binding=True, sm_clock_hz=None, valid=True,
)  # fmt: skip


CURVE = KnownCurve(
    baseline=BASELINE,
    points=(
        prediction(100.0, 0.9, 1.5, energy_error=0.02, time_error=1e9),
        *(prediction(w, 0.9, time, energy_error=0.02) for w, time in ((150.0, 1.1), (200.0, 1.02), (250.0, 1.0))),
    ),
    asked_w=150.0,
)


@dataclass
class Held:
    """A budget."""

    ceiling_w: float | None = None
    published: list[tuple[bool, float | None]] = field(default_factory=list)

    def publish(self, curve: KnownCurve, *, searching: bool, max_slowdown: float | None) -> None:
        self.published.append((searching, max_slowdown))


@dataclass
class Granted:
    curve: KnownCurve | None = None
    state: State = State.SEARCHING
    max_slowdown: float | None = None
    heard: list[tuple[float, float | None]] = field(default_factory=list)

    def grant(self, t_s: float, ceiling_w: float | None) -> list[Action]:
        self.heard.append((t_s, ceiling_w))
        return [SetCaps(settings=(100.0,))]


def test_a_ceiling_is_told_once_each_time_it_changes() -> None:
    budget, decider = Held(ceiling_w=200.0), Granted()
    link = BudgetLink(budget, decider)
    assert link.heed(1.0) == [SetCaps(settings=(100.0,))]
    assert link.heed(2.0) == []
    budget.ceiling_w = 150.0
    link.heed(3.0)
    assert decider.heard == [(1.0, 200.0), (3.0, 150.0)]


def test_what_is_known_is_published_now_and_then() -> None:
    budget, decider = Held(), Granted(curve=CURVE, max_slowdown=0.05)
    link = BudgetLink(budget, decider)
    for t_s in (0.0, 1.0, 6.0):
        link.heed(t_s)
    decider.state = State.HOLDING
    link.heed(7.0)
    link.heed(12.0)
    assert budget.published == [(True, 0.05), (True, 0.05), (False, 0.05)]


def test_without_a_budget_nothing_is_told() -> None:
    assert BudgetLink(None, Granted(curve=CURVE)).heed(1.0) == []


def test_who_decides_without_curves_tells_nothing_of_them() -> None:
    budget = Held(ceiling_w=100.0)
    assert BudgetLink(budget, WholeRun((250.0,), 0.0, 0.1)).heed(1.0) == []
    assert budget.published == []
