"""Caps ranked by what is known of them at the value in force, and whether another one than that held is worth it.

A gain counts over what an iteration at the limits found on arrival costs, and with its error: that of both caps, but
for what they share, which is the baseline's, and what of a fitted curve is off at both alike. It must exceed the error,
and what the change costs: at most all that the job does while the caps settle. A cap that was not held against the
baseline yet is confirmed, which costs windows of the baseline.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from autocap.controller.known import is_instead
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.metrics import Metric
from autocap.records import Cost, Measurement, same_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Hold another cap, of which nothing is to be confirmed. setting: for all devices, watts."""

    setting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Confirm another cap, and then hold it. window_error: of each window of that, relative, which tells what it should
    save from nothing. metric: by which that is judged.
    """

    setting: float
    window_error: float
    metric: Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOut:
    """A cap, watts, is worth a trial."""

    setting: float


class Ranking:
    """limit_w: that found on arrival, or the ceiling where that is lower, watts. usual: the metric at a usual value.
    confirmed: caps that were held against the baseline and were better at some value; `None` where none can be.
    switching: what a change of caps costs, as a share of the interval. per_second: what a second is, as a share of the
    time for which values are known."""

    def __init__(
        self,
        search: Search,
        *,
        limit_w: float,
        usual: Metric,
        confirmed: Collection[float] | None,
        switching: float,
        per_second: float,
    ) -> None:
        self._limit_w, self._usual, self._confirmed = limit_w, usual, confirmed
        self._values: dict[float, float] = {}
        self._switching, self._per_second = switching, per_second
        self._metric, self._baseline, self._curve = search.metric, search.first, search.curve

    def move(self, held_w: float, *, known_only: bool) -> Move | Confirm | None:
        """To which cap; `None` where the one that is held is to stay. known_only: none is to be confirmed now."""
        limit_w, knob = self._limit_w, self._curve.knob
        settings = [*(one.setting for one in self._curve.points if is_instead(one.setting, limit_w, knob)), limit_w]
        allowed = [setting for setting in settings if self._is_allowed(setting)]
        ready = [setting for setting in allowed if self._is_known(setting)]
        best_w = min(allowed, key=self._value, default=held_w)
        if not known_only and best_w not in ready and self._is_worth(held_w, best_w, confirmed=False):
            return self.confirming(best_w)
        best_w = min(ready, key=self._value, default=held_w)
        stays = any(same_limit(held_w, setting) for setting in ready)
        if same_limit(best_w, held_w) or (stays and not self._is_worth(held_w, best_w, confirmed=True)):
            return None
        return Move(setting=best_w)

    def confirming(self, setting: float) -> Confirm:
        """How a cap, watts, is to be confirmed: by the value in force, or by a usual one where it saves more, as what
        is better there is worth holding at other values by what it has shown."""
        shown = self._curve.expected(setting)
        by = {1 - metric.cost(shown, self._baseline).value: metric for metric in (self._metric, self._usual)}
        saves = max(by)
        error = min(max(saves / TUNING.follow_clear_sigmas, TUNING.follow_finest_error), TUNING.follow_coarsest_error)
        return Confirm(setting=setting, window_error=error, metric=by[saves])

    def gain(self, held_w: float, other_w: float) -> Cost:
        """What another cap saves, with its standard error."""
        held, other = (self._metric.cost(self._own(setting), self._baseline) for setting in (held_w, other_w))
        both = 2 * self._curve.alike(held_w, other_w) * held.stderr * other.stderr
        stderr = math.sqrt(max(0.0, held.stderr**2 + other.stderr**2 - both))
        return Cost(value=held.value - other.value, stderr=stderr)

    def _is_worth(self, held_w: float, other_w: float, *, confirmed: bool) -> bool:
        gain, costs = self.gain(held_w, other_w), self._switching
        if not confirmed:
            lasts_s = TUNING.follow_confirming_windows * self._baseline.duration_s
            costs += self._per_second * lasts_s * max(0.0, 1 - self._value(other_w))
        return gain.value > max(gain.stderr, costs)

    def _value(self, setting: float) -> float:
        if setting not in self._values:
            self._values[setting] = self._metric.cost(self._curve.expected(setting), self._baseline).value
        return self._values[setting]

    def _is_limit(self, setting: float) -> bool:
        return same_limit(setting, self._limit_w)

    def _is_allowed(self, setting: float) -> bool:
        """Whether a cap may be held, as far as that is known; of one that is to be confirmed that will show."""
        most = self._metric.max_slowdown
        if self._is_limit(setting) or most is None:
            return True
        shown = self._curve.expected(setting)
        sigmas = TUNING.follow_allowed_sigmas if self._is_known(setting) else 0.0
        return shown.period_s * (1 + sigmas * shown.period_rel_stderr) <= self._baseline.period_s * (1 + most)

    def _is_known(self, setting: float) -> bool:
        """Whether a cap may be held at once: the limit itself, and one that was confirmed and is better than that at
        this value as well."""
        if self._is_limit(setting) or self._confirmed is None:
            return True
        return any(same_limit(setting, one_w) for one_w in self._confirmed) and self._value(setting) < 1

    def _own(self, setting: float) -> Measurement:
        """What a cap should show, with its own errors alone."""
        base = self._baseline
        if same_limit(setting, self._curve.baseline_w):
            return base
        shown = self._curve.expected(setting)
        return replace(
            shown,
            period_rel_stderr=_without(shown.period_rel_stderr, base.period_rel_stderr),
            energy_rel_stderr=_without(shown.energy_rel_stderr, base.energy_rel_stderr),
        )


def _without(error: float, part: float) -> float:
    return math.sqrt(max(TUNING.follow_least_error**2, error**2 - part**2))
