"""When calls are counted: always where that costs next to nothing, else while they are needed, and now and then."""

from autocap.progress.calls.target import CallsUnavailable, CallTarget

MOST_OF_TIME = 0.001  # of a thread's time may go into having its calls counted all the time,
MOST_WHILE_NEEDED = 0.005  # and so much while something is measured
_CHEAP = 0.5  # times the first, below which calls are counted all the time again
_ON_S, _ON_INTERVALS = 5.0, 6  # at a time, where they are not needed: what a change would show in


class Duty:
    """is_on: whether calls are counted now. remark: that they are not always, with what it costs, as first seen.

    An event that is only switched off would still stop the thread at the breakpoint, at half the cost, so it is closed.
    """

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self.is_on = True
        self._share = 0.0  # of a thread's time, that counting takes
        self.is_sparing = False  # it costs too much to go on all the time
        self.remark: str | None = None  # what the user is to know
        self._turned_s: float | None = None  # since when what is not needed is counted, or not

    def require_affordable(self, rate_hz: float, cost_s: float, *, times: float) -> None:
        """Raises CallsUnavailable where calls at that rate, of which each takes so much longer, cost more than they
        may, so many times over."""
        if rate_hz * cost_s > times * MOST_WHILE_NEEDED:
            raise CallsUnavailable(
                f"{self._target.symbol} is called {rate_hz:.0f} times a second, which to count would take "
                f"{rate_hz * cost_s:.2%} of the job's time at {cost_s * 1e6:.2g} us a call, more than "
                f"{MOST_WHILE_NEEDED:.1%}; choose a function that is called less often"
            )

    def heed(self, share: float) -> None:
        """What counting takes of the time of the thread whose calls cost most."""
        if share > MOST_OF_TIME:
            self._share, self.is_sparing = share, True
            self.remark = self.remark or (
                f"counting the calls of {self._target.symbol} takes {share:.2%} of the job's time, so while a cap is "
                f"held they are counted for {MOST_OF_TIME / share:.0%} of the time"
            )
        elif share < _CHEAP * MOST_OF_TIME:
            self.is_sparing = False

    def turn(self, now_s: float, interval_s: float, *, needed: bool) -> bool:
        """Whether calls are to be counted from now on. interval_s: of an iteration, 0 while that is unknown. needed:
        whether something is being measured by them."""
        if needed or not self.is_sparing:
            self.is_on, self._turned_s = True, None
            return True
        if self._turned_s is None:
            self.is_on, self._turned_s = False, now_s
            return False
        on_s = max(_ON_S, _ON_INTERVALS * interval_s)
        lasts_s = on_s if self.is_on else on_s * (self._share / MOST_OF_TIME - 1)
        if now_s - self._turned_s >= lasts_s:
            self.is_on, self._turned_s = not self.is_on, now_s
        return self.is_on
