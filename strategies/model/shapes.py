"""What power and time against the cap may look like: a few thousand physical curves, before anything was measured.

All are relative to the baseline, at the cap and mean power at which it was measured. Two families:

**Phases.** A card alternates between computing and moving memory. Phase i draws `idle + A_i x V(x)²` at the relative
clock x, with V flat below a knee and linear above, and runs at the highest clock that keeps this under the cap, but
never below a floor. An iteration takes `t_c / x_1 + t_m max(1, 0.55 / x_2) + t_host`. It gives flat regions above the
draw, knees, and the cliff where the clock sits on its floor and the cap is exceeded.

**Law.** Power is a power law of the cap up to where the cap stops to bind, `P/P0 = ((r - x) / (1 - x))^q`, and time
follows from power, `t/t0 = m + (1 - m) / f` with `f = ((P/P0 - s) / (1 - s))^(1/g)`: within 0.4 % on the tables of
Krzywaniak et al. 2022.

Some curves of either family have a cliff at the low end besides. Parameters are drawn once from wide ranges with a
fixed seed, so that equal baselines have equal beliefs.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EACH = 1200  # curves a family
_SEED = 20220  # of the parameters; nothing is tuned to it
_NEWTON_STEPS = 8
_MEMORY_CLOCK = 0.55  # above this share of the full clock, memory is what limits the second phase
_DRAW_ERROR = 0.02  # how far, in ln, a curve's own mean power at the baseline's cap may be from the measured one
_LEAST_SPEED = 0.02
_CLIFFS = 0.2  # share of the curves that have one
_EDGE = (0.25, 0.65)  # where it begins, share of the baseline's cap
_STEEPNESS = (1.0, 9.0)  # of ln time, per share of the baseline's cap
_CONTRADICTED = 3.0  # what the log weight of a curve loses where the device says otherwise
_OVERSHOOT = 0.02  # in ln: mean power above the cap counts against a curve of the law, which has no floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Curves over some caps. log_power, log_time: ln P/P0 and ln t/t0, shape (curves, caps).

    log_weight: how well each goes with the baseline's power and binding, shape (curves,).
    """

    log_power: Floats
    log_time: Floats
    log_weight: Floats


def shapes(caps_w: Floats, baseline_w: float, draw_w: float, binding: bool | None) -> Shapes:
    """The curves over caps_w (shape (caps,), watts), for a baseline that drew draw_w at the cap baseline_w.

    binding: whether that cap held the clocks down, `None` where the device does not say.
    """
    rng = np.random.default_rng(_SEED)
    where = np.append(caps_w, baseline_w)
    families = [_phases(where, draw_w, binding, rng), _law(where, draw_w, binding, rng)]
    log_power = np.concatenate([family.log_power for family in families])
    log_time = np.concatenate([family.log_time for family in families])
    log_time += _cliffs(where, rng, len(log_time))
    return Shapes(
        log_power=log_power[:, :-1] - log_power[:, -1:],
        log_time=log_time[:, :-1] - log_time[:, -1:],
        log_weight=np.concatenate([family.log_weight for family in families]),
    )


def with_rest(curves: Shapes, share: float) -> Shapes:
    """The curves of a machine of which all but the cards draws this share of its power, the same at every cap."""
    if share <= 0:
        return curves
    return replace(curves, log_power=np.log((1 - share) * np.exp(curves.log_power) + share))


