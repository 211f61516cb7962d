"""Is there enough of a job left for a search to pay back?"""

from autocap.records import Measurement

_TRIALS = 5  # with the confirmation, of a search that knows what it does
_TIMES = 2.0  # the rest of the job must last as many searches


def expected_search_s(baseline: Measurement, settle_s: float) -> float:
    """Seconds that a search is going to take, when each cap needs about as long a window as the baseline did."""
    return _TRIALS * (settle_s + baseline.duration_s + 2 * baseline.period_s)


def objection(left: float | None, baseline: Measurement, settle_s: float) -> str | None:
    """Why not to search with so many iterations left; `None` where there is no reason, or nobody knows."""
    if left is None:
        return None
    left_s, search_s = max(left, 0.0) * baseline.period_s, expected_search_s(baseline, settle_s)
    if left_s >= _TIMES * search_s:
        return None
    return (
        f"about {left_s:.0f} s of the job are left and a search takes about {search_s:.0f} s, so it would hardly pay "
        "back; nothing is tuned (leave out --iterations to search all the same)"
    )
