"""What a search has shown of a job's whole curve, and the cap that it says is best where the best one may not be held.

A cap that was measured counts as measured; one that the strategy predicts, as predicted. Between such caps, ln time and
ln energy per iteration are straight lines in the logarithm of the cap; below the lowest, ln time goes on as it came
(`exponent_below`), and energy stays. Above the highest nothing is known.

To what caps have shown while they were held, which is known better than what trials have shown, all that is bent. How
far the curve is off at one cap says how far it is at others, the less the farther they are: in ln time and ln energy,
what it is off by is taken as a Gaussian process over the logarithm of the cap (Rasmussen and Williams 2006, section
2.2), nothing at the baseline's. Its standard deviations are those that the curve states, evened out over caps near each
other: that one was measured and the next one was not is no reason to bend between them. What is far off counts less,
unless two caps held near each other agree on it. Below the lowest cap that the curve knows it only goes on as it came,
so there what is held has the say: what the curve is off by begins with another slope, which bends on the way (an
integrated Wiener process, so that between caps held it is a cubic spline, Wahba 1978), and caps in between are among
the points. No lower cap takes less time than a higher one, as far as is known.

Of another knob than the power limit nobody knows how far its settings lie apart: between two that have an order the
lines are straight in their places, and all others are unknown.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from autocap.controller.tuning import TUNING
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.batches import pool
from autocap.metrics import Metric
from autocap.records import Measurement, Prediction, same_limit

_CERTAIN = 1e-6  # an error: nothing is


def exponent_below(
    settings: Sequence[float], times: Sequence[float], rel_stderrs: Sequence[float]
) -> tuple[float, float]:
    """Of time against 1/cap, below the lowest of some caps, watts, ascending, at which an iteration takes these times,
    in any unit, with these relative standard errors; and its own standard error. 1, as of compute-bound work, where
    they say nothing of it.

    On the published curves, from caps of up to 85 % of the default down to the lowest that may be set, ln time is then
    off by 0.23 of the way in ln cap (root mean square). What is seen of the exponent has the errors of the two times
    that it is seen in, and counts the less the larger these are, beside what may be expected of any job (the mean of
    two normal distributions, weighted by their variances)."""
    near = bisect_left(settings, TUNING.low_exponent_near * settings[0])
    if near == len(settings):
        return TUNING.low_exponent_usual, math.hypot(TUNING.low_exponent_off, TUNING.low_exponent_unusual)
    way = math.log(settings[near] / settings[0])
    seen = math.log(times[0] / times[near]) / way
    noise = max(_CERTAIN, math.hypot(rel_stderrs[0], rel_stderrs[near]) / way)
    share = TUNING.low_exponent_unusual**2 / (TUNING.low_exponent_unusual**2 + noise**2)
    exponent = max(share * seen + (1 - share) * TUNING.low_exponent_usual, TUNING.low_exponent_least)
    return min(exponent, TUNING.low_exponent_most), math.hypot(TUNING.low_exponent_off, math.sqrt(share) * noise)


Floats = NDArray[np.float64]

_GAP = 0.02  # of ln cap, between points there


def gp_corrected(
    points: Sequence[Prediction],
    at: Callable[[float], Prediction],
    held: Sequence[Prediction],
    common: tuple[float, float],
) -> tuple[Prediction, ...]:
    """The points and the caps held, ascending. points: the last is that of the baseline. at: what the curve says of any
    cap, watts. held: what caps have shown over the baseline, with their own errors alone. common: the
    baseline's relative errors of time and energy, which are in those of the points, and in all that comes out."""
    top = points[-1]
    low_w, deep_w = points[0].setting, min(one.setting for one in held)
    between_w = [low_w * math.exp(-_GAP * step) for step in range(1, math.ceil(math.log(low_w / deep_w) / _GAP))]
    known = {one.setting: one for one in (*map(at, between_w), *(at(one.setting) for one in held), *points)}
    before = [known[setting] for setting in sorted(known)]
    place = {one.setting: number for number, one in enumerate(before)}
    places = np.array([place[one.setting] for one in (*held, top)], dtype=np.intp)
    log_w = np.log([one.setting for one in before])
    apart = log_w[:, None] - log_w[None, :]
    lengths = TUNING.curve_gp_length, TUNING.curve_gp_even_length
    alike, near = (np.exp(-0.5 * (apart / length) ** 2) for length in lengths)
    inner = np.array([one is not top for one in before])
    deep = np.maximum(math.log(low_w) - log_w, 0.0)
    beyond = _below(deep)
    if not inner.any():
        return tuple(points)

    def after(of: Callable[[Prediction], tuple[float, float]], error: float) -> Floats:
        """Value and relative error, shape (caps, 2)."""
        value, stated = np.array([of(one) for one in before]).T
        shown, noise = np.array([of(one) for one in (*held, top)]).T
        noise = np.append(np.hypot(noise[:-1], TUNING.curve_gp_least_error), 1e-6)
        own = np.sqrt(np.maximum(stated**2 - error**2, TUNING.curve_gp_least_error**2))
        own = np.log(np.where(deep > 0, own[place[low_w]], own))
        even = np.exp(near[:, inner] @ own[inner] / near[:, inner].sum(axis=1))
        away = np.log(shown / value[places])
        size = np.abs(away)
        agree = _agree(away, log_w[places])
        prior = even[:, None] * even[None, :] * alike + beyond
        wide = np.sqrt(np.diag(prior))[places]
        far = (size > TUNING.curve_gp_far_sigmas * np.hypot(noise, wide)) & ~agree
        noise = np.maximum(noise, np.where(far, size / TUNING.curve_gp_far_sigmas, 0))
        gain = prior[:, places] @ np.linalg.inv(prior[np.ix_(places, places)] + np.diag(noise**2))
        off = gain @ away
        left = np.maximum(np.diag(prior) - np.sum(gain * prior[:, places], axis=1), 0.0)
        return np.column_stack([value * np.exp(off), np.where(inner, np.sqrt(left + error**2), stated)])

    times = _falling(after(lambda one: (one.time, one.period_rel_stderr), common[0]))
    energies = after(lambda one: (one.energy, one.energy_rel_stderr), common[1])
    return tuple(
        replace(one, time=time, period_rel_stderr=time_error, energy=energy, energy_rel_stderr=energy_error)
        for one, (time, time_error), (energy, energy_error) in zip(
            before, times.tolist(), energies.tolist(), strict=True
        )
    )


