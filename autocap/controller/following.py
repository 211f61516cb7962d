"""Caps that follow a value that moves, as a price does: while it is in force, the cap that is best by it is held.

With the job's curve known, that takes no search: the cap is a step function of the value. Once in each interval of the
value it is looked at anew, and another cap is held where that gains more than the error of the gain and more than the
change costs (`ranking`). A cap that was only predicted is first confirmed against the baseline; and where a value is
more extreme than all before, the strategy may ask for a trial of a cap that nobody knows.

A confirmation takes minutes, and the value may change meanwhile. What it measures is time and energy, which hold at any
value; but caps are ranked anew at once, and where the new value wants another cap, it stops there, and goes on with
what it has when it is wanted again. What comes of it is ranked once more, by the value that then holds.

A time by which all of the job is to be done, and a largest slowdown, leave open when it is slowed down. The time is
kept at any moment: as fast as the job can go, what is left must fit into the rest; and no more is spent of a slowdown
than the job has saved up of it so far, so that it holds wherever the job ends.

An iteration that is not done now is done later, at what it costs then. So caps are not ranked by what an iteration
costs at this moment: with r and P the iterations a second and the power of a cap, v the price in force and λ what an
iteration is worth, the cap that holds at v is the one with the largest λ r - v P. λ is the same at all times:

- with money per hour h, the least that iterations can cost over the known values, ∫ (v P + h) dt / ∫ r dt (Dinkelbach
  1967: λ is that ratio where the best of λ r - v P - h comes to 0 in the sum);
- with so many iterations to be done in a time, the smallest λ that gets them done: the multiplier of that constraint.

The largest λ r - v P is μ, what a second is worth while v is in force: the same cap has the least v e + μ τ, with e and
τ the energy and time per iteration. So the metric cost at v, with μ in place of money per hour, ranks caps rightly;
where v never changes, μ is h.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, assert_never

import numpy as np
from numpy.typing import NDArray

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.comparison import Caps, Comparison, Judgement, Ruling
from autocap.controller.context import Keep, Kept, Revert, RevertForNow, StepContext
from autocap.controller.intake import Intake
from autocap.controller.quotes import SAME_S, Quotes
from autocap.controller.ranking import Confirm, Move, Ranking, TryOut
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.events.quote import CARBON, KINDS, PRICE, Quote
from autocap.metrics import Metric
from autocap.records import Measurement, same_limits

_LEAST = 1e-6  # a slowdown that no cap is within


class Deadline:
    """finish_s: on the run's clock, `None` for no such time; it holds only where the config says how many iterations
    the job has."""

    def __init__(self, config: TuneConfig, finish_s: float | None, intake: Intake, context: StepContext) -> None:
        self._most, self._iterations = config.metric.max_slowdown, config.iterations
        self.finish_s = finish_s if config.iterations is not None else None
        self._intake, self._context = intake, context

    def whole(self, baseline: Measurement) -> float | None:
        """The largest slowdown from now on, if it is the same all the time; `None` where nothing limits it."""
        if self.finish_s is None:
            return self._most
        rest = max(_LEAST, self._trained_s(self._context.now_s) / self._left_s(baseline) - 1)
        return rest if self._most is None else min(rest, self._most)

    def is_lost(self, baseline: Measurement) -> bool:
        """Whether the job is late even without any cap."""
        return self.finish_s is not None and self._trained_s(self._context.now_s) < self._left_s(baseline)

    def iterations(self, baseline: Measurement, seconds: float, saved_s: float) -> float:
        """How many must be done in so many seconds to come. saved_s: that the job may lose, of its largest slowdown."""
        needed = 0.0 if self.finish_s is None else TUNING.deadline_reserve * self._left / self._share
        if self._most is not None and seconds > saved_s:
            needed = max(needed, (seconds - saved_s) / (baseline.period_s * (1 + self._most)))
        return needed

    def within(self, baseline: Measurement, until_s: float, saved_s: float) -> float | None:
        """The largest slowdown until then, seconds; `None` where nothing limits it."""
        here_s, found = until_s - self._context.now_s, math.inf
        if self.finish_s is not None:
            due_s = self._left_s(baseline) - self._trained_s(until_s)  # of work, by then
            found = self._share * here_s / due_s - 1 if due_s > 0 else math.inf
        if self._most is not None and here_s > saved_s:
            found = min(found, (1 + self._most) * here_s / (here_s - saved_s) - 1)
        return None if math.isinf(found) else max(_LEAST, found)

    @property
    def _left(self) -> float:
        """Iterations."""
        return max(1.0, (self._iterations or 0) - self._intake.done)

    def _left_s(self, baseline: Measurement) -> float:
        """Seconds that these take at the limits found on arrival."""
        return TUNING.deadline_reserve * self._left * baseline.period_s

    def _trained_s(self, from_s: float) -> float:
        """Seconds of training from then to the end."""
        return self._share * max(0.0, (self.finish_s or 0.0) - from_s)

    @property
    def _share(self) -> float:
        """Of its time, in which the job has trained so far."""
        tally = self._intake.totals.tally(self._context.now_s)
        if tally is None or tally.counted_s <= 0:
            return 1.0
        return max(TUNING.deadline_least_share, 1 - tally.paused_s / tally.counted_s)


Floats = NDArray[np.float64]
Spans = Sequence[tuple[float, float]]  # seconds, and money per joule in them
_ROUNDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What caps come to. rates: iterations a second, powers_w: draw of all devices; shape (caps,)."""

    rates: Floats
    powers_w: Floats

    @classmethod
    def of(cls, times_s: Sequence[float], energies_j: Sequence[float]) -> "Choices":
        """From seconds and joules per iteration."""
        times, energies = np.asarray(times_s, dtype=float), np.asarray(energies_j, dtype=float)
        return cls(rates=1 / times, powers_w=energies / times)

    def chosen(self, prices: Floats, worth: float) -> NDArray[np.intp]:
        """The cap at each price, money per joule, with an iteration worth so much; shape (prices,). Of caps that are
        worth the same, the first."""
        return np.asarray(np.argmax(worth * self.rates - prices[:, None] * self.powers_w, axis=1))

    def time_value(self, price: float, worth: float) -> float:
        """What a second is worth while a price is in force, money."""
        return float(np.max(worth * self.rates - price * self.powers_w))


