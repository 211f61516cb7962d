"""A curve bent to what caps have shown while they were held, which is known better than what trials have shown.

How far the curve is off at one cap says how far it is at others, the less the farther they are: in ln time and ln
energy, what it is off by is taken as a Gaussian process over the logarithm of the cap (Rasmussen and Williams 2006,
section 2.2), nothing at the baseline's. Its standard deviations are those that the curve states, evened out over caps
near each other: that one was measured and the next one was not is no reason to bend between them. What is far off
counts less, unless two caps held near each other agree on it.
Below the lowest cap that the curve knows it only goes on as it came, so there what is held has the say: what the curve
is off by begins with another slope, which bends on the way (an integrated Wiener process, so that between caps held it
is a cubic spline, Wahba 1978), and caps in between are among the points.
No lower cap takes less time than a higher one, as far as is known.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autocap.controller.tuning import TUNING
from autocap.records import Prediction

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