def is_anothers(at: Callable[[float], Prediction], held: Sequence[Prediction], common: float) -> bool:
    """Whether two caps held near each other agree that a curve is another job's. held: of the caps that it knows.
    common: the baseline's relative error of time."""
    away = np.log([one.time / at(one.setting).time for one in held])
    error = [math.hypot(one.period_rel_stderr, own_error(at(one.setting).period_rel_stderr, common)) for one in held]
    far = np.abs(away) > np.maximum(TUNING.curve_other_job_time, TUNING.curve_gp_far_sigmas * np.array(error))
    return len(held) > 1 and bool(np.any(far & _agree(away, np.log([one.setting for one in held]))))


def _below(deep: Floats) -> Floats:
    """The covariance of what the curve is off by at so much of ln cap below the lowest that it knows; shape (caps,
    caps)."""
    near, far = np.minimum(deep[:, None], deep[None, :]), np.maximum(deep[:, None], deep[None, :])
    slope, bend = TUNING.curve_gp_low_slope, TUNING.curve_gp_low_bend
    return np.asarray(slope**2 * near * far + bend * near**2 * (3 * far - near) / 6)


def _agree(away: Floats, log_w: Floats) -> NDArray[np.bool_]:
    """Whether the curve is off at a cap held about as much as at another one near it; shape (caps held,), as both."""
    off, other = np.abs(away)[:, None], np.abs(away)[None, :]
    agree = away[:, None] * away[None, :] > 0
    agree &= np.maximum(off, other) <= TUNING.curve_agree_times * np.minimum(off, other)
    agree &= np.abs(log_w[:, None] - log_w[None, :]) <= TUNING.curve_agree_near
    np.fill_diagonal(agree, val=False)
    return np.asarray(agree.any(axis=1))


