"""A session with prices: who decides hears of them as they change, and of none where none are known."""

from dataclasses import dataclass, field

from autocap.controller.actions import Action, Announce
from autocap.events import Sourced, Warned
from autocap.events.quote import CARBON, PRICE, Quote
from autocap.session.prices.reading import Said
from autocap.session.prices.series import Series
from autocap.session.pricing import PriceLink

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
