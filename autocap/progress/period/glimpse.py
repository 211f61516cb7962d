"""A long cycle that shows before there are cycles enough to tell its period: a reason to go on looking, and no more."""

from autocap.progress.period import candidates
from autocap.progress.period.estimate import Floats
from autocap.progress.period.locate import locate
from autocap.progress.period.repetition import repetition, slowness, surprise
from autocap.progress.period.series import prepare
from autocap.progress.period.spans import kept_spans

_FEWEST, _MOST = 3.0, 13.0  # cycles in the readings; of fewer nothing can be said, of more the detector itself says it
_REPEATS, _SLOW, _BETTER = 0.4, 0.3, 0.05  # as the detector's doubts, for a few cycles of many readings


def glimpse(t_s: Floats, power_w: Floats, *, update_s: float, window_s: float) -> float | None:
    """The period that shows in a few cycles, seconds; `None` where none does.

    t_s, power_w, update_s, window_s: as the detector takes them.
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s)
    if series is None:
        return None
    shortest_s, longest_s = series.span_s / _MOST, series.span_s / _FEWEST
    found = candidates.find(series, shortest_s=shortest_s, longest_s=longest_s)
    fits = [fit for period_s in found if (fit := locate(series, period_s)) is not None]
    best = max(fits, key=lambda fit: fit.evidence, default=None)
    if best is None:
        return None
    spans = kept_spans(best)
    if spans.cycles < _FEWEST or repetition(best, series) < _REPEATS:
        return None
    return None if slowness(best, series) > _SLOW or surprise(best, series) < _BETTER else spans.period_s
