"""Hourly values of electricity on days that swing, and what is known of them at a time, as of day-ahead prices.

Curves with two valleys: a published one on which some caps are slower than they should be, as where a card's clock
falls back to a step below.

The policy alone, hour by hour: a real search, ranking and strategy on a curve that is known exactly, without the
controller's sensors and samples. Whatever is measured has the errors that it would have, and costs the time it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autocap.config import TuneConfig
from autocap.controller.comparison import Comparison, Judgement, Ruling, judge
from autocap.controller.context import Keep, Kept, Revert, RevertForNow, StepContext
from autocap.controller.following import Choices, Deadline, Following, worth
from autocap.controller.intake import Intake
from autocap.controller.ranking import Confirm, Move, TryOut
from autocap.controller.search import Search
from autocap.devices.model.profiles import Profile
from autocap.events import Followed
from autocap.events.quote import PRICE, Quote
from autocap.measurement.metering import IdleWatch
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import Measurement
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from bench.simulation.jobs import new_strategy
from bench.strategies.curves import POWER_SHARE, measured, tried

Floats = NDArray[np.float64]
HOUR_S = 3600.0
_PUBLISHED = 13  # o'clock, when the prices of the next day are


def swinging(days: int, swing: float, mean: float = 0.3) -> tuple[float, ...]:
    """Money per kWh, hour by hour: each day the same, up and down by `swing` of the mean."""
    hours = np.arange(24 * days)
    return tuple((mean * (1 + swing * np.sin(2 * np.pi * hours / 24))).tolist())


def known(values: Sequence[float], hour: int) -> Quote:
    """What is known in that hour: to the end of the day, and from one o'clock in the afternoon to that of the next."""
    end = (hour // 24 + (2 if hour % 24 >= _PUBLISHED else 1)) * 24
    ahead = range(hour, min(end, len(values)))
    pairs = tuple((HOUR_S * index, values[index]) for index in ahead)
    return Quote(kind=PRICE, values=pairs, until_s=HOUR_S * ahead.stop)


_WIDTH_W, _SLOWER = 12.0, 0.05


class TwoValleys:
    """A profile whose time per iteration is up to 5 % longer around a cap, watts, at the same power."""

    def __init__(self, profile: Profile, at_w: float) -> None:
        self.name, self.cap_range = f"{profile.name}, slower at {at_w:g} W", profile.cap_range
        self._profile, self._at_w = profile, at_w

    def time_s(self, caps_w: float | Floats) -> Floats:
        at_w = np.asarray(caps_w, dtype=np.float64)
        away = (at_w - self._at_w) / _WIDTH_W
        return np.asarray(self._profile.time_s(at_w) * (1 + _SLOWER * np.exp(-0.5 * away**2)))

    def power_w(self, caps_w: float | Floats) -> Floats:
        return np.asarray(self._profile.power_w(np.asarray(caps_w, dtype=np.float64)))

    def energy_j(self, caps_w: float | Floats) -> Floats:
        return self.power_w(caps_w) * self.time_s(caps_w)


_STEP_W = 5.0
_TRIAL_ERROR, _TRIAL_S = 0.005, 10.0  # of a trial's time, relative, and how long it takes; to a better one longer
_CONFIRM_ERROR = 0.007
_CLOSE, _LONGEST_S = 0.00065, 240.0
_SETTLE_S = 2.0
_WEEK_S = 7 * 24 * HOUR_S  # after which a cap is looked at closely once more


@dataclass
class Book:
    """What a job has cost in money, how much it has done, and the moves of each interval."""

    money: float = 0.0
    iterations: float = 0.0
    moves: list[int] = field(default_factory=list)

    @property
    def per_iteration(self) -> float:
        return self.money / self.iterations


Curve = Profile | TwoValleys


class Job:
    """One job on a card whose curve nobody knows but this. hour_price: money per hour."""

    def __init__(self, profile: Curve, hour_price: float, seed: int) -> None:
        low_w, high_w = profile.cap_range.min_w, profile.cap_range.default_w
        self.grid = CapGrid([*np.arange(low_w, high_w, _STEP_W).tolist(), high_w])
        caps_w = np.array(self.grid)
        self.choices = Choices.of(profile.time_s(caps_w).tolist(), profile.energy_j(caps_w).tolist())
        self.limit_w, self.second_price = high_w, hour_price / HOUR_S
        self._profile, self._rng = profile, np.random.default_rng(seed)
        self._config = TuneConfig(metric=Metric(name="cost", hour_price=hour_price or None, moving=True))
        self._context = StepContext((high_w,))
        intake = Intake(StepProgress(), self._context, IdleWatch())
        self._following = Following(
            self._config, self._context, _SETTLE_S, Deadline(self._config, None, intake, self._context)
        )
        self.saved_s, self.is_anchored = np.inf, True
        self.judged: Judgement | None = None
        self._spent: list[tuple[float, float]] = []  # seconds at caps other than the held one, watts

    def follow(self, values: Sequence[float]) -> Book:
        """Live through so many hours."""
        book, held_w = Book(), self.limit_w
        for hour, value in enumerate(values):
            self._context.open(HOUR_S * hour)
            self._spent = []
            self._following.quote(PRICE, known(values, hour))
            if hour == 0:
                held_w = self._search()
            held_w = self._look(held_w)
            moves = [one for one in self._context.actions if isinstance(getattr(one, "event", None), Followed)]
            book.moves.append(len(moves))
            rest_s = HOUR_S - sum(span_s for span_s, _ in self._spent)
            for span_s, cap_w in (*self._spent, (rest_s, held_w)):
                place = self.grid.index(cap_w)
                rate, power_w = self.choices.rates[place], self.choices.powers_w[place]
                book.iterations += span_s * rate
                book.money += span_s * (power_w * value / 3.6e6 + self.second_price)
        return book

    def _look(self, held_w: float) -> float:
        """As the controller does with each sample, until there is nothing to do in this interval."""
        while (step := self._following.look(self, (held_w,))) is not None:
            decision: Kept = self._decision(held_w)
            match step:
                case Move(setting=cap_w):
                    held_w = cap_w
                    self._look_closely(held_w)
                    continue
                case TryOut(setting=cap_w):
                    self._try(cap_w)
                case Confirm(setting=cap_w, window_error=error):
                    decision = self._confirm(cap_w, error)
            decision = self._following.settled(self, decision, checked=True)
            held_w = decision.settings[0] if isinstance(decision, Keep) else self.limit_w
            self._look_closely(held_w)
        return held_w

    def _look_closely(self, held_w: float) -> None:
        if not self.search.is_close(held_w, self._context.now_s - _WEEK_S):
            self.search.note_closely(self._measured(held_w, _CLOSE))

    def _decision(self, held_w: float) -> Kept:
        shown = self.search.curve.expected(held_w)
        return Keep(settings=(held_w,), reference=shown) if held_w < self.limit_w else Revert(reference=shown)

    def _search(self) -> float:
        """From nothing to a confirmed cap, watts."""
        baseline = self._measured(self.limit_w, _TRIAL_ERROR)
        model = new_strategy(registry.find("model"), self.grid)
        metric = self._following.begin(baseline)
        self.search = Search(model, self.grid, metric, baseline, self._config.prune_sigmas)
        cap_w = self.search.ask()
        if cap_w is not None:
            self._try(cap_w)
        kept_w = self.search.recommend()
        if kept_w is None or kept_w == self.limit_w:
            return self.limit_w
        decision = self._following.settled(self, self._confirm(kept_w, _CONFIRM_ERROR), checked=False)
        held_w = kept_w if isinstance(decision, Keep) else self.limit_w
        self._look_closely(held_w)
        return held_w

    def _try(self, cap_w: float | None) -> None:
        """A cap, and whatever else the strategy asks for."""
        while cap_w is not None:
            tried(self.search, self._measured(cap_w, _TRIAL_ERROR))
            self._spend(_TRIAL_ERROR, cap_w)
            cap_w = self.search.ask()

    def _confirm(self, cap_w: float, error: float) -> Kept:
        compared, found = Comparison((cap_w,), (self.limit_w,)), None
        while found is None:
            (next_w,) = compared.next_w
            compared.add(self._measured(next_w, error))
            self._spend(error, next_w)
            found = judge(compared, self.search.metric)
        self.judged = found
        self.search.rebase(found.baseline)
        if found.ruling is Ruling.BETTER:
            return Keep(settings=(cap_w,), reference=found.measurement)
        return RevertForNow(reference=found.baseline)

    def _spend(self, error: float, cap_w: float) -> None:
        self._spent.append((_SETTLE_S + min(_LONGEST_S, _TRIAL_S * (_TRIAL_ERROR / error) ** 2), cap_w))

    def _measured(self, cap_w: float, error: float) -> Measurement:
        """A window at a cap: its time is off by so much, relative, and says so."""
        time_z, power_z = self._rng.standard_normal(2)
        time_s = float(self._profile.time_s(cap_w)) * (1 + error * float(time_z))
        power_w = float(self._profile.power_w(cap_w)) * (1 + POWER_SHARE * error * float(power_z))
        iterations = max(8.0, _TRIAL_S * (_TRIAL_ERROR / error) ** 2 / time_s)
        return measured(cap_w, power_w, time_s, error, start_s=self._context.now_s, iterations=iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What an iteration costs, money: at the limit found, at the best constant cap, and where the curve is known
    perfectly and followed at once, with the same knowledge of the values. cap_w: the best constant one."""

    found: float
    constant: float
    perfect: float
    cap_w: float


def reference(job: Job, values: Sequence[float]) -> Reference:
    prices, choices = np.array(values) / 3.6e6, job.choices
    money = prices.sum() * choices.powers_w + len(prices) * job.second_price
    constant: Floats = money / (len(prices) * choices.rates)
    best = int(np.argmin(constant))
    spent = done = 0.0
    for hour, price in enumerate(prices):
        day = [(HOUR_S, float(one)) for one in prices[max(0, hour - 24) : hour]]
        ahead = [(HOUR_S, one / 3.6e6) for _, one in known(values, hour).values]
        spans = [*ahead, *day[len(day) - max(0, 24 - len(ahead)) :]] if len(ahead) < 24 else ahead
        place = int(choices.chosen(np.array([price]), worth(choices, spans, job.second_price))[0])
        spent += float(price * choices.powers_w[place]) + job.second_price
        done += float(choices.rates[place])
    return Reference(
        found=float(constant[-1]), constant=float(constant[best]), perfect=spent / done, cap_w=job.grid[best]
    )