def _falling(times: Floats) -> Floats:
    """Values and relative errors, shape (caps, 2), caps ascending, with the nearest times that no lower cap undercuts
    (weighted isotonic regression, Barlow et al. 1972): what is known well has the say, as where a curve is another
    job's."""
    runs = list[tuple[float, float, int]]()  # of points that are alike: ln time, weight, and how many
    for mean, weight in zip(np.log(times[::-1, 0]), np.maximum(times[::-1, 1], 1e-6) ** -2, strict=True):
        count = 1
        while runs and runs[-1][0] > mean:
            other, more, points = runs.pop()
            mean, weight, count = (mean * weight + other * more) / (weight + more), weight + more, count + points
        runs.append((mean, weight, count))
    nearest = np.exp(np.repeat([mean for mean, _, _ in runs], [count for _, _, count in runs]))
    return np.column_stack([nearest[::-1], times[:, 1]])


def own_error(stated: float, common: float) -> float:
    """What is left of a relative error without the part that is the baseline's."""
    return math.sqrt(max(0.0, stated**2 - common**2))


_LEAST = 1e-6  # an error: nothing is certain
# Slopes of ln time and ln energy, where no point tells the slope at the top.
_USUAL: tuple[float, ...] = (-0.35, 0.55)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCurve:
    """baseline: at `baseline_w`, the highest of its limits, watts. points: over it, ascending; the baseline's own is
    one of them. asked_w: the cap that the job's metric asks for where all may be held, watts. fitted: caps of which a
    strategy has said it, which are off together. knob: whose settings these are."""

    baseline: Measurement
    points: tuple[Prediction, ...]
    asked_w: float
    fitted: frozenset[float] = frozenset()
    knob: Knob = POWER_LIMIT

    @classmethod
    def of(
        cls,
        baseline: Measurement,
        shown: Sequence[Measurement],
        predicted: Sequence[Prediction],
        metric: Metric,
        held: Sequence[Measurement] = (),
        knob: Knob = POWER_LIMIT,
    ) -> "KnownCurve":
        """shown: measurements at common caps, as at the baseline. predicted: of other caps, against it. held: what caps
        have shown outside of trials, as at the baseline."""
        if not knob.is_power_limit:
            shown, held = (*shown, *held), ()
        at_cap: dict[float, list[Measurement]] = {}
        for one in shown:
            at_cap.setdefault(max(one.setting), []).append(one)
        known = {one.setting: one for one in predicted}
        known |= {setting: _against(baseline, pool(some)) for setting, some in at_cap.items()}
        known[max(baseline.setting)] = _against(baseline, baseline)
        points = tuple(known[setting] for setting in sorted(known))
        fitted = frozenset(one.setting for one in predicted) - at_cap.keys()
        curve = cls(baseline=baseline, points=points, asked_w=points[-1].setting, fitted=fitted, knob=knob)
        curve = curve.bent_to([_over(baseline, one) for one in held])
        return replace(curve, asked_w=curve.best_w(curve.points[-1].setting, metric))

    def bent_to(self, held: Sequence[Prediction]) -> "KnownCurve":
        """The same once caps have shown so much over the baseline while they were held, with their own errors alone."""
        if not held:
            return self
        common = self.baseline.period_rel_stderr, self.baseline.energy_rel_stderr
        inside = [one for one in held if one.setting >= self.points[0].setting]  # below, nobody has said that it knows
        ours = replace(self, points=self.points[-1:]) if is_anothers(self._at, inside, common[0]) else self
        return replace(self, points=gp_corrected(ours.points, ours._at, held, common))

    def own_error(self, setting: float) -> float:
        """How well the time at a cap, watts, is known, without the baseline's part in it: a relative error."""
        return own_error(self._at(setting).period_rel_stderr, self.baseline.period_rel_stderr)

    def own_errors(self, setting: float) -> float:
        """The larger of that and the same of the energy."""
        energy = own_error(self._at(setting).energy_rel_stderr, self.baseline.energy_rel_stderr)
        return max(self.own_error(setting), energy)

    def alike(self, one_w: float, other_w: float) -> float:
        """How far the errors of two caps, watts, go together: their correlation, the baseline's part left out. Of caps
        that stand for themselves they do not."""
        if not {one_w, other_w} <= self.fitted or not self.knob.is_power_limit:
            return 0.0
        return math.exp(-0.5 * (math.log(one_w / other_w) / TUNING.curve_alike_length) ** 2)

    @property
    def baseline_w(self) -> float:
        return max(self.baseline.setting)

    def best_w(self, ceiling_w: float, metric: Metric) -> float:
        """The best common cap at or below a ceiling, watts, by a metric and its limit on slowdown; the ceiling itself
        where none is allowed, and where the best that is known is the highest of all."""
        if ceiling_w < self.points[0].setting:
            return ceiling_w
        settings = [
            *(one.setting for one in self.points if one.setting < ceiling_w),
            min(ceiling_w, self.points[-1].setting),
        ]
        allowed = [setting for setting in settings if self._allows(setting, metric)]
        if not allowed:
            return ceiling_w
        best_w = min(allowed, key=lambda setting: (metric.cost(self.expected(setting), self.baseline).value, setting))
        return ceiling_w if best_w == self.points[-1].setting else best_w

    def published(self, found_w: float) -> tuple[Prediction, ...]:
        """The points for whoever shares a budget, over the limit found on arrival, watts, up to the cap that is asked
        for. Where the baseline is that of a lower ceiling, ln time and ln energy go on above it as straight lines, with
        half of what that adds as its error, and all is over what is expected at the limit found."""
        asked = tuple(one for one in self.points if one.setting <= self.asked_w)
        top = self.points[-1]
        if same_limit(found_w, top.setting) or found_w < top.setting:
            return asked
        near = next(
            (one for one in reversed(self.points[:-1]) if one.setting < TUNING.curve_top_share * top.setting), None
        )
        slopes = _USUAL
        if near is not None:
            ratios = top.time / near.time, top.energy / near.energy
            slopes = tuple(math.log(ratio) / math.log(top.setting / near.setting) for ratio in ratios)
        time, energy = (math.exp(slope * math.log(found_w / top.setting)) for slope in slopes)
        off_time, off_energy = (abs(math.log(ratio)) / 2 for ratio in (time, energy))
        last = replace(top, setting=found_w, time=top.time * time, energy=top.energy * energy)
        more = (last,) if same_limit(self.asked_w, top.setting) else ()
        return tuple(
            replace(
                one,
                time=one.time / last.time,
                energy=one.energy / last.energy,
                period_rel_stderr=math.hypot(one.period_rel_stderr, off_time),
                energy_rel_stderr=math.hypot(one.energy_rel_stderr, off_energy),
            )
            for one in (*asked, *more)
        )

    def expected(self, setting: float) -> Measurement:
        """What the job should show at a common cap, watts; its errors say how well that is known."""
        at = self._at(setting)
        joules, base = self.baseline.energy_per_iteration_j * at.energy, self.baseline
        return replace(
            base,
            setting=(setting,) * len(base.setting),
            period_s=base.period_s * at.time,
            period_rel_stderr=at.period_rel_stderr,
            energy_per_iteration_j=joules,
            energy_rel_stderr=at.energy_rel_stderr,
            power_w=joules / (base.period_s * at.time),
            power_rel_stderr=math.hypot(at.period_rel_stderr, at.energy_rel_stderr),
            time_energy_corr=at.time_energy_corr,
            cap_binding=base.cap_binding if setting >= self.baseline_w else None,
            gpu=None,
        )

    def _allows(self, setting: float, metric: Metric) -> bool:
        return metric.max_slowdown is None or self._at(setting).time <= 1 + metric.max_slowdown

    def _at(self, setting: float) -> Prediction:
        lowest, highest = self.points[0], self.points[-1]
        exact = next((one for one in self.points if one.setting == setting), None)
        is_beyond = setting > highest.setting or (setting < lowest.setting and not self.knob.is_power_limit)
        if exact is None and (is_beyond or not self.knob.ordered):
            return replace(
                highest,
                setting=setting,
                period_rel_stderr=TUNING.curve_unknown_error,
                energy_rel_stderr=TUNING.curve_unknown_error,
            )
        if setting < lowest.setting:
            far = math.log(lowest.setting / setting)
            exponent, off = exponent_below(
                [one.setting for one in self.points],
                [one.time for one in self.points],
                [own_error(one.period_rel_stderr, self.baseline.period_rel_stderr) for one in self.points],
            )
            return replace(
                lowest,
                setting=setting,
                time=lowest.time * math.exp(exponent * far),
                period_rel_stderr=math.hypot(lowest.period_rel_stderr, off * far),
                energy_rel_stderr=TUNING.curve_unknown_error,
            )
        return exact or next(
            _between(a, b, setting, self.knob) for a, b in pairwise(self.points) if a.setting < setting < b.setting
        )


