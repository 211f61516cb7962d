"""How far what a tuner says of a job is believed. Whoever may register a job can say of it what they like, and a curve
that is too steep would take watts from others: so it counts only as far as the card can be like that, and where the
draw that we read ourselves says otherwise the reading holds."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from autocap.plugins.fleet.budget.account import SLACK_W
from autocap.plugins.fleet.budget.curves import Floats, JobCurve
from autocap.records import Reading

_SURE_S, _KEPT_S = 30.0, 60.0  # without a cap that binds, until the draw is one that none would; of which it is read
_READ_S = 10.0  # of readings at least
_STEEP, _ROUNDING_W = 0.1, 1.0
_HURTS = 0.02  # of a slowdown where there should be none
_UPPER = 0.95

T = TypeVar("T")


@dataclass(slots=True)
class Unbound:
    """What a device of a job draws at most while its cap does not bind. since_s: from when on, on the clock, no cap has
    bound that was higher than this draw."""

    since_s: float
    _draws_w: deque[tuple[float, float]] = field(default_factory=deque)
    _bound: deque[tuple[float, bool]] = field(default_factory=deque)  # lately, by a cap above that draw

    def see(self, t_s: float, readings: Sequence[Reading], caps_w: Sequence[float]) -> None:
        """Readings of all devices, and the caps in force there, watts."""
        there = list(zip(readings, caps_w, strict=True))
        draws_w = [one.power_w for one in readings if one.power_w is not None]
        _forget(self._draws_w, t_s - _KEPT_S)
        _forget(self._bound, t_s - _READ_S)
        if len(draws_w) < len(readings):
            return
        bound_w = max((cap_w for one, cap_w in there if _binds(one, cap_w)), default=0.0)
        if not bound_w:
            self._draws_w.append((t_s, max(draws_w)))
        self._bound.append((t_s, bound_w > self._upper_w() + SLACK_W / 2))
        if sum(is_bound for _, is_bound in self._bound) > (1 - _UPPER) * 2 * len(self._bound):
            self._draws_w.clear()
            self.since_s = t_s

    def most_w(self, t_s: float) -> float | None:
        """Watts; `None` while that is not known."""
        if t_s < self.since_s + _SURE_S or not self._draws_w:
            return None
        read_s = self._draws_w[-1][0] - self._draws_w[0][0]
        return self._upper_w() if read_s >= _READ_S else None

    def _upper_w(self) -> float:
        return float(np.quantile([watts for _, watts in self._draws_w] or [0.0], _UPPER))


def _binds(reading: Reading, cap_w: float) -> bool:
    assert reading.power_w is not None
    return bool(reading.cap_binding) or reading.power_w + SLACK_W / 2 > cap_w


def _forget(series: deque[tuple[float, T]], before_s: float) -> None:
    while series and series[0][0] < before_s:
        series.popleft()


def believed(said: JobCurve, worst: JobCurve) -> JobCurve:
    """What a tuner says, as far as it can be. worst: a job that computes all the time, from the lowest cap that may be
    set to the limit found: nothing is slowed down by more. A curve can give watts away, and ask for no more than that
    job would get."""
    low_w, high_w = float(worst.caps_w[0]), float(worst.caps_w[-1])
    curve = said.down_to(low_w)
    top_w = min(max(low_w, float(curve.caps_w[-1])), high_w)
    caps_w = np.unique([*worst.caps_w, *curve.caps_w, top_w])  # as it is between its points, too
    curve = curve.at(caps_w[(caps_w >= low_w) & (caps_w <= top_w)])
    slowdown = np.clip(curve.slowdown, 0.0, _at(worst, curve.caps_w))
    return replace(curve, slowdown=slowdown, energy=np.minimum(curve.energy, 1 + slowdown))


def doubt(said: JobCurve, worst: JobCurve, drawn_w: float | None) -> str | None:
    """Why what a tuner says is not followed, a sentence; `None` where it is. drawn_w: by a device of its, where no cap
    binds it."""
    low_w, high_w = float(worst.caps_w[0]), float(worst.caps_w[-1])
    if said.caps_w[-1] > high_w + _ROUNDING_W:
        return _not_followed(f"asks for {said.caps_w[-1]:.0f} W, above the limit found of {high_w:.0f} W")
    said = said.down_to(low_w)
    least = said.slowdown - 2 * np.broadcast_to(said.slowdown_stderr, said.caps_w.shape)
    over = least - 2 * _at(worst, said.caps_w) - _STEEP
    if over.max() > 0:
        steepest = int(np.argmax(over))
        says = f"says that {said.caps_w[steepest]:.0f} W slow it down by {100 * said.slowdown[steepest]:.0f} %"
        return _not_followed(f"{says}, more than twice what a slower clock could")
    if drawn_w is None:
        return None
    enough_w = drawn_w + SLACK_W
    costs = float(np.interp(enough_w, said.caps_w, least) - said.slowdown.min())
    if costs <= _HURTS:
        return None
    says = f"says that {enough_w:.0f} W slow it down by {100 * costs:.0f} % at least"
    return _not_followed(f"{says}, and it draws {drawn_w:.0f} W where no cap binds it")


def _not_followed(clause: str) -> str:
    return f"its tuner {clause}; it is given what a job that nobody tunes would be"


def _at(curve: JobCurve, caps_w: Floats) -> Floats:
    return np.asarray(np.interp(caps_w, curve.caps_w, curve.slowdown))
