"""What is held under a ceiling that others set, as the manager of a power budget does.

What was decided is held as far as the ceiling allows it. Below it, the best cap by all that is known of the job's curve
is held at once, without another search; and so it is where the search was done under a lower ceiling than there is now.
What is held so is measured meanwhile, which costs the job nothing and makes the curve better where that counts: again
and again until it is known well, as others' shares depend on it.
"""

import math
from dataclasses import replace
from typing import assert_never

from autocap import events
from autocap.controller.actions import Keep, KeepByCurve, Kept, Revert
from autocap.controller.context import StepContext
from autocap.controller.holding import Hold
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.knobs import TOLERANCE_W
from autocap.measurement.batches import pool
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeRules
from autocap.measurement.prober import Prober
from autocap.records import Measurement, same_limits

Caps = tuple[float, ...]


class Ceiling:
    """Of all devices."""

    def __init__(self, context: StepContext, prober: Prober) -> None:
        self._context, self._prober = context, prober
        self._closely = False
        self._begun_w = 0.0  # the common cap at which the measurement of what is held began, or the last one did
        self._held_w: list[float] = []  # since then, at each sample that counts
        self._shown: list[Measurement] = []  # at the caps held now, not yet told

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return not self._context.is_bound and not same_limits(search.baseline.setting, self._context.uncapped_w)

    def held(self, decision: Kept, search: Search) -> Caps:
        """The caps, watts per device, that a decision comes to."""
        limits_w = self._context.uncapped_w
        match decision:
            case Keep(settings=settings) if self._context.allows(max(settings)) and not self._is_above(search):
                return settings
            case Revert() if same_limits(search.baseline.setting, limits_w):
                return limits_w
            case Keep() | Revert() | KeepByCurve():
                best_w = search.curve.best_w(max(limits_w), search.metric)
                most_w = limits_w
                if isinstance(decision, Keep) and not self._is_above(search):
                    most_w = decision.settings
                return tuple(min(best_w, setting) for setting in most_w)
            case _:
                assert_never(decision)

    def move(self, hold: Hold, search: Search, settings: Caps, *, closely: bool = False) -> None:
        """Hold these caps from now on, which no confirmation was for. closely: they are to be known better than trials
        know them."""
        self._context.set(settings)
        hold.moved(search.curve.expected(max(settings)), self._context.now_s)
        same = TUNING.ceiling_same_cap * self._begun_w if self._context.knob.is_power_limit else TOLERANCE_W
        if self._prober.busy and abs(settings[0] - self._begun_w) <= same:
            return  # a budget moves by a watt or two all the time
        self._prober.rest()
        self.tell()
        self._closely = closely
        self._measure(search, self._prober.rules)

    def take(self, hold: Hold, search: Search, metered: Metered) -> None:
        """Take in a sample while caps are held; where that ends their measurement, they are known."""
        if self._prober.collecting:
            self._held_w.append(self._context.decided_w[0])
        result = self._prober.add(metered)
        if result is None:
            return
        if result.measurement is not None:
            self._note(hold, search, result.measurement)
        if not self._prober.busy:
            self.tell()

    def tell(self) -> None:
        """Announce what was measured of the caps held last, as they are held no more, or known well."""
        if self._shown:
            self._context.announce(events.HeldMeasured(t_s=self._context.now_s, measurement=pool(self._shown)))
        self._shown = []

    def _note(self, hold: Hold, search: Search, shown: Measurement) -> None:
        if self._closely:
            search.note_closely(shown)
        else:
            mean_w = sum(self._held_w) / len(self._held_w) if self._held_w else self._begun_w
            shown = replace(shown, setting=self._context.every(mean_w))
            search.note(shown)
        hold.moved(shown, self._context.now_s)
        self._shown.append(shown)
        if not self._closely:
            self._measure(search, replace(self._prober.rules, settle_s=0.0))

    def _measure(self, search: Search, rules: ProbeRules) -> None:
        """What is held: once with a close look, else again and again until its time is known well. One cap for all
        devices is."""
        settings = self._context.decided_w
        self._held_w = []
        if self._closely:
            rules = replace(rules, target_stderr=TUNING.close_look_error, limit_s=TUNING.close_look_s)
            known = search.is_close(settings[0], self._context.now_s - TUNING.close_look_every_s)
        else:  # nobody else's share depends on it where there is no ceiling
            known = self._context.ceiling_w == math.inf or search.knows(settings[0], TUNING.ceiling_known_error)
        if len(set(settings)) == 1 and not known:
            self._begun_w = settings[0]
            self._prober.start(settings, search.cost, rules)

    def _is_above(self, search: Search) -> bool:
        """Whether more may hold now than the search knew of."""
        limits = zip(search.baseline.setting, self._context.uncapped_w, strict=True)
        return any(now_w > known_w + TOLERANCE_W for known_w, now_w in limits)
