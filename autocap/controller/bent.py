"""A curve bent to what caps have shown while they were held, which is known better than what trials have shown.

How far the curve is off at one cap says how far it is at others, the less the farther they are: its errors are taken
as a Gaussian process over the logarithm of the cap, with the standard deviations that the curve states (Rasmussen and
Williams 2006, section 2.2). Where these are in proportion to the slowdown, that is a common factor of it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autocap.records import Prediction

Floats = NDArray[np.float64]

_LENGTH = 0.2  # of ln cap, over which errors go together
_LEAST = 1e-6  # an error: nothing is certain


def bent(
    points: Sequence[Prediction],
    at: Callable[[float], Prediction],
    held: Sequence[Prediction],
    common: tuple[float, float],
) -> tuple[Prediction, ...]:
    """The points and the caps held, ascending. at: what the curve says of any cap, watts. held: what caps have shown
    over the baseline, with their own errors alone, each above 0. common: the baseline's relative errors of time and
    energy, which are in those of the points, and in all that comes out."""
    every = {one.cap_w: one for one in (*(at(one.cap_w) for one in held), *points)}
    before = [every[cap_w] for cap_w in sorted(every)]
    place = {one.cap_w: number for number, one in enumerate(before)}
    places = np.array([place[one.cap_w] for one in held], dtype=np.intp)
    log_w = np.log([one.cap_w for one in before])
    alike = np.exp(-0.5 * ((log_w[:, None] - log_w[None, :]) / _LENGTH) ** 2)

    def after(
        of: Callable[[Prediction], tuple[float, float]], error: float
    ) -> "NDArray[np.float64]":  # shape (caps, 2): the value, and its relative error
        value, stated = np.array([of(one) for one in before]).T
        shown, noise = np.array([of(one) for one in held]).T
        own = np.sqrt(np.maximum(stated**2 - error**2, _LEAST**2))
        prior = own[:, None] * own[None, :] * alike
        gain = prior[:, places] @ np.linalg.inv(prior[np.ix_(places, places)] + np.diag(noise**2))
        off = gain @ np.log(shown / value[places])
        left = np.maximum(own**2 - np.sum(gain * prior[:, places], axis=1), _LEAST**2)
        return np.column_stack([value * np.exp(off), np.sqrt(left + np.where(own > _LEAST, error, 0.0) ** 2)])

    times = after(lambda one: (one.time, one.period_rel_stderr), common[0])
    energies = after(lambda one: (one.energy, one.energy_rel_stderr), common[1])
    return tuple(
        replace(one, time=time, period_rel_stderr=time_error, energy=energy, energy_rel_stderr=energy_error)
        for one, (time, time_error), (energy, energy_error) in zip(
            before, times.tolist(), energies.tolist(), strict=True
        )
    )


def own_error(stated: float, common: float) -> float:
    """What is left of a relative error without the part that is the baseline's."""
    return math.sqrt(max(0.0, stated**2 - common**2))