def worth(choices: Choices, spans: Spans, second_price: float, iterations: float = 0.0) -> float:
    """What an iteration is worth, money, over spans of known prices; never below 0.

    second_price: money per second of all devices. iterations: to be done in the spans at least; where they cannot be,
    an iteration is worth so much that the fastest cap is chosen all the time.
    """
    seconds, prices = (np.array(each, dtype=float) for each in zip(*spans, strict=True))

    def done(value: float) -> tuple[float, float]:
        """Iterations, and what they cost, with an iteration worth so much."""
        caps = choices.chosen(prices, value)
        cost = seconds @ (prices * choices.powers_w[caps] + second_price)
        return float(seconds @ choices.rates[caps]), float(cost)

    value = 0.0
    for _ in range(_ROUNDS):  # a few do: each is a step of Newton's
        count, cost = done(value)
        value, before = max(0.0, cost / count), value
        if math.isclose(value, before, rel_tol=1e-9, abs_tol=1e-15):
            break
    return value if done(value)[0] >= iterations else _least(done, iterations, value, _scale(choices, prices))


def _scale(choices: Choices, prices: Floats) -> float:
    """What the energy of an iteration comes to at most."""
    return float(np.abs(prices).max() * (choices.powers_w / choices.rates).max()) or 1.0


def _least(done: Callable[[float], tuple[float, float]], iterations: float, low: float, step: float) -> float:
    """The least worth above `low` at which so many iterations are done."""
    high = low + step
    for _ in range(_ROUNDS):
        if done(high)[0] >= iterations:
            break
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if done(middle)[0] >= iterations else (middle, high)
    return high


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
