"""How the time of an iteration grows below the lowest cap that is known: as a power of 1/cap, as it came down to there.

On the published curves, from caps of up to 85 % of the default down to the lowest that may be set, ln time is then off
by 0.22 of the way in ln cap (root mean square); taken as 1/cap, as compute-bound work would have it, by 0.55.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

OFF = 0.3  # standard deviation of the exponent
_NEAR = 1.06  # of the lowest cap: from there down its exponent is seen
_LEAST, _MOST = 0.5, 1.5  # a job whose cap does not bind yet is slowed down once it does


def exponent_below(caps_w: Sequence[float], times: Sequence[float]) -> float:
    """Of time against 1/cap, below the lowest of some caps, watts, ascending, at which an iteration takes these times,
    in any unit; 1, as of compute-bound work, where they say nothing of it."""
    near = bisect_left(caps_w, _NEAR * caps_w[0])
    if near == len(caps_w):
        return 1.0
    seen = math.log(times[0] / times[near]) / math.log(caps_w[near] / caps_w[0])
    return min(max(seen, _LEAST), _MOST)
