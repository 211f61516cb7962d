"""`python -m bench prices`: caps that follow what electricity costs, against the best constant cap.

bound: what following could save at most where the curve is known, in seconds. swing: days on which the price goes up
and down, each like the other; valleys: the same on curves that are slower around their best constant cap, so that they
have two valleys. Both are the policy alone on the twelve published curves, with a real search, and every measurement
with its error; the whole controller follows a price in jobs of `bench gate`.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
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
from bench.common import add_seeds
from bench.simulation.jobs import new_strategy, seed_profiles
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
    """One job on a card whose curve nobody knows but this: a real search, ranking and strategy, without the
    controller's sensors and samples. Whatever is measured has the errors that it would have, and costs the time it
    takes. hour_price: money per hour."""

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


_MEAN = 0.3  # money per kWh
_DAYS = {"bound": 2, "swing": 30, "valleys": 30}


def main(argv: Sequence[str]) -> int:
    """Print the tables that the command line asks for; the exit status."""
    args = _parser().parse_args(argv)
    try:
        hour_prices = [float(part) for part in args.hour_prices.split(",")]
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    profiles = [profile for profile in seed_profiles() if args.curves in profile.name]
    if args.quick:
        profiles = profiles[:: max(1, len(profiles) // 2)]
    days = args.days or (4 if args.quick else _DAYS[args.part])
    for hour_price in hour_prices:
        if args.part == "bound":
            lines = bound(profiles, swinging(days, args.swing / 100, _MEAN), hour_price)
        else:
            curves: list[Curve] = list(profiles)
            if args.part == "valleys":
                curves = [_two_valleys(profile, hour_price) for profile in profiles]
            lines = table(curves, swinging(days, args.swing / 100, _MEAN), hour_price, args.seeds, args.seed_base)
        for line in lines:
            print(line, flush=True)
    return 0


def bound(profiles: Sequence[Profile], values: Sequence[float], hour_price: float) -> Iterator[str]:
    """A line for each curve."""
    yield "| curve | money per hour | best constant cap | which saves | followed perfectly, saves more |"
    yield "|" + "---|" * 5
    for profile in profiles:
        known = reference(Job(profile, hour_price, 0), values)
        constant, more = saved_pct(known.constant, known.found), saved_pct(known.perfect, known.constant)
        yield f"| {profile.name} | {hour_price:g} | {known.cap_w:g} W | {_percent(constant)} | {_percent(more)} |"


HEADING = (
    "| curve | money per hour | best constant cap | which saves | followed perfectly, saves more | autocap saves more "
    "| of that | changes a day | most in an hour |"
)


def table(
    profiles: Sequence[Curve], values: Sequence[float], hour_price: float, seeds: int, base: int
) -> Iterator[str]:
    """A line for each curve; of seeds the mean, and in brackets the worst."""
    yield HEADING
    yield "|" + "---|" * 9
    for profile in profiles:
        gains, moves, most = list[float](), 0, 0
        for seed in range(base, base + seeds):
            job = Job(profile, hour_price, seed)
            known, book = reference(job, values), job.follow(values)
            gains.append(saved_pct(book.per_iteration, known.constant))
            moves, most = moves + sum(book.moves), max(most, *book.moves)
        yield row(
            profile.name,
            hour_price,
            known.cap_w,
            (saved_pct(known.constant, known.found), saved_pct(known.perfect, known.constant)),
            gains,
            f"{moves / seeds / (len(values) / 24):.1f} | {most}",
        )


def _two_valleys(profile: Profile, hour_price: float) -> TwoValleys:
    """Slower around what would be its best constant cap."""
    return TwoValleys(profile, reference(Job(profile, hour_price, 0), swinging(2, 0.5, _MEAN)).cap_w)


def saved_pct(cost: float, over: float) -> float:
    """Of the size of what it is over."""
    return 100 * (over - cost) / abs(over)


def _percent(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f} %"  # without a sign of 0


def row(
    name: str, hour_price: float, cap_w: float, could: tuple[float, float], gains: Sequence[float], moved: str
) -> str:
    constant, perfect = could
    mean, worst = sum(gains) / len(gains), min(gains)
    share = f"{100 * mean / perfect:.0f} %" if perfect > 0.05 else "–"
    saves = [*map(_percent, (constant, perfect)), _percent(mean) + (f" ({_percent(worst)})" if len(gains) > 1 else "")]
    return f"| {name} | {hour_price:g} | {cap_w:g} W | {' | '.join(saves)} | {share} | {moved} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench prices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=list(_DAYS), default="swing")
    parser.add_argument(
        "--hour-prices", default="0.1", metavar="LIST", help="money per device hour, by comma (default 0.1)"
    )
    parser.add_argument("--curves", default="", metavar="TEXT", help="those with this in their name (default all)")
    parser.add_argument("--days", type=int, default=0, metavar="N", help="(default: bound 2, else 30)")
    parser.add_argument("--swing", type=float, default=50.0, metavar="X", help="percent up and down (default 50)")
    add_seeds(parser, 1, "of swing, repeats")
    parser.add_argument("--quick", action="store_true", help="two curves, four days")
    return parser
