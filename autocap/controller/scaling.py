"""How the time of an iteration grows below the lowest cap that is known: as a power of 1/cap, as it came down to there.

On the published curves, from caps of up to 85 % of the default down to the lowest that may be set, ln time is then off
by 0.23 of the way in ln cap (root mean square). What is seen of the exponent has the errors of the two times that it
is seen in, and counts the less the larger these are, beside what may be expected of any job (the mean of two normal
distributions, weighted by their variances).
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

from autocap.controller.tuning import TUNING

_CERTAIN = 1e-6  # an error: nothing is


def exponent_below(
    settings: Sequence[float], times: Sequence[float], rel_stderrs: Sequence[float]
) -> tuple[float, float]:
    """Of time against 1/cap, below the lowest of some caps, watts, ascending, at which an iteration takes these times,
    in any unit, with these relative standard errors; and its own standard error. 1, as of compute-bound work, where
    they say nothing of it."""
    near = bisect_left(settings, TUNING.low_exponent_near * settings[0])
    if near == len(settings):
        return TUNING.low_exponent_usual, math.hypot(TUNING.low_exponent_off, TUNING.low_exponent_unusual)
    way = math.log(settings[near] / settings[0])
    seen = math.log(times[0] / times[near]) / way
    noise = max(_CERTAIN, math.hypot(rel_stderrs[0], rel_stderrs[near]) / way)
    share = TUNING.low_exponent_unusual**2 / (TUNING.low_exponent_unusual**2 + noise**2)
    exponent = max(share * seen + (1 - share) * TUNING.low_exponent_usual, TUNING.low_exponent_least)
    return min(exponent, TUNING.low_exponent_most), math.hypot(TUNING.low_exponent_off, math.sqrt(share) * noise)