def _between(below: Prediction, above: Prediction, setting: float, knob: Knob) -> Prediction:
    if knob.is_power_limit:
        way = math.log(setting / below.setting) / math.log(above.setting / below.setting)
    else:
        way = (setting - below.setting) / (above.setting - below.setting)
    middle = 4 * way * (1 - way) * TUNING.curve_between_error

    def value(low: float, high: float) -> float:
        return math.exp((1 - way) * math.log(low) + way * math.log(high))

    def error(low: float, high: float, low_value: float, high_value: float) -> float:
        return math.hypot((1 - way) * low + way * high, middle * math.log(high_value / low_value))

    return Prediction(
        setting=setting,
        energy=value(below.energy, above.energy),
        time=value(below.time, above.time),
        energy_rel_stderr=error(below.energy_rel_stderr, above.energy_rel_stderr, below.energy, above.energy),
        period_rel_stderr=error(below.period_rel_stderr, above.period_rel_stderr, below.time, above.time),
        time_energy_corr=(1 - way) * below.time_energy_corr + way * above.time_energy_corr,
    )


def _against(baseline: Measurement, shown: Measurement) -> Prediction:
    """A measurement over the baseline, the errors of both included; of the baseline itself, nearly certain."""
    own = _over(baseline, shown)
    if shown is baseline:
        return replace(own, energy_rel_stderr=_LEAST, period_rel_stderr=_LEAST)
    return replace(
        own,
        energy_rel_stderr=math.hypot(own.energy_rel_stderr, baseline.energy_rel_stderr),
        period_rel_stderr=math.hypot(own.period_rel_stderr, baseline.period_rel_stderr),
    )


def _over(baseline: Measurement, shown: Measurement) -> Prediction:
    """A measurement over the baseline, with its own errors alone."""
    return Prediction(
        setting=max(shown.setting),
        energy=shown.energy_per_iteration_j / baseline.energy_per_iteration_j,
        time=shown.period_s / baseline.period_s,
        energy_rel_stderr=max(_LEAST, shown.energy_rel_stderr),
        period_rel_stderr=max(_LEAST, shown.period_rel_stderr),
        time_energy_corr=shown.time_energy_corr,
    )
