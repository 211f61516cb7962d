"""What power and time against the cap may look like: a few thousand physical curves, before anything was measured.

All are relative to the baseline, at the cap and mean power at which it was measured. They are of three families,
`phases`, `law` and `memory`. Some curves of any have a cliff at the low end besides, and in some the highest caps but
the limit itself are one, as by the firmware of an RTX 3090: 340 to 370 W of 390 (club-3090, Apache-2.0).
Parameters are drawn once from wide ranges with a fixed seed, so that equal baselines have equal beliefs.

How far a job strays from its curve is a matter of the curve's kind (`residual`): those of the first two families stand
there as smooth and as bumpy, and some once more as strange, for jobs that no family describes.

Of `law`: power laws, as fitted to published tables: within 0.4 % on those of Krzywaniak et al. 2022.

Power is a power law of the cap up to where the cap stops to bind, `P/P0 = ((r - x) / (1 - x))^q`, and time follows from
power, `t/t0 = m + (1 - m) / f` with `f = ((P/P0 - s) / (1 - s))^(1/g)`.

Of `phases`: a card that alternates between computing and moving memory.

Phase i draws `idle + A_i x V(x)²` at the relative clock x, with V flat below a knee and linear above, and runs at the
highest clock that keeps this under the cap, but never below a floor. An iteration takes

    t_c / x_1 + t_m max(1, 0.55 / x_2) + t_host

It gives flat regions above the draw, knees, and the cliff where the clock sits on its floor and the cap is exceeded.

Of `memory`: jobs that wait for memory: a flat top, then a knee, then a cliff, as language models and streaming kernels
have them.

While the card works, computing takes x_k / x of what moving the memory takes, at the relative clock x. The two overlap,
the better the sharper the knee at x_k:

    t(x) = (1 + (x_k / x)^p)^(1/p)

It draws an idle share, a share for the memory, which is busy for 1 / t of the time, and the rest as x V(x)², with V
flat below a knee of its own and linear above. The clock is the highest that keeps this under a level that is a constant
share of the cap, but never below a floor: there the limit stops to act. Between the iterations the host works, and the
card draws less.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.parameters import CLOCKS, Between, Curves, Floats, Rising, at_odds, dynamic, uniform
from autocap.strategies.model.residual import BENT, BUMPY, ROUGH, SMOOTH, STRANGE

_LEAST_SPEED = 0.1  # over the baseline's: power falls no lower than where that is reached
_OVERSHOOT = 0.02  # in ln: mean power above the cap counts against a curve, which has no floor


def law(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    drawn = partial(uniform, rng, count)
    baseline_w = settings[-1]
    binds = rng.random((count, 1)) < 0.5  # up to the baseline's cap and beyond, or only below a draw of its own
    peak_w = np.where(binds, np.maximum(baseline_w, draw_w), draw_w * np.exp(np.abs(rng.normal(0, 0.3, (count, 1)))))
    softness = drawn(8.0, 60.0)
    reach = (1 + (settings / peak_w) ** -softness) ** (-1 / softness)  # softly the lesser of cap / peak and 1
    reach = np.where(binds, settings / peak_w, reach)
    reach = reach / reach[:, -1:]
    exponent = np.clip(rng.normal(0.9, 0.12, (count, 1)), 0.4, 1.1)
    offset = drawn(-0.1, 0.3)
    exponent = np.where(offset > 0.1, drawn(0.4, 1.0), exponent)
    relative = np.maximum((reach - offset) / (1 - offset), 1e-3)
    log_power = exponent * (1 - offset) * np.log(relative)
    static, clock = drawn(0.03, 0.55), np.exp(drawn(np.log(0.4), np.log(4.0)))
    elasticity = np.exp(drawn(np.log(0.03), np.log(0.9)))  # of time by power at the baseline
    memory = np.clip(1 - elasticity * clock * (1 - static), 0.0, 0.97)
    above = np.maximum((np.exp(log_power) - static) / (1 - static), _LEAST_SPEED**clock)
    log_power = np.maximum(log_power, np.log(static + (1 - static) * above))
    speed = above ** (1 / clock)
    over = np.max(np.maximum(np.log(draw_w) + log_power - np.log(settings), 0.0), axis=1)
    log_weight = -0.5 * (over / _OVERSHOOT) ** 2 - at_odds((peak_w >= baseline_w)[:, 0], binding)
    return Curves(log_power=log_power, log_time=np.log(memory + (1 - memory) / speed), log_weight=log_weight)


_MEMORY_CLOCK = 0.55  # above this share of the full clock, memory is what limits the second phase
_DRAW_ERROR = 0.02  # how far, in ln, a curve's own mean power at the baseline's cap may be from the measured one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phased:
    """Jobs on a card, each of shape (curves, 1). dynamic: x V(x)² at CLOCKS; least: at the lowest clock. compute,
    memory, host: times at full clock. idle: power over the mean; peak, second: what the phases draw at full clock, the
    first over the mean, the second's over that of the first. waiting: what is drawn while the host works, of the
    second's."""

    dynamic: Rising
    least: Floats
    compute: Floats
    memory: Floats
    host: Floats
    idle: Floats
    peak: Floats
    second: Floats
    waiting: Floats

    def at(self, setting: Floats, scale_w: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Mean power, time, and whether the first phase is not held back, each of shape (curves, caps)."""
        idle_w = self.idle * scale_w
        first_w = (self.peak - self.idle) * scale_w
        second_w = self.second * first_w
        above_w = np.asarray(setting - idle_w)
        reached = [np.clip(above_w / most_w, self.least, 1.0) for most_w in (first_w, second_w)]
        x1, x2 = (self.dynamic.clocks(each).clock for each in reached)
        p1, p2 = idle_w + first_w * reached[0], idle_w + second_w * reached[1]
        p3 = idle_w + self.waiting * (p2 - idle_w)
        t1, t2 = self.compute / x1, self.memory * np.maximum(1.0, _MEMORY_CLOCK / x2)
        time = t1 + t2 + self.host
        return (t1 * p1 + t2 * p2 + self.host * p3) / time, time, reached[0] >= 1.0


def phases(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    jobs = _phased(int(rng.integers(2**32)), count)
    scale_w = draw_w * np.ones((count, 1))
    for _ in range(4):  # until the mean power at the baseline's cap is the measured one, where that can be
        mean_w, _, _ = jobs.at(settings[None, -1:], scale_w)
        scale_w = np.minimum(scale_w * draw_w / mean_w, 2.5 * draw_w)
    mean_w, time, full = jobs.at(settings[None, :], scale_w)
    misfit = np.log(mean_w[:, -1] / draw_w) / _DRAW_ERROR
    log_weight = -0.5 * misfit**2 - at_odds(~full[:, -1], binding)
    return Curves(log_power=np.log(mean_w), log_time=np.log(time), log_weight=log_weight)


@lru_cache(maxsize=2)
def _phased(seed: int, count: int) -> _Phased:
    """So many jobs; the same for the same seed, whatever the card and its baseline."""
    rng = np.random.default_rng(seed)
    drawn = partial(uniform, rng, count)
    knee, flat, floor = drawn(0.3, 0.8), drawn(0.55, 0.95), drawn(0.08, 0.45)
    return _Phased(
        dynamic=Rising.of(dynamic(CLOCKS, knee, flat)),
        least=dynamic(floor, knee, flat),
        compute=drawn(0.15, 1.0),
        memory=drawn(0.0, 0.6),
        host=drawn(0.0, 0.4) ** 2 / 0.4,
        idle=drawn(0.05, 0.3),
        second=drawn(0.35, 1.0),
        waiting=drawn(0.0, 0.5),
        peak=np.exp(drawn(0.0, 0.9) ** 2 / 0.9),
    )


_LEVEL = (0.72, 1.02)  # the draw while the card works, over the cap that holds it
_LEVEL_ERROR = 0.03  # in ln
_BINDING = 0.6  # share of the curves that the baseline's cap holds back


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """Jobs at every relative clock of CLOCKS. working: power while the card works. mean: on the whole; log_time: ln of
    the time of an iteration, of any unit; both of shape (curves, clocks). The rest is of shape (curves, 1).

    binds: whether the baseline's cap holds the clock down, to `arrival`. at_arrival: the power while it works there.
    level: that over the cap that holds it, where the baseline's does not. least: the power at the lowest clock.
    """

    working: Rising
    mean: Floats
    log_time: Floats
    binds: NDArray[np.bool_]
    arrival: Between
    at_arrival: Floats
    level: Floats
    least: Floats


def memory(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    jobs = _bound(int(rng.integers(2**32)), count)
    scale_w = draw_w / jobs.arrival.of_values(jobs.mean)
    found = jobs.at_arrival * scale_w / settings[-1]  # the level, if it is the baseline's cap that holds the clock
    too_high = np.log(found / np.where(jobs.binds, _LEVEL[1], jobs.level))
    too_low = np.where(jobs.binds, np.log(_LEVEL[0] / found), 0.0)
    misfit = (np.maximum(too_high, 0.0) + np.maximum(too_low, 0.0)) / _LEVEL_ERROR
    held = np.where(jobs.binds, found, jobs.level) / scale_w * settings
    clocks = jobs.working.clocks(np.maximum(held, jobs.least))
    return Curves(
        log_power=np.log(clocks.of_values(jobs.mean) * scale_w),
        log_time=clocks.of_values(jobs.log_time),
        log_weight=-0.5 * misfit[:, 0] ** 2 - at_odds(jobs.binds[:, 0], binding),
    )


@lru_cache(maxsize=2)
def _bound(seed: int, count: int) -> _Bound:
    """So many jobs; the same for the same seed, whatever the card and its baseline."""
    rng = np.random.default_rng(seed)
    drawn = partial(uniform, rng, count)
    at_knee, sharpness = drawn(0.3, 1.05), np.exp(drawn(math.log(3.0), math.log(40.0)))
    idle, moving = drawn(0.05, 0.4), drawn(0.05, 0.5)
    knee, flat, floor = drawn(0.3, 0.85), drawn(0.5, 0.95), drawn(0.05, 0.35)
    host, waiting = drawn(0.0, 0.5) ** 2, drawn(0.0, 0.5)
    binds = rng.random((count, 1)) < _BINDING
    arrival = Between.of(np.where(binds, drawn(0.55, 1.0), 1.0))
    busy = (1 + (at_knee / CLOCKS) ** sharpness) ** (1 / sharpness)
    working = idle + moving / busy + (1 - idle - moving) * dynamic(CLOCKS, knee, flat)
    host = host * busy[:, -1:]
    time = busy + host
    return _Bound(
        working=Rising.of(working),
        mean=(busy * working + host * (idle + waiting * (working - idle))) / time,
        log_time=np.log(time),
        binds=binds,
        arrival=arrival,
        at_arrival=arrival.of_values(working),
        level=drawn(*_LEVEL),
        least=Between.of(floor).of_values(working),
    )


_SEED = 20220  # of the parameters; nothing is tuned to it
_CLIFFS = 0.2  # share of the curves that have one
_EDGE = (0.25, 0.65)  # where it begins, share of the baseline's cap
_STEEPNESS = (1.0, 9.0)  # of ln time, per share of the baseline's cap
_PLATEAUS = 0.25  # share of the curves in which a range of high caps is one
_TOP, _WIDTH = (0.92, 0.99), (0.05, 0.15)  # where that range ends, and how wide it is, shares of the baseline's cap
_NEGLIGIBLE = 1e-6  # a curve with less weight than this share of the likeliest's is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """curves: what makes them. share: how likely a job is of this family, before anything is known of it.

    kinds: of residual, each with how likely it is and how many curves stand for it.
    """

    curves: Callable[[Floats, float, bool | None, np.random.Generator, int], Curves]
    share: float
    kinds: tuple[tuple[int, float, int], ...]

    @property
    def count(self) -> int:
        """How many different curves there are."""
        return max(count for _, _, count in self.kinds)


FAMILIES = {
    "phases": Family(curves=phases, share=0.35, kinds=((SMOOTH, 0.25, 1000), (BUMPY, 0.6, 1000), (STRANGE, 0.15, 300))),
    "law": Family(curves=law, share=0.4, kinds=((SMOOTH, 0.4, 2000), (BUMPY, 0.45, 1000), (STRANGE, 0.15, 300))),
    "memory": Family(curves=memory, share=0.25, kinds=((BENT, 0.75, 2000), (ROUGH, 0.25, 1000))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Curves over some caps. log_power, log_time: ln P/P0 and ln t/t0, shape (curves, caps). kind: of the residual.

    log_weight: how well each goes with the baseline's power and binding, shape (curves,).
    """

    log_power: Floats
    log_time: Floats
    log_weight: Floats
    kind: NDArray[np.int_]

    def of(self, curves: NDArray[np.bool_]) -> "Shapes":
        """Some of them."""
        return Shapes(
            log_power=self.log_power[curves],
            log_time=self.log_time[curves],
            log_weight=self.log_weight[curves],
            kind=self.kind[curves],
        )


def shapes(
    settings: Floats, baseline_w: float, draw_w: float, binding: bool | None, families: Sequence[str] = tuple(FAMILIES)
) -> Shapes:
    """The curves over settings (shape (caps,), watts), for a baseline that drew draw_w at the cap baseline_w.

    binding: whether that cap held the clocks down, `None` where the device does not say.
    """
    where = np.append(settings, baseline_w)
    return together([of_family(FAMILIES[name], where, draw_w, binding) for name in families])


def together(found: Sequence[Shapes]) -> Shapes:
    """Curves over the same caps in one, without those that are next to impossible beside the likeliest."""
    every = Shapes(
        log_power=np.concatenate([each.log_power for each in found]),
        log_time=np.concatenate([each.log_time for each in found]),
        log_weight=np.concatenate([each.log_weight for each in found]),
        kind=np.concatenate([each.kind for each in found]),
    )
    return every.of(every.log_weight > every.log_weight.max() + math.log(_NEGLIGIBLE))


def with_rest(curves: Shapes, share: float) -> Shapes:
    """The curves of a machine of which all but the cards draws this share of its power, the same at every cap."""
    if share <= 0:
        return curves
    return replace(curves, log_power=np.log((1 - share) * np.exp(curves.log_power) + share))


def of_family(family: Family, settings: Floats, draw_w: float, binding: bool | None) -> Shapes:
    """A family's curves, each once for every kind; the last cap is the baseline's."""
    rng = np.random.default_rng(_SEED)
    curves = family.curves(settings, draw_w, binding, rng, family.count)
    log_time = curves.log_time + _cliffs(settings, rng, family.count)
    acts = _acting(settings, rng, family.count)
    acting = [np.take_along_axis(each, acts, axis=1) for each in (curves.log_power, log_time)]
    log_power, log_time = (each[:, :-1] - each[:, -1:] for each in acting)
    weights = [curves.log_weight[:count] + math.log(family.share * share / count) for _, share, count in family.kinds]
    return Shapes(
        log_power=np.concatenate([log_power[:count] for _, _, count in family.kinds]),
        log_time=np.concatenate([log_time[:count] for _, _, count in family.kinds]),
        log_weight=np.concatenate(weights),
        kind=np.repeat([kind for kind, _, _ in family.kinds], [count for _, _, count in family.kinds]),
    )


def _cliffs(settings: Floats, rng: np.random.Generator, count: int) -> Floats:
    """What some of the curves add to ln time below an edge of theirs, shape (curves, caps); the last is the baseline's.

    No family has the steepest cliffs that were published: 4 times the time at the lowest cap.
    """
    edge = rng.uniform(*_EDGE, (count, 1))
    steepness = np.where(rng.random((count, 1)) < _CLIFFS, rng.uniform(*_STEEPNESS, (count, 1)), 0.0)
    return np.asarray(steepness * np.maximum(edge - settings / settings[-1], 0.0))


def _acting(settings: Floats, rng: np.random.Generator, count: int) -> NDArray[np.int_]:
    """The place of the cap that acts at each cap, shape (curves, caps); the last is the baseline's. In some of the
    curves it is the lowest of a range right below the limit wherever a cap is within that."""
    own = np.broadcast_to(np.arange(len(settings)), (count, len(settings)))
    top = np.where(rng.random((count, 1)) < _PLATEAUS, rng.uniform(*_TOP, (count, 1)), 0.0)
    edge = top - rng.uniform(*_WIDTH, (count, 1))
    cap = settings / settings[-1]
    lowest = np.searchsorted(cap[:-1], edge[:, 0])[:, None]
    return np.asarray(np.where((cap >= edge) & (cap < top), lowest, own))
