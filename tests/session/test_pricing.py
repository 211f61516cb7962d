"""A session with prices or under a budget: who decides hears of prices and ceilings as they change, and of none where
none are known; and what is known reaches the budget."""

from dataclasses import dataclass, field

from autocap.controller.context import Action, Announce, SetCaps
from autocap.controller.known_curve import KnownCurve
from autocap.events import Sourced, State, Warned
from autocap.events.quote import CARBON, PRICE, Quote
from autocap.records import Measurement
from autocap.session.prices.reading import Said
from autocap.session.prices.series import Series
from autocap.session.pricing import BudgetLink, PriceLink
from autocap.sweep.running import WholeRun
from tests.doubles.feeds import prediction

T0 = 1_769_875_200.0
STEPS = ((T0, 0.1), (T0 + 3600, 0.2))
HOURLY = Said(kind=PRICE, series=Series(kind=PRICE, currency="EUR", steps=STEPS, until_s=T0 + 7200))


@dataclass
class Feed:
    sources: dict[str, str] = field(default_factory=lambda: {PRICE: "file:rows.csv"})
    waiting: list[Said] = field(default_factory=list)

    def news(self) -> list[Said]:
        heard, self.waiting = self.waiting, []
        return heard


@dataclass
class Decider:
    heard: list[tuple[float, str, Quote | None]] = field(default_factory=list)

    def quote(self, t_s: float, kind: str, quote: Quote | None) -> list[Action]:
        self.heard.append((t_s, kind, quote))
        return []


@dataclass
class Wall:
    """The time of day, ahead of the run's clock by an offset."""

    ahead_s: float = T0 - 100.0
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s + self.ahead_s


class Scene:
    def __init__(self, feed: Feed) -> None:
        self.feed, self.decider, self.wall = feed, Decider(), Wall()
        self.link = PriceLink(feed, self.decider, self.wall)

    def at(self, now_s: float, *said: Said) -> list[Sourced | Warned]:
        self.feed.waiting += said
        self.wall.now_s = now_s
        actions = self.link.heed(now_s)
        assert all(isinstance(action, Announce) for action in actions)
        return [action.event for action in actions]  # type: ignore[union-attr,misc]


def test_who_decides_hears_of_a_value_when_it_is_known_and_when_it_ends() -> None:
    scene = Scene(Feed())
    scene.at(0.0)
    assert scene.decider.heard == []
    assert scene.at(120.0, HOURLY) == [Sourced(t_s=120.0, kind=PRICE, source="'file:rows.csv'", currency="EUR")]
    scene.at(130.0, HOURLY)  # the same again
    first = Quote(kind=PRICE, values=((100.0, 0.1), (3700.0, 0.2)), until_s=7300.0)
    assert scene.decider.heard == [(120.0, PRICE, first)]
    for now_s in (3699.0, 3700.0, 7299.0, 7300.0, 9000.0):
        scene.at(now_s)
    assert scene.decider.heard[1:] == [
        (3700.0, PRICE, Quote(kind=PRICE, values=((3700.0, 0.2),), until_s=7300.0)),
        (7300.0, PRICE, None),
    ]


def test_a_source_that_cannot_be_read_is_said_and_what_was_read_counts_on() -> None:
    scene = Scene(Feed())
    (warned,) = scene.at(0.0, Said(kind=PRICE, trouble="rows.csv lacks the column time"))
    assert isinstance(warned, Warned)
    assert warned.text == ("the energy price cannot be read: rows.csv lacks the column time; until it can, none counts")
    assert scene.decider.heard == [(0.0, PRICE, None)]
    scene.at(200.0, HOURLY)
    (warned,) = scene.at(300.0, Said(kind=PRICE, trouble="gone"))
    assert isinstance(warned, Warned)
    assert warned.text.endswith("gone; until it can, what was read before counts")
    assert len(scene.decider.heard) == 2


def test_a_source_that_fails_in_ever_new_ways_is_not_said_without_end() -> None:
    scene = Scene(Feed())
    said = [scene.at(60.0 * place, Said(kind=PRICE, trouble=f"fault {place}")) for place in range(100)]
    assert sum(map(len, said)) == 20


def test_both_kinds_are_told_apart() -> None:
    scene = Scene(Feed(sources={PRICE: "file:p", CARBON: "gb"}))
    known = Series(kind=CARBON, currency=None, steps=((T0 - 50, 300.0),), until_s=T0 + 1000)
    carbon = Said(kind=CARBON, series=known)
    scene.at(120.0, HOURLY, carbon)
    told = [(kind, quote and quote.at(120.0)) for _, kind, quote in scene.decider.heard]
    assert told == [(PRICE, 0.1), (CARBON, 300.0)]


def test_where_the_time_of_day_is_set_the_times_are_told_anew() -> None:
    scene = Scene(Feed())
    scene.at(120.0, HOURLY)
    scene.wall.ahead_s += 3600.0  # a machine that slept for an hour, or a clock that was put right
    scene.at(130.0)
    assert scene.decider.heard[-1] == (130.0, PRICE, Quote(kind=PRICE, values=((100.0, 0.2),), until_s=3700.0))


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
