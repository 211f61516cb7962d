"""What is held under a ceiling that others set, as the manager of a power budget does.

What was decided is held as far as the ceiling allows it. Below it, the best cap by all that is known of the job's curve
is held at once, without another search; and so it is where the search was done under a lower ceiling than there is now.
What is held so is measured meanwhile, which costs the job nothing and makes the curve better where that counts.
"""

from dataclasses import replace
from typing import assert_never

from autocap import events
from autocap.controller.actions import Keep, KeepByCurve, Kept, Outbox, Revert
from autocap.controller.holding import Hold
from autocap.controller.search import BESIDE, Search
from autocap.measurement.metering import Metered
from autocap.measurement.prober import Prober
from autocap.records import TOLERANCE_W, same_limits

Caps = tuple[float, ...]
_WEEK_S = 7 * 86400.0  # after which a cap is looked at closely once more
_CLOSE, _CLOSE_S = 0.0005, 600.0  # a relative error, and how long it is tried for, seconds


class Ceiling:
    """Of all devices."""

    def __init__(self, outbox: Outbox, prober: Prober) -> None:
        self._out, self._prober = outbox, prober
        self._closely = False
        self._measured_w = 0.0  # the common cap that is measured while it is held, or was last

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return not self._out.is_bound and not same_limits(search.baseline.cap_w, self._out.original_w)

    def held(self, decision: Kept, search: Search) -> Caps:
        """The caps, watts per device, that a decision comes to."""
        limits_w = self._out.original_w
        match decision:
            case Keep(caps_w=caps_w) if self._out.allows(max(caps_w)) and not self._is_above(search):
                return caps_w
            case Revert() if same_limits(search.baseline.cap_w, limits_w):
                return limits_w
            case Keep() | Revert() | KeepByCurve():
                best_w = search.curve.best_w(max(limits_w), search.metric)
                most_w = limits_w
                if isinstance(decision, Keep) and not self._is_above(search):
                    most_w = decision.caps_w
                return tuple(min(best_w, cap_w) for cap_w in most_w)
            case _:
                assert_never(decision)

    def move(self, hold: Hold, search: Search, caps_w: Caps, *, closely: bool = False) -> None:
        """Hold these caps from now on, which no confirmation was for. closely: they are to be known better than trials
        know them."""
        self._out.set(caps_w)
        hold.moved(search.curve.expected(max(caps_w)), self._out.now_s)
        if self._prober.busy and abs(caps_w[0] - self._measured_w) <= BESIDE * self._measured_w:
            return  # a budget moves by a watt or two all the time
        self._prober.rest()
        rules = replace(self._prober.rules, target_stderr=_CLOSE, limit_s=_CLOSE_S) if closely else self._prober.rules
        known = search.is_close(caps_w[0], self._out.now_s - _WEEK_S) if closely else search.has_shown(caps_w[0])
        if len(set(caps_w)) == 1 and not known:
            self._measured_w, self._closely = caps_w[0], closely
            self._prober.start(caps_w, search.cost, rules)

    def take(self, hold: Hold, search: Search, metered: Metered) -> None:
        """Take in a sample while caps are held; where that ends their measurement, they are known."""
        result = self._prober.add(metered)
        if result is not None and result.measurement is not None:
            search.note(result.measurement, as_it_is=self._closely)
            hold.moved(result.measurement, self._out.now_s)
            self._out.announce(events.HeldMeasured(t_s=self._out.now_s, measurement=result.measurement))

    def _is_above(self, search: Search) -> bool:
        """Whether more may hold now than the search knew of."""
        limits = zip(search.baseline.cap_w, self._out.original_w, strict=True)
        return any(now_w > known_w + TOLERANCE_W for known_w, now_w in limits)
