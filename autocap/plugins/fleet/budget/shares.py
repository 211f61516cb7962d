"""Who gets how many watts, from what each job loses by a lower cap: caps for many jobs under one budget. Pure; a
solution for 10,000 jobs takes milliseconds, on tables of many jobs at once.

A job is charged with its caps, not with its draw: the card itself sees to the cap, also when nobody watches it. What a
job asks for is the end of its curve; where all fit, all get it, but for `energy`.

- `fair`: all are slowed down equally, in proportion to 1/weight (max-min fairness). The watts that jobs need for the
  same slowdown fall as it rises, so one root gives it (beyond which a job stays at its lowest cap).
- `throughput`: the sum of weight·devices/(1 + slowdown) is highest. With a price of a watt, each job takes the cap at
  which its own part less its price is highest; the price at which the budget is spent gives the caps (the Lagrangian of
  the problem; on curves that are not concave it leaves a gap of at most one job's step).
- `energy`: the same with the joules per iteration that a job surely takes no more than, so the sum of
  weight·devices·energy is lowest; a job gets no more than it needs the least with, whatever there is, and of caps that
  cost it the same the highest.

A job with a limit on its slowdown is kept within that as long as the budget holds for all such limits.

A job's curve may be measured, remembered, or a prior of its device model. It is taken as it is believed to be: the
budget is kept by caps, whatever the curves are, and to take those that are known less for steeper would only slow the
others down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocap.controller.known_curve import exponent_below
from autocap.plugins.fleet.config import Policy

Floats = NDArray[np.float64]

_COLUMNS = ("caps_w", "slowdown", "energy", "slowdown_stderr", "energy_stderr")
POINTS = 64  # of a job's curve
_SURE = 2.0  # standard errors
_IDLE = 0.2  # of what a job draws, at rest
_BELOW = 8  # points, where it goes on below the lowest cap that is known
_COMPUTE_BOUND = 1 / 3  # the exponent of time against power that a job without a curve is taken to have: power ∝ clock³
STEP_W = 0.25  # of caps; on the steep end of a published curve 0.2 points of slowdown
_FINE, _FINEST = (
    0.002,
    5,
)  # of a slowdown, which a step is to cost at most; into how many it is cut at most, off a cliff
_CLOSE = 1e-9  # of the slowdown
_LEFT, _LEAST_STEP = 1e-7, 0.01  # of the budget, and of the way between two slowdowns
_NEVER = 1e9  # what a cap costs that is not to be
_PRICES = 60  # halvings of the price of a watt, at most
_SPENT = 1e-4  # of the budget that may be left before those who are content with either of two caps are raised


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """One job. Arrays have shape (points,), caps ascend.

    caps_w: per device, watts, from the lowest that may be set to the one that the job asks for, above which it gains
    nothing by its own metric. slowdown: seconds per iteration over those at the job's baseline, less 1. energy: joules
    per iteration over those at its baseline. slowdown_stderr, energy_stderr: of these. devices: under this cap. weight:
    of its slowdown against others'; one of weight 2 is slowed down by half as much. most_slowdown: above which it is
    slowed down only where there is no other way left.

    Raises ValueError for what is no such curve.
    """

    caps_w: Floats
    slowdown: Floats
    energy: Floats
    slowdown_stderr: Floats | float = 0.0
    energy_stderr: Floats | float = 0.0
    devices: int = 1
    weight: float = 1.0
    most_slowdown: float = np.inf

    def __post_init__(self) -> None:
        if not (self.caps_w.shape == self.slowdown.shape == self.energy.shape and self.caps_w.ndim == 1):
            raise ValueError("a curve has one slowdown and one energy for each cap")
        if not self.caps_w.size or np.any(np.diff(self.caps_w) <= 0) or self.caps_w[0] <= 0:
            raise ValueError(f"a curve's caps are above 0 W and ascend, got {self.caps_w}")
        if not (np.isfinite(self.slowdown).all() and np.all(self.slowdown > -1) and np.all(self.energy > 0)):
            raise ValueError("a curve's slowdowns are above -1 and its energies above 0")
        if self.devices < 1 or not self.weight > 0 or not self.most_slowdown >= 0:
            raise ValueError(
                f"a job has a device or more, a weight above 0 and a limit of 0 or more, got {self.devices}, "
                f"{self.weight:g} and {self.most_slowdown:g}"
            )

    def up_to(self, cap_w: float) -> "JobCurve":
        """The part of it up to a cap, watts, such as what the job draws at most: more is of no use to it. The lowest
        cap stays."""
        top_w = max(cap_w, float(self.caps_w[0]))
        inside = self.caps_w < top_w
        if inside.all():
            return self
        at = [np.append(column[inside], np.interp(top_w, self.caps_w, column)) for column in self._columns()]
        return self._of(at)

    def at(self, caps_w: Floats) -> "JobCurve":
        """The curve at these caps, watts, ascending; at those outside of it as at its ends."""
        return self._of([caps_w, *(np.interp(caps_w, self.caps_w, column) for column in self._columns()[1:])])

    def _of(self, columns: Sequence[Floats]) -> "JobCurve":
        named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))  # Any: of the fields some are numbers
        return replace(self, **named)

    def down_to(self, cap_w: float) -> "JobCurve":
        """The curve from a cap on, watts, such as the lowest that may be set. Where it does not reach down there, time
        goes on as it came (`controller.scaling`), and energy with it: that less power is drawn there than at the lowest
        cap that is known, for the time that it takes, nobody has seen, and below a cliff it is not so."""
        low_w = float(self.caps_w[0])
        if cap_w == low_w:
            return self
        if cap_w > low_w:
            top_w = max(cap_w, float(self.caps_w[-1]))
            inside = self.caps_w > cap_w
            at = [np.insert(column[inside], 0, np.interp(cap_w, self.caps_w, column)) for column in self._columns()]
            return self._of(at) if top_w > cap_w else self._of([column[:1] for column in at])
        caps_w = np.geomspace(cap_w, low_w, _BELOW, endpoint=False)
        far, times = np.log(low_w / caps_w), 1 + self.slowdown
        errors = np.broadcast_to(self.slowdown_stderr, self.caps_w.shape) / times
        exponent, off = exponent_below(self.caps_w.tolist(), times.tolist(), errors.tolist())
        grown = np.exp(exponent * far)
        time = times[0] * grown
        below = (caps_w, time - 1, self.energy[0] * grown, time * np.hypot(errors[0], off * far), np.full(_BELOW, 0.2))
        return self._of([np.concatenate(columns) for columns in zip(below, self._columns(), strict=True)])

    def _columns(self) -> tuple[Floats, ...]:
        return tuple(np.broadcast_to(getattr(self, name), self.caps_w.shape) for name in _COLUMNS)


def prior(min_w: float, draw_w: float, *, devices: int = 1) -> JobCurve:
    """A job of which nothing is known but what it draws: it draws its cap, computes all the time, and its clock is as
    the cube root of what it draws above idle, as power is the clock times the square of a voltage that follows it.
    That it takes less energy under a lower cap is not known: one that waits for memory, or falls off a cliff, takes
    more, so that its energy goes with its time. draw_w: a device's, watts; also the most it gets."""
    top_w = max(draw_w, min_w + 1e-6)
    caps_w = np.linspace(min_w, top_w, POINTS)
    share = (caps_w / top_w - _IDLE) / (1 - _IDLE)
    time = np.maximum(share, 1e-3) ** -_COMPUTE_BOUND
    return JobCurve(
        caps_w=caps_w,
        slowdown=time - 1,
        energy=time,
        slowdown_stderr=(time - 1) / 2,
        energy_stderr=0.2,
        devices=devices,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Many jobs. caps_w, slowdown, energy: shape (jobs, points); caps ascend along the second axis, slowdowns never
    rise. energy: what a job surely takes no more than, as nobody is to be at a cap for its joules that is not known to
    save any. devices, weight, most_slowdown: shape (jobs,)."""

    caps_w: Floats
    slowdown: Floats
    energy: Floats
    devices: Floats
    weight: Floats
    most_slowdown: Floats

    @classmethod
    def of(cls, jobs: Sequence[JobCurve], points: int = POINTS) -> "Curves":
        """All of them on as many points each."""
        shape = (len(jobs), points)
        caps_w, slowdown, energy = np.empty(shape), np.empty(shape), np.empty(shape)
        for row, job in enumerate(jobs):
            caps_w[row] = np.linspace(job.caps_w[0], job.caps_w[-1], points)
            slowdown[row] = np.interp(caps_w[row], job.caps_w, np.maximum.accumulate(job.slowdown[::-1])[::-1])
            energy[row] = np.interp(caps_w[row], job.caps_w, job.energy + _SURE * job.energy_stderr)
        return cls(
            caps_w=caps_w,
            slowdown=slowdown,
            energy=energy,
            devices=np.array([job.devices for job in jobs], dtype=float),
            weight=np.array([job.weight for job in jobs]),
            most_slowdown=np.array([job.most_slowdown for job in jobs]),
        )

    def __len__(self) -> int:
        return len(self.devices)

    def of_jobs(self, some: "NDArray[np.bool_] | NDArray[np.intp]") -> "Curves":
        """Of some jobs, by whether or which they are."""
        return Curves(**{one.name: getattr(self, one.name)[some] for one in fields(self)})

    def slowdown_at(self, caps_w: Floats) -> Floats:
        """At one cap a job, watts; shape (jobs,)."""
        return self._at(self.slowdown, caps_w)

    def energy_at(self, caps_w: Floats) -> Floats:
        """The same of the energy per iteration."""
        return self._at(self.energy, caps_w)

    def _at(self, values: Floats, caps_w: Floats) -> Floats:
        steps = self.caps_w.shape[1] - 1
        low_w, width_w = self.caps_w[:, 0], np.maximum(self.caps_w[:, -1] - self.caps_w[:, 0], 1e-12)
        place = np.clip((caps_w - low_w) / width_w, 0, 1) * steps  # points of a job are evenly spaced
        left = np.minimum(place.astype(int), max(0, steps - 1))
        right = np.minimum(left + 1, steps)
        rows = np.arange(len(self))
        share = place - left
        return np.asarray((1 - share) * values[rows, left] + share * values[rows, right])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Who gets what. caps_w: a device's cap, watts, shape (jobs,). slowdown: what these are expected to cost each job.

    short_w: by how much even the lowest caps are above the budget, watts; 0 where they are not.
    """

    caps_w: Floats
    slowdown: Floats
    short_w: float = 0.0


def share(curves: Curves, budget_w: float, policy: Policy = Policy.FAIR) -> Shares:
    """Caps whose sum over all devices is at most the budget, watts, wherever the lowest caps are."""
    lowest_w, asked_w = curves.caps_w[:, 0], curves.caps_w[:, -1]
    if policy is not Policy.ENERGY and charged_w(curves, asked_w) <= budget_w:
        caps_w = asked_w
    elif charged_w(curves, lowest_w) >= budget_w:
        caps_w = lowest_w
    elif policy is Policy.FAIR:
        caps_w = _fair(curves, budget_w)
    else:
        value = 1 / (1 + curves.slowdown) if policy is Policy.THROUGHPUT else -curves.energy
        caps_w = _by_price(curves, _kept(curves, value, budget_w), budget_w)
    short_w = max(0.0, charged_w(curves, lowest_w) - budget_w)
    return Shares(caps_w=caps_w, slowdown=curves.slowdown_at(caps_w), short_w=short_w)


def charged_w(curves: Curves, caps_w: Floats) -> float:
    """What these caps take of a budget, watts."""
    return float(curves.devices @ caps_w)


def in_steps(curves: Curves, budget_w: float, policy: Policy, held_w: Floats, step_w: float) -> Floats:
    """Caps as `share` has them, in whole steps, watts, and held where they would hardly change. held_w: before; NaN for
    a new job."""
    ideal_w = share(curves, budget_w, policy).caps_w
    if policy is not Policy.ENERGY and charged_w(curves, curves.caps_w[:, -1]) <= budget_w:
        return ideal_w.copy()
    cost = curves.slowdown_at(ideal_w - step_w) - curves.slowdown_at(ideal_w)
    steps_w = step_w / np.clip(np.ceil(cost / _FINE - 1e-6), 1, _FINEST)
    caps_w = settled(curves, ideal_w, held_w, budget_w, steps_w)
    return caps_w if policy is Policy.ENERGY else topped(curves, caps_w, ideal_w, budget_w, steps_w)


def _fair(curves: Curves, budget_w: float) -> Floats:
    """With limits on the slowdown of some jobs, first all within theirs, and where that is not enough all equally."""
    limited = np.isfinite(curves.most_slowdown)

    def kept(common: float) -> Floats:
        return _needed_w(curves, np.minimum(common / curves.weight, curves.most_slowdown))

    def all_alike(common: float) -> Floats:
        return _needed_w(curves, common / curves.weight)

    most = float(np.max(curves.slowdown[:, 0] * curves.weight))
    rule = kept if limited.any() and charged_w(curves, kept(most)) <= budget_w else all_alike
    return _within(curves, rule, budget_w, most)


def _within(curves: Curves, rule: Callable[[float], Floats], budget_w: float, most: float) -> Floats:
    """The caps of the smallest common slowdown at which they are within the budget, by false position (the Illinois
    rule, Dowell and Jarratt 1971). most: where they are surely."""

    def over_w(common: float) -> float:
        return charged_w(curves, rule(common)) - budget_w

    low, high, over_low, over_high = 0.0, most, over_w(0.0), over_w(most)
    if over_low <= 0:
        return rule(low)
    left_w, was_over = -over_high, None
    while left_w > _LEFT * budget_w and high - low > _CLOSE * (1 + high):
        step = min(max(over_low / (over_low - over_high), _LEAST_STEP), 1 - _LEAST_STEP)
        middle = low + step * (high - low)
        over = over_w(middle)
        if over > 0:
            low, over_low = middle, over
            over_high = over_high / 2 if was_over is True else -left_w
        else:
            high, over_high, left_w = middle, over, -over
            over_low = over_low / 2 if was_over is False else over_low
        was_over = over > 0
    return rule(high)


def _needed_w(curves: Curves, allowed: Floats) -> Floats:
    """The lowest cap of each job at which it is slowed down by no more than that; shape (jobs,)."""
    slower = curves.slowdown > allowed[:, None]
    first = slower.sum(axis=1)  # slowdowns fall: of those that are too slow, one stands behind the other
    rows, last = np.arange(len(curves)), curves.slowdown.shape[1] - 1
    right, left = np.minimum(first, last), np.maximum(first - 1, 0)
    high, low = curves.slowdown[rows, left], curves.slowdown[rows, right]
    with np.errstate(divide="ignore", invalid="ignore"):
        way = np.where(high > low, (high - allowed) / (high - low), 1.0)
    between_w = curves.caps_w[rows, left] + np.clip(way, 0, 1) * (
        curves.caps_w[rows, right] - curves.caps_w[rows, left]
    )
    return np.asarray(
        np.where(first == 0, curves.caps_w[:, 0], np.where(first > last, curves.caps_w[:, -1], between_w))
    )


def _kept(curves: Curves, value: Floats, budget_w: float) -> Floats:
    """The values, those of caps at which jobs are slower than allowed left out, where the budget holds without them."""
    if not np.isfinite(curves.most_slowdown).any():
        return value
    slow = curves.slowdown > curves.most_slowdown[:, None]
    slow[:, -1] = False
    lowest = np.argmin(slow, axis=1)
    if charged_w(curves, curves.caps_w[np.arange(len(curves)), lowest]) > budget_w:
        return value
    return np.where(slow, -_NEVER, value)


def _by_price(curves: Curves, value: Floats, budget_w: float) -> Floats:
    """The caps of the highest sum of weight·devices·value within the budget."""
    rows, last = np.arange(len(curves)), curves.caps_w.shape[1] - 1
    worth = curves.weight[:, None] * value  # a watt costs each of a job's devices the same

    def at_price(price: float) -> tuple["np.ndarray[tuple[int], np.dtype[np.intp]]", float]:
        best = last - np.argmax((worth - price * curves.caps_w)[:, ::-1], axis=1)  # of equals the highest cap
        return best, charged_w(curves, curves.caps_w[rows, best])

    # At price 0 those who gain nothing by their highest cap take less already.
    best, taken_w = at_price(0.0)
    if taken_w <= budget_w:
        return np.asarray(curves.caps_w[rows, best])
    low, high = 0.0, 1.0
    while at_price(high)[1] > budget_w:
        low, high = high, 2 * high
    for _ in range(_PRICES):
        price = (low + high) / 2
        _, taken_w = at_price(price)
        if taken_w > budget_w:
            low = price
        else:
            high = price
            if taken_w > (1 - _SPENT) * budget_w:
                break
    poor_w, rich_w = (curves.caps_w[rows, at_price(price)[0]] for price in (high, low))
    # Between the two prices some jobs are as content with either cap: they get theirs raised as far as it goes.
    left_w = budget_w - charged_w(curves, poor_w)
    more_w = curves.devices * np.maximum(rich_w - poor_w, 0.0)  # rounding may turn a tie between two caps round
    spent_w = np.cumsum(more_w)
    raised = np.clip((left_w - (spent_w - more_w)) / np.where(more_w > 0, more_w, 1.0), 0, 1) * (more_w > 0)
    return np.asarray(poor_w + raised * (rich_w - poor_w))


def settled(curves: Curves, caps_w: Floats, held_w: Floats, budget_w: float, steps_w: Floats) -> Floats:
    """New caps, but those held where they would change by less than the job's step, watts, as far as the budget allows,
    as a job is not to be disturbed for nothing. Caps are cut to whole steps above the lowest. held_w: NaN for a new
    job."""
    lowest_w = curves.caps_w[:, 0]
    whole_w = lowest_w + np.floor((caps_w - lowest_w) / steps_w + 1e-9) * steps_w
    near = np.abs(caps_w - held_w) < steps_w
    near &= held_w >= lowest_w
    kept_w = np.where(near, held_w, whole_w)
    if charged_w(curves, kept_w) <= budget_w:
        return np.asarray(kept_w)
    return np.asarray(np.where(near, np.minimum(held_w, whole_w), whole_w))


def topped(curves: Curves, caps_w: Floats, ideal_w: Floats, budget_w: float, steps_w: Floats) -> Floats:
    """Caps once what whole steps have left of the budget is given to those who lost most by them, a step each at most.
    ideal_w: what they would have without steps."""
    left_w = budget_w - charged_w(curves, caps_w)
    lost_w, caps_w = ideal_w - caps_w, caps_w.copy()
    more_w = np.minimum(steps_w, curves.caps_w[:, -1] - caps_w)
    for row in np.argsort(-lost_w, kind="stable"):
        taken_w = float(curves.devices[row] * more_w[row])
        if 0 < lost_w[row] < steps_w[row] and 0 < taken_w <= left_w:
            caps_w[row] += more_w[row]
            left_w -= taken_w
    return caps_w
