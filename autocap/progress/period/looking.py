"""When the readings at a cap are looked at: rarely while nothing is known, which is when a look costs most; sooner
where a pattern shows that more readings may make known, which is waited for."""

from autocap.config import PERIOD_AWAITED_SECONDS, PERIOD_WITHIN_SECONDS
from autocap.progress import NEVER_S

FEWEST_CYCLES = 12.0  # to count by
GLIMPSE_S = 0.95 * PERIOD_WITHIN_SECONDS  # of readings: just before something else may be taken instead
# A stretch is looked at again when it has grown to so many times its length: rarely while nothing is known, which is
# when a look costs most; often once a look only counts along, since a trial cannot end before the next one.
BLIND, SEEN, SURE = 1.6, 1.4, 1.2
_FIRST_LOOK_S = 4.0
FEWEST_READINGS = 80  # for a sighting: half of a period of few updates fits fewer as well
_SPARE = 1.03  # of these, as updates are as long as they are said to be on average
_GLIMPSE_AGAIN = 1.05  # times as many: once more before that; a glimpse at each sample would take half a core
# Cycles at which a pattern that shows is looked at: when it may be seen, and be learned. Until there are many of them
# it is looked at once more, when that look sees enough that the one before did not: two of them say more than one.
_LOOKS, _LEAST_GROWTH = (8.6, FEWEST_CYCLES + 0.8), 1.3
MANY_CYCLES = 24.0  # in which twice and three times the period were looked for as well, so that one look will do
_CONSIDERED_S = 2 * PERIOD_WITHIN_SECONDS  # that a pattern which is not proven yet is worth waiting for


class LookTimes:
    """update_s: of the sensor. shows_s: the period of a pattern that shows, and is not known well enough yet, seconds.
    worth_until_s: until when that is worth waiting for."""

    def __init__(self, update_s: float) -> None:
        self._update_s = update_s
        self.begin(None)
        self._first_s: float | None = None  # the first sample
        self._looked_s = 0.0  # seconds of readings at the last look
        self.shows_s: float | None = None
        self.worth_until_s = NEVER_S

    def begin(self, known_s: float | None) -> None:
        """Readings are taken from nothing on. known_s: the period that is looked for; a look before there are enough
        cycles of it could only say so."""
        self._glimpse_at_s = GLIMPSE_S  # seconds of readings before the next one, as for a look
        enough_s = _SPARE * FEWEST_READINGS * self._update_s if known_s is None else 1.1 * FEWEST_CYCLES * known_s
        self._look_at_s = max(_FIRST_LOOK_S, enough_s)

    def sampled(self, now_s: float) -> None:
        self._first_s = now_s if self._first_s is None else self._first_s

    def due(self, span_s: float) -> bool:
        """Whether to look. span_s: of the readings, as everywhere here."""
        return span_s >= self._look_at_s

    def glimpse_due(self, span_s: float) -> bool:
        """Whether to see at least if a long pattern shows, where nothing is known."""
        return self.shows_s is None and self._looked_s < GLIMPSE_S and span_s >= self._glimpse_at_s

    def looked(self, now_s: float, span_s: float, growth: float, *, awaits_another: bool) -> None:
        """growth: how many times as long the stretch is to be at the next look. awaits_another: a second one is to bear
        out what this one found."""
        self._looked_s = span_s
        self._look_at_s = max(span_s * growth, _FIRST_LOOK_S)
        self._await_more(now_s, span_s, awaits_another)

    def glimpsed(self, now_s: float, span_s: float, shows_s: float | None, *, awaits_another: bool) -> None:
        self._glimpse_at_s = _GLIMPSE_AGAIN * span_s
        self.shows_s = shows_s
        self._await_more(now_s, span_s, awaits_another)

    def _await_more(self, now_s: float, span_s: float, awaits_another: bool) -> None:
        """Where a pattern shows, look again when that may tell more, and let that be waited for."""
        self.worth_until_s = NEVER_S
        if self._first_s is not None and awaits_another:
            self.worth_until_s = min(now_s + self._looked_s, self._first_s + _CONSIDERED_S)
        if self.shows_s is None or self._first_s is None:
            return
        if self._looked_s < MANY_CYCLES * self.shows_s:
            looks_s = [cycles * self.shows_s for cycles in _LOOKS if cycles * self.shows_s > self._looked_s]
            self._look_at_s = max(_LEAST_GROWTH * self._looked_s, min(looks_s, default=0.0))
            more_s = max(0.0, self._look_at_s - span_s) + self._update_s
            self.worth_until_s = min(now_s + more_s, self._first_s + PERIOD_AWAITED_SECONDS)

    def notice(self, now_s: float, span_s: float) -> str | None:
        """What is waited for, once that takes longer than a period is usually looked for."""
        left_s = 0.0 if self.shows_s is None else _LOOKS[1] * self.shows_s - span_s
        if left_s <= 0 or now_s - (self._first_s or 0.0) < PERIOD_WITHIN_SECONDS:
            return None
        return (
            f"a period of about {self.shows_s:.2g} s shows in the power; {FEWEST_CYCLES:.0f} cycles are needed "
            f"to count by it, about {left_s:.0f} s more, which are waited for "
            f"({PERIOD_AWAITED_SECONDS:g} s at most)"
        )