def _phases(caps_w: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator) -> Shapes:
    """The first family; the last cap is the baseline's."""
    knee, flat, floor = _uniform(rng, 0.3, 0.8), _uniform(rng, 0.55, 0.95), _uniform(rng, 0.08, 0.45)
    compute, memory, host = _uniform(rng, 0.15, 1.0), _uniform(rng, 0.0, 0.6), _uniform(rng, 0.0, 0.4) ** 2 / 0.4
    idle, second, waiting = _uniform(rng, 0.05, 0.3), _uniform(rng, 0.35, 1.0), _uniform(rng, 0.0, 0.5)
    peak = np.exp(_uniform(rng, 0.0, 0.9) ** 2 / 0.9)  # the first phase's full draw over the mean draw, before scaling

    def at(cap_w: Floats, scale_w: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Mean power, time, and whether the first phase is not held back, each of shape (curves, caps)."""
        idle_w = idle * scale_w
        first_w = (peak - idle) * scale_w
        second_w = second * first_w
        x1 = np.maximum(_clock((cap_w - idle_w) / first_w, knee, flat), floor)
        x2 = np.maximum(_clock((cap_w - idle_w) / second_w, knee, flat), floor)
        t1, t2 = compute / x1, memory * np.maximum(1.0, _MEMORY_CLOCK / x2)
        p1 = idle_w + first_w * _dynamic(x1, knee, flat)
        p2 = idle_w + second_w * _dynamic(x2, knee, flat)
        p3 = idle_w + waiting * (p2 - idle_w)
        time = t1 + t2 + host
        return (t1 * p1 + t2 * p2 + host * p3) / time, time, x1 >= 1.0

    scale_w = draw_w * np.ones((_EACH, 1))
    for _ in range(4):  # until the mean power at the baseline's cap is the measured one, where that can be
        mean_w, _, _ = at(caps_w[None, -1:], scale_w)
        scale_w = np.minimum(scale_w * draw_w / mean_w, 2.5 * draw_w)
    mean_w, time, full = at(caps_w[None, :], scale_w)
    misfit = np.log(mean_w[:, -1] / draw_w) / _DRAW_ERROR
    log_weight = -0.5 * misfit**2 - _at_odds(~full[:, -1], binding)
    return Shapes(log_power=np.log(mean_w), log_time=np.log(time), log_weight=log_weight)


def _uniform(rng: np.random.Generator, low: float, high: float) -> Floats:
    """A parameter of every curve of a family, shape (curves, 1)."""
    return rng.uniform(low, high, (_EACH, 1))


def _at_odds(binds: NDArray[np.bool_], binding: bool | None) -> Floats:
    """What the log weight of each curve loses if the baseline's cap binds it and the device denies that, or the other
    way round; shape (curves,)."""
    return np.zeros(len(binds)) if binding is None else np.where(binds != binding, _CONTRADICTED, 0.0)


def _cliffs(caps_w: Floats, rng: np.random.Generator, count: int) -> Floats:
    """What some of the curves add to ln time below an edge of theirs, shape (curves, caps); the last is the baseline's.

    Neither family has the steepest cliffs that were published: 4 times the time at the lowest cap.
    """
    edge = rng.uniform(*_EDGE, (count, 1))
    steepness = np.where(rng.random((count, 1)) < _CLIFFS, rng.uniform(*_STEEPNESS, (count, 1)), 0.0)
    return np.asarray(steepness * np.maximum(edge - caps_w / caps_w[-1], 0.0))


def _dynamic(x: Floats, knee: Floats, flat: Floats) -> Floats:
    """x V(x)², 1 at full clock."""
    slope = (1 - flat) / (1 - knee)
    return np.asarray(x * (flat + slope * np.maximum(x - knee, 0.0)) ** 2)


def _clock(dynamic: Floats, knee: Floats, flat: Floats) -> Floats:
    """The clock, at most 1, whose x V(x)² is `dynamic`; Newton's steps from above, where it is convex."""
    slope = (1 - flat) / (1 - knee)
    x = np.ones_like(dynamic)
    for _ in range(_NEWTON_STEPS):
        volt = flat + slope * np.maximum(x - knee, 0.0)
        gradient = volt**2 + np.where(x > knee, 2 * x * volt * slope, 0.0)
        x = np.clip(x - (x * volt**2 - dynamic) / gradient, 1e-3, 1.0)
    return np.asarray(x)


def _law(caps_w: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator) -> Shapes:
    """The second family; the last cap is the baseline's."""
    baseline_w = caps_w[-1]
    binds = rng.random((_EACH, 1)) < 0.5  # up to the baseline's cap and beyond, or only below a draw of its own
    peak_w = np.where(binds, np.maximum(baseline_w, draw_w), draw_w * np.exp(np.abs(rng.normal(0, 0.3, (_EACH, 1)))))
    softness = _uniform(rng, 8.0, 60.0)
    reach = (1 + (caps_w / peak_w) ** -softness) ** (-1 / softness)  # softly the lesser of cap / peak and 1
    reach = np.where(binds, caps_w / peak_w, reach)
    reach = reach / reach[:, -1:]
    exponent = np.clip(rng.normal(0.9, 0.12, (_EACH, 1)), 0.4, 1.1)
    offset = _uniform(rng, -0.1, 0.3)
    exponent = np.where(offset > 0.1, _uniform(rng, 0.4, 1.0), exponent)
    relative = np.maximum((reach - offset) / (1 - offset), 1e-3)
    log_power = exponent * (1 - offset) * np.log(relative)
    static, clock = _uniform(rng, 0.03, 0.55), np.exp(_uniform(rng, np.log(0.4), np.log(4.0)))
    elasticity = np.exp(_uniform(rng, np.log(0.03), np.log(0.9)))  # of time by power at the baseline
    memory = np.clip(1 - elasticity * clock * (1 - static), 0.0, 0.97)
    above = np.maximum((np.exp(log_power) - static) / (1 - static), 1e-4)
    speed = np.maximum(above ** (1 / clock), _LEAST_SPEED)
    over = np.max(np.maximum(np.log(draw_w) + log_power - np.log(caps_w), 0.0), axis=1)
    log_weight = -0.5 * (over / _OVERSHOOT) ** 2 - _at_odds((peak_w >= baseline_w)[:, 0], binding)
    return Shapes(log_power=log_power, log_time=np.log(memory + (1 - memory) / speed), log_weight=log_weight)
