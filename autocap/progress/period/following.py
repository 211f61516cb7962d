"""What was learned, looked for at one cap in all of its readings, until it is known well there."""

from collections.abc import Callable

from autocap.progress.period.cycles import count
from autocap.progress.period.estimate import Cycles, RatioEstimate, Template
from autocap.progress.period.learning import NOT_FOLLOWED, Signal
from autocap.progress.period.looking import FEWEST_CYCLES
from autocap.progress.period.proof import agree
from autocap.progress.period.ratio import ratio
from autocap.progress.period.series import MOST_READINGS

_SAME = 0.05  # by which the period may differ, of a while ago


class Follower:
    """trouble: why nothing is counted. found: what the last look at the pattern has shown, `None` where it was only
    counted along; is_lost: that this is not what was learned. sure: the waveform as two looks have agreed on it, `None`
    before."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.found: RatioEstimate | None = None
        self.is_lost = False
        self.sure: Template | None = None
        self._seen: Template | None = None  # as of the look before

    def look(
        self,
        learned: Template,
        signal: Signal,
        possible: tuple[float, float],
        objection: Callable[[RatioEstimate], str | None],
    ) -> Cycles | None:
        """The cycles in the readings at this cap. Once two looks have agreed on their period, later ones only count
        along, for a fraction of the cost, as long as what they count agrees as well. possible: the shortest and the
        longest that a cycle may be, against the one learned. objection: why what is found cannot be, `None` where it
        can."""
        self.trouble = self.found = None
        self.is_lost = False
        if self.sure is not None:
            cycles = _counted_by(self.sure, signal)
            if cycles is not None and agree(cycles.period_s, self.sure.period_s):
                return cycles
        before, self._seen, self.sure = self._seen, None, None
        self.found = found = ratio(learned, signal[0], signal[1], fastest=possible[0], slowest=possible[1])
        self.trouble = objection(found)
        if self.trouble is None and not found.ok:
            self.trouble = f"the period is lost: {found.reason}"
        self.is_lost = self.trouble is not None
        if self.trouble is None and found.cycles < FEWEST_CYCLES:
            self.trouble = f"only {found.cycles:.1f} cycles, {FEWEST_CYCLES:.0f} are needed"
        if self.trouble is not None or found.seen is None:
            return None
        cycles = _counted_by(found.seen, signal)
        if cycles is None:
            self.trouble = NOT_FOLLOWED
            return None
        self._seen = found.seen
        self.sure = found.seen if before is not None and agree(found.seen.period_s, before.period_s) else None
        return cycles


def closely(pattern: Template, signal: Signal) -> Template | None:
    """The waveform from the latest readings, each for itself: of many, neighbours were averaged, which hides what is
    short in it. `None` where they do not show it."""
    t_s, power_w, _, _ = signal
    if len(t_s) <= MOST_READINGS:
        return pattern
    latest = t_s >= min(t_s[-MOST_READINGS], t_s[-1] - FEWEST_CYCLES * pattern.period_s)
    found = ratio(pattern, t_s[latest], power_w[latest], fastest=1 - _SAME, slowest=1 + _SAME)
    return found.seen if found.ok else None


def _counted_by(pattern: Template, signal: Signal) -> Cycles | None:
    return count(pattern, signal[0], signal[1], update_s=pattern.update_s, window_s=pattern.window_s)
