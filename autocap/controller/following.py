"""Caps that follow a value that moves, as a price does: while it is in force, the cap that is best by it is held.

With the job's curve known, that takes no search: the cap is a step function of the value (`horizon`). Once in each
interval of the value it is looked at anew, and another cap is held where that gains more than the error of the gain and
more than the change costs (`ranking`). A cap that was only predicted is first confirmed against the baseline; and where
a value is more extreme than all before, the strategy may ask for a trial of a cap that nobody knows.

A confirmation takes minutes, and the value may change meanwhile. What it measures is time and energy, which hold at any
value; but caps are ranked anew at once, and where the new value wants another cap, it stops there, and goes on with
what it has when it is wanted again. What comes of it is ranked once more, by the value that then holds.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Protocol, assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.actions import Keep, Kept, Revert, RevertForNow
from autocap.controller.comparison import Caps, Comparison, Judgement, Ruling
from autocap.controller.context import StepContext
from autocap.controller.deadline import Deadline
from autocap.controller.horizon import Choices, worth
from autocap.controller.quotes import SAME_S, Quotes
from autocap.controller.ranking import Confirm, Move, Ranking, TryOut
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.events.quote import CARBON, KINDS, PRICE, Quote
from autocap.metrics import Metric
from autocap.records import Measurement, same_limits

_PER_GPU = "caps per GPU are held, which do not follow what electricity costs"


class Explored(Protocol):
    """What a search has shown, as `Exploration` has it. judged: what was held against the baseline since it was last
    taken away."""

    search: Search
    judged: Judgement | None

    @property
    def saved_s(self) -> float: ...

    @property
    def is_anchored(self) -> bool: ...


Wanted = Move | Confirm | TryOut | None


class Following:
    """settle_s: that a change of caps takes to show. deadline: for all of the job."""

    def __init__(self, config: TuneConfig, context: StepContext, settle_s: float, deadline: Deadline) -> None:
        self._asked, self._context, self._settle_s, self._deadline = config.metric, context, settle_s, deadline
        self._kind = CARBON if config.metric.name == "carbon" else PRICE
        self._quotes = {kind: Quotes(kind, context) for kind in KINDS}
        self._followed = self._quotes[self._kind] if config.metric.moving else None
        self._said: set[str] = set()
        self._looked_s: float | None = None  # when the interval began that was looked at last
        self._confirmed_s: float | None = None  # the last one in which a cap was confirmed, or was to be
        self._confirming: Confirm | None = None
        self._begun: dict[float, Comparison] = {}  # confirmations that stopped half-way, by cap
        self._between_s: float | None = None  # the last one in which a cap amid others was tried
        self._held_w: Caps = ()  # as was told last
        self._now_by: Metric | None = None  # how caps are ranked in the interval that was looked at last
        self._confirmed: set[float] = set()  # caps that were better than the baseline at some value
        self._asked_at: tuple[float, float] | None = None  # lowest and highest weight that the strategy was asked at

    @property
    def follows(self) -> bool:
        """Whether there is anything to follow."""
        return self._followed is not None and self._followed.typical is not None

    def quote(self, kind: str, quote: Quote | None, changes: Callable[[], None] = lambda: None) -> None:
        """This is known of prices, or of carbon, from now on; `None`: nothing. changes: called where the value is
        another one, before that is announced. Raises ValueError for another kind."""
        if kind not in self._quotes:
            raise ValueError(f"a quote is of {' or of '.join(KINDS)}, not of {kind!r}")
        quotes = self._quotes[kind]
        told = quotes.take(quote)
        if told is not None:
            changes()
            self._context.announce(told)
        if quotes is not self._followed:
            return
        if quotes.value is not None:
            self._said.discard(quotes.loss)
        else:
            self._say(quotes.loss)

    def begin(self, baseline: Measurement) -> Metric:
        """A search begins; by which metric: at a usual value, and within what the job may lose."""
        if self._followed is None and self._deadline.finish_s is None:
            return self._asked
        self._confirmed, self._asked_at, self._looked_s = set(), None, None
        self._held_w, self._now_by = (), None
        self._confirming, self._begun = None, {}
        if self._deadline.is_lost(baseline):
            self._say("the job cannot be done by --finish-by even at the limit found on arrival, which is kept")
        return self.usual(baseline)

    def usual(self, baseline: Measurement) -> Metric:
        """The metric at a usual value."""
        typical = None if self._followed is None else self._followed.typical
        at = self._asked if typical is None else self._asked.at(typical)
        return replace(at, max_slowdown=self._deadline.whole(baseline))

    def settled(self, exploration: Explored, decision: Kept, *, checked: bool) -> Kept:
        """What is to be held after a search, or, where it only was checked, after that: what does not pay at this value
        may at the next, which is no reason to search anew."""
        if self._followed is None:
            return decision
        judged, exploration.judged = exploration.judged, None
        self._confirming = None
        if judged is not None and len(set(judged.measurement.setting)) == 1:
            for shown in judged.alone:
                exploration.search.note_closely(shown)
            self._begun.pop(max(judged.measurement.setting), None)
            if judged.ruling is Ruling.BETTER:
                self._confirmed.add(max(judged.measurement.setting))
        if not checked:
            return decision
        if self._now_by is not None:
            exploration.search.rate(self._now_by)  # again, where it was judged by another one
        if judged is not None and isinstance(decision, Keep) and len(set(decision.settings)) == 1:
            return self._best_of_known(exploration, decision)
        self._looked_s = None  # something was tried; or what was held before is better than the limit
        return Revert(reference=decision.reference) if isinstance(decision, RevertForNow) else decision

    def _best_of_known(self, exploration: Explored, decision: Keep) -> Kept:
        """A cap is better than the baseline, at the value at which it was judged: what is best at the one that holds
        now, of it and of what was held before."""
        quotes = self._followed
        assert quotes is not None
        before_w = self._held_w if len(set(self._held_w)) == 1 else decision.settings
        self._now_by = self._now(quotes, exploration)
        exploration.search.rate(self._now_by)
        move = self._ranking(exploration, quotes).move(max(before_w), known_only=True)
        settings = self._context.every(move.setting) if isinstance(move, Move) else before_w
        self._tell(exploration, settings)
        if same_limits(settings, decision.settings):
            return decision
        shown = exploration.search.curve.expected(max(settings))
        if same_limits(settings, self._context.uncapped_w):
            return Revert(reference=shown)
        return Keep(settings=settings, reference=shown)

    def rethink(self, exploration: Explored, held_w: Caps) -> bool:
        """While a cap is confirmed: whether that still is what to do. After a change of the value caps are ranked anew,
        as if this one were confirmed: where it would not be left again at once, it goes on, and is judged by the new
        value. held_w: the caps before it."""
        quotes, confirming = self._followed, self._confirming
        if quotes is None or confirming is None or not self.follows or _same(quotes.from_s, self._looked_s):
            return True
        self._now_by = metric = self._now(quotes, exploration)
        exploration.search.rate(metric)
        as_if = self._ranking(exploration, quotes, also=confirming.setting)
        if as_if.move(confirming.setting, known_only=True) is not None:
            self._confirming = None
            return False
        self._looked_s = self._confirmed_s = quotes.from_s
        self._held_w = held_w
        exploration.search.rate(as_if.confirming(confirming.setting).metric)
        return True

    def stopped(self, comparison: Comparison | None) -> None:
        """A confirmation has stopped half-way. comparison: as far as it came; `None` where that is nothing."""
        if comparison is not None:
            self._begun[max(comparison.outer_w)] = comparison

    def begun(self, setting: float) -> Comparison | None:
        """How far a confirmation of a cap, watts, came before it stopped, once."""
        return self._begun.pop(setting, None)

    def before_check(self, exploration: Explored) -> None:
        """What is held is going to be checked: by a usual value, as it may save little at this one."""
        if self.follows:
            most, usual = exploration.search.metric.max_slowdown, self.usual(exploration.search.first)
            exploration.search.rate(replace(usual, max_slowdown=most))

    def look(self, exploration: Explored, held_w: Caps) -> Wanted:
        """What to do now with the caps that are held, watts per device; `None`: nothing. At most one change in an
        interval: where what was confirmed was not kept, the best of those that are known is held."""
        quotes = self._followed
        if quotes is None or not self.follows or _same(quotes.from_s, self._looked_s):
            return None
        again, self._looked_s = _same(quotes.from_s, self._confirmed_s), quotes.from_s
        if len(set(held_w)) > 1:
            self._say(_PER_GPU)
            return None
        self._held_w = self._held_w if again else held_w
        self._now_by = metric = self._now(quotes, exploration)
        exploration.search.rate(metric)
        asked: Wanted = None if again else self._asked_for(exploration, metric)
        step = asked or self._ranking(exploration, quotes).move(max(held_w), known_only=again)
        match step:
            case None:
                self._tell(exploration, held_w)
            case Move(setting=setting):
                self._tell(exploration, self._context.every(setting))
            case Confirm(metric=metric):
                self._confirmed_s, self._confirming = quotes.from_s, step
                exploration.search.rate(metric)
            case TryOut():
                pass
            case _:
                assert_never(step)
        return step

    def _now(self, quotes: Quotes, exploration: Explored) -> Metric:
        """By which caps are ranked while this value is in force."""
        search, devices = exploration.search, len(exploration.search.first.setting)
        at = self._asked.at(quotes.in_force)
        spans = [(span_s, self._asked.at(value).joule_price) for span_s, value in quotes.spans(self._finish_s)]
        known = [search.curve.expected(one.setting) for one in search.curve.points]
        choices = Choices.of([one.period_s for one in known], [one.energy_per_iteration_j for one in known])
        needed = self._deadline.iterations(search.first, sum(span_s for span_s, _ in spans), exploration.saved_s)
        value = worth(choices, spans, at.second_price(devices), needed)
        within = self._deadline.within(search.first, self._until_s(quotes), exploration.saved_s)
        at = at.with_second(choices.time_value(at.joule_price, value), devices)
        return replace(at, max_slowdown=within)

    @property
    def _finish_s(self) -> float | None:
        """When the job is to be done, while that is still to come."""
        finish_s = self._deadline.finish_s
        return finish_s if finish_s is not None and finish_s > self._context.now_s else None

    def _asked_for(self, exploration: Explored, metric: Metric) -> TryOut | None:
        """What the strategy would have tried at this value: it is asked where that is more extreme than all before."""
        search = exploration.search
        if search.has_own_length or not exploration.is_anchored or not self._context.allows(search.grid[0]):
            return None
        terms = metric.terms(search.first)
        weight = terms.energy / max(abs(terms.time), TUNING.follow_least_weight)
        low, high = self._asked_at or (weight, weight)
        if self._asked_at is not None and low <= weight <= high:
            return self._between(search)
        self._asked_at = min(low, weight), max(high, weight)
        setting = search.ask()
        return self._between(search) if setting is None else TryOut(setting=setting)

    def _between(self, search: Search) -> TryOut | None:
        """A cap amid the widest span of which nothing was tried: what a curve does there nobody has seen, and a second
        valley hides behind what lies before it. One in an interval, where that is long beside a trial. Of another knob
        nobody knows how wide a span is."""
        quotes = self._followed
        if (
            quotes is None
            or not search.knob.is_power_limit
            or _same(quotes.from_s, self._between_s)
            or quotes.until_s - self._context.now_s < TUNING.follow_long_s
        ):
            return None
        tried_w = sorted({trial.setting for trial in search.history} | {search.grid[-1]})
        low_w, high_w = max(pairwise([search.grid[0], *tried_w]), key=lambda span: span[1] / span[0])
        if high_w / low_w <= TUNING.follow_widest_gap:
            return None
        inner = [setting for setting in search.grid if low_w < setting < high_w]
        middle_w = math.sqrt(low_w * high_w)
        if not inner:
            return None
        self._between_s = quotes.from_s
        return TryOut(setting=min(inner, key=lambda setting: abs(setting - middle_w)))

    def _until_s(self, quotes: Quotes) -> float:
        return max(quotes.until_s, self._context.now_s + TUNING.follow_least_s)

    def _ranking(self, exploration: Explored, quotes: Quotes, also: float | None = None) -> Ranking:
        """also: a cap that is to count as confirmed, watts."""
        confirmed = self._confirmed if also is None else {*self._confirmed, also}
        here_s = self._until_s(quotes) - self._context.now_s
        return Ranking(
            exploration.search,
            limit_w=max(self._context.uncapped_w),
            usual=replace(self.usual(exploration.search.first), max_slowdown=exploration.search.metric.max_slowdown),
            confirmed=confirmed if exploration.is_anchored else None,
            switching=self._settle_s / here_s,
            per_second=1 / max(here_s, sum(span_s for span_s, _ in quotes.ahead)),
        )

    def _tell(self, exploration: Explored, settings: Caps) -> None:
        """These caps hold from now on, because of the value; where they did before, nothing has changed."""
        quotes = self._followed
        if quotes is None or not self._held_w or same_limits(settings, self._held_w):
            return
        gain = self._ranking(exploration, quotes).gain(max(self._held_w), max(settings))
        self._held_w = settings
        self._context.announce(
            events.Followed(
                t_s=self._context.now_s,
                settings=settings,
                kind=self._kind,
                value=quotes.in_force,
                gain=gain.value,
                gain_stderr=gain.stderr,
            )
        )

    def _say(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            self._context.warn(self._context.knob.said(text))


def _same(from_s: float, other_s: float | None) -> bool:
    """Whether two intervals that begin then are one."""
    return other_s is not None and abs(from_s - other_s) < SAME_S
