"""What the stamps of readings say about a beat: whether the phase follows the sensor's clock.

A sensor that ought to look every u seconds looks at t_i = u·i + d_i. To a load of frequency g = k/u + f, whose beat has
the frequency f, that is the phase g·t_i = f·t_i + k·d_i/u, but for whole cycles: where the clock is late by a hundredth
of an update, the beat is off by k hundredths of a cycle. A real cycle is not: its phase is f·t_i. So d_i, which the
stamps tell, is one more unknown's column in the fit, whose coefficient is ±k, one or more, for a beat, and 0 for a
cycle of its own.

That shows a beat and never excludes one: stamps taken when somebody looked, not by the sensor, do not tell d_i. They
make the coefficient of a beat smaller, down to nothing, and that of a real cycle of n updates 1/n at most. In a log of
a sensor that is not known they are the reader's, and tell nothing.
"""

import math

import numpy as np

from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series

_REAL = 0.3  # the most that a cycle of its own shows, by its waveform's errors: 0.2 as simulated
_REGULAR = 0.001  # of an update: what stamps that scatter less are off by is rounding
_SIGMAS = 2.0


def follows_the_clock(fit: Fit, series: Series, *, order: int, update_s: float) -> bool:
    """Whether the phase of one of `order` parts alike of a fitted cycle is ahead or behind as the sensor's clock is,
    which that of a real cycle is not. update_s: of the sensor."""
    intervals_s = np.diff(series.t_s)
    usual_s = float(np.median(intervals_s))
    if float(np.median(np.abs(intervals_s - usual_s))) < _REGULAR * update_s:
        return False
    places = np.concatenate(([0.0], np.cumsum(np.round(intervals_s / usual_s))))
    late = (series.t_s - np.polynomial.Polynomial.fit(places, series.t_s, 1)(places)) / update_s
    column = (fit.slope(fit.phase) / order * late)[fit.keep]
    design, variance = fit.design, fit.residual**2
    beyond = column - design @ (fit.posterior @ (design.T @ column)) / variance  # what no other unknown explains
    information = float(column @ beyond) / variance
    if information <= 0:
        return False
    cycles = float(column @ fit.rest[fit.keep]) / variance / information
    shortest_s = fit.period_s / order
    return abs(cycles) - _SIGMAS / math.sqrt(information) > max(_REAL, update_s / shortest_s)
