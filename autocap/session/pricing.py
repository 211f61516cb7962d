"""Between a session and what others decide: prices, carbon and the ceilings of a budget go to who decides, and what is
known of the job to the budget."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from autocap.config.values import shown
from autocap.controller.context import Action, Announce
from autocap.events import Sourced, State, Warned
from autocap.events.quote import Quote
from autocap.session.prices.reading import Said
from autocap.session.prices.series import Series
from autocap.session.roles import Budget, Decider

_LOOK_S = 0.5
_STEPPED_S = 1.0  # by which the time of day may drift against the run's clock before all is told anew
_MOST_TROUBLES = 20  # that are said of one source
_NAMES = {"price": "the energy price", "carbon": "the carbon intensity"}


class News(Protocol):
    """`Feed`, or whatever stands in for it. sources: as given, by kind."""

    @property
    def sources(self) -> dict[str, str]: ...

    def news(self) -> Sequence[Said]:
        """What sources have said since the last time."""


class PriceLink:
    """Tells who decides of prices and carbon as they change, and why they are not known. To be looked at in every round
    of the loop; without sources it does nothing.

    wall_s: the time of day, seconds since 1970.
    """

    def __init__(self, feed: News | None, decider: Decider, wall_s: Callable[[], float] = time.time) -> None:
        self._feed, self._decider, self._wall_s = feed, decider, wall_s
        self._known = {} if feed is None else {kind: _Known() for kind in feed.sources}
        self._next_s = 0.0

    def heed(self, now_s: float) -> list[Action]:
        """What there is to say and to do now."""
        if self._feed is None or now_s < self._next_s:
            return []
        self._next_s = now_s + _LOOK_S
        actions: list[Action] = []
        for said in self._feed.news():
            actions += [Announce(event=event) for event in self._take(said, self._feed.sources[said.kind], now_s)]
        began_wall_s = self._wall_s() - now_s
        for kind, known in self._known.items():
            if known.is_due(now_s, began_wall_s):
                actions += self._decider.quote(now_s, kind, known.quote(now_s, began_wall_s))
        return actions

    def _take(self, said: Said, source: str, now_s: float) -> list[Sourced | Warned]:
        known = self._known[said.kind]
        if said.series is None:
            text = f"{_NAMES[said.kind]} cannot be read: {said.trouble}; {known.instead}"
            return [Warned(t_s=now_s, text=text)] if known.complains() else []
        is_first = known.series is None
        known.take(said.series)
        if not is_first:
            return []
        return [Sourced(t_s=now_s, kind=said.kind, source=shown(source), currency=said.series.currency)]


class _Known:
    """What is known of one kind."""

    def __init__(self) -> None:
        self.series: Series | None = None
        self._troubles = 0
        self._is_news = False
        self._due_s = math.inf  # when the value in force ends
        self._began_wall_s = 0.0

    @property
    def instead(self) -> str:
        """What counts until it can be read again."""
        return "until it can, what was read before counts" if self.series else "until it can, none counts"

    def complains(self) -> bool:
        """Whether another trouble is worth a word."""
        self._is_news |= self._troubles == 0 and self.series is None  # that nothing is known
        self._troubles += 1
        return self._troubles <= _MOST_TROUBLES

    def take(self, series: Series) -> None:
        self._is_news |= series != self.series
        self.series = series

    def is_due(self, now_s: float, began_wall_s: float) -> bool:
        """Whether something else is known, or the value in force has ended."""
        stepped = abs(began_wall_s - self._began_wall_s) > _STEPPED_S
        return self._is_news or now_s >= self._due_s or (stepped and self.series is not None)

    def quote(self, now_s: float, began_wall_s: float) -> Quote | None:
        """What is known now."""
        self._is_news, self._began_wall_s = False, began_wall_s
        found = None if self.series is None else self.series.quote(now_s + began_wall_s, began_wall_s)
        self._due_s = self._next_change_s(now_s + began_wall_s) - began_wall_s
        return found

    def _next_change_s(self, wall_s: float) -> float:
        if self.series is None:
            return math.inf
        edges_s = (*(at_s for at_s, _ in self.series.steps), self.series.until_s)
        return min((edge_s for edge_s in edges_s if edge_s > wall_s), default=math.inf)


_PUBLISH_S = 5.0


class BudgetLink:
    """Tells who decides of a ceiling that changes, and whoever gives it of the curve, now and then. To be looked at
    after each beat; without a budget it does nothing."""

    def __init__(self, budget: Budget | None, decider: Decider) -> None:
        self._budget, self._decider = budget, decider
        self._ceiling_w: float | None = None
        self._next_s = 0.0

    def heed(self, now_s: float) -> list[Action]:
        """What a new ceiling asks for; nothing while it is as it was. Raises GuardError where the manager is gone."""
        if self._budget is None:
            return []
        self._publish(now_s, self._budget)
        if self._budget.ceiling_w == self._ceiling_w:
            return []
        self._ceiling_w = self._budget.ceiling_w
        return self._decider.grant(now_s, self._ceiling_w)

    def _publish(self, now_s: float, budget: Budget) -> None:
        if now_s < self._next_s or (curve := self._decider.curve) is None:
            return
        self._next_s = now_s + _PUBLISH_S
        searching = self._decider.state is not State.HOLDING
        budget.publish(curve, searching=searching, max_slowdown=self._decider.max_slowdown)
