"""Who has GPUs of a budget, what they draw there, and how far what a tuner says of a job is believed.

Whoever may register a job can say of it what they like, and a curve that is too steep would take watts from others: so
it counts only as far as the card can be like that, and where the draw that we read ourselves says otherwise the reading
holds. Of a job that nobody tunes its clocks speak: who computes all the time is slowed down as the SM clock is, which
the driver shows, and nobody by more."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from autocap.plugins.fleet.budget.orders import SLACK_W, Order
from autocap.plugins.fleet.budget.shares import Floats, JobCurve
from autocap.plugins.fleet.manager.finding import Claim
from autocap.records import Reading

_SURE_S, _KEPT_S = 30.0, 60.0  # without a cap that binds, until the draw is one that none would; of which it is read
_READ_S = 10.0  # of readings at least
_STEEP, _ROUNDING_W = 0.1, 1.0
_HURTS = 0.02  # of a slowdown where there should be none
_UPPER = 0.95

T = TypeVar("T")
_SAME_W = 1.0  # caps this near count as one
_FEWEST, _MOST = 15, 150  # readings of a cap until it counts, and over which its clock is averaged
OFF_HZ = 7.5e6  # of a clock that is shown in steps of 15 MHz, from the one that runs
_KEPT = 8  # caps, the latest
DRAWN_S = 10.0  # over which a draw's upper quantile is taken
_SETTLED_W, _SETTLED_SHARE, _SETTLED_S = 3.0, 0.03, 2.0  # a draw that is not above its cap; or long enough after it


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
        forget(self._draws_w, t_s - _KEPT_S)
        forget(self._bound, t_s - _READ_S)
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
        return upper(self._draws_w or [(0.0, 0.0)])


def _binds(reading: Reading, cap_w: float) -> bool:
    assert reading.power_w is not None
    return bool(reading.cap_binding) or reading.power_w + SLACK_W / 2 > cap_w


def forget(series: deque[tuple[float, T]], before_s: float) -> None:
    """Drop what was seen before that time."""
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


@dataclass(slots=True)
class _Seen:
    cap_w: float
    readings: int = 0
    hz: float = 0.0


@dataclass(slots=True)
class Clocks:
    """The mean SM clock of a job's devices at each cap that they were held at."""

    _seen: list[_Seen] = field(default_factory=list)

    def see(self, cap_w: float, readings: Sequence[Reading]) -> bool:
        """Take in readings of all devices under a cap, watts; whether it is time to ask what is known. Devices at rest,
        and those that show no clock, say nothing."""
        clocks_hz = [one.sm_clock_hz for one in readings if one.sm_clock_hz and one.utilisation != 0]
        if len(clocks_hz) < len(readings):
            return False
        at = next((one for one in self._seen if abs(one.cap_w - cap_w) <= _SAME_W), None) or _Seen(cap_w)
        self._seen = [*(one for one in self._seen if one is not at), at][-_KEPT:]
        at.readings += 1
        at.cap_w += (cap_w - at.cap_w) / min(at.readings, _MOST)
        at.hz += (min(clocks_hz) - at.hz) / min(at.readings, _MOST)  # the slowest keeps the others waiting
        return at.readings % _FEWEST == 0

    def curve(self, worst: JobCurve, most_hz: float | None = None, *, off_hz: float = 0.0) -> JobCurve | None:
        """The worst job's, but as the clocks say between the highest and the lowest cap at which they were seen; `None`
        where that is one cap. Nothing is slowed down by more than the worst, and below what was seen as that is.
        most_hz: that the devices can run at, which stands for what was never seen at the highest cap, or nearly so.
        off_hz: by which clocks may be lower than they are shown."""
        seen = sorted((one for one in self._seen if one.readings >= _FEWEST), key=lambda one: -one.cap_w)
        top_w = float(worst.caps_w[-1])
        if seen and most_hz is not None and seen[0].cap_w < top_w - _SAME_W:
            seen.insert(0, _Seen(top_w, hz=max(most_hz, seen[0].hz)))
        if len(seen) < 2:
            return None
        top_hz = seen[0].hz if most_hz is None else max(seen[0].hz, min(most_hz, seen[0].hz + 2 * OFF_HZ))
        log_worst = np.log1p(worst.slowdown)
        far = np.interp([one.cap_w for one in seen], worst.caps_w, log_worst)
        slower = [float(far[0])]
        for one, before, here in zip(seen[1:], far[:-1], far[1:], strict=True):
            shown = far[0] + math.log(top_hz / (one.hz + OFF_HZ - off_hz))
            slower.append(float(np.clip(shown, slower[-1], slower[-1] + here - before)))
        log_time = np.interp(log_worst, far, slower) + np.minimum(log_worst - far[0], 0)
        time = np.exp(log_time + np.maximum(log_worst - far[-1], 0))
        return replace(worst, slowdown=time - 1, energy=time, slowdown_stderr=(time - 1) / 2)


@dataclass(slots=True, kw_only=True)
class Allocation:
    """One job, or one device that nobody uses (free). gpus: by their place among the devices. tuned: a tuner sets its
    caps below the ceiling; silent: it has not been heard of for too long. put_back: it is to hear that other caps were
    set than its own. since_s: its caps are as they are. claim: of its tuner, who has said that of the job. waits: the
    job does not compute on all of its GPUs yet, or any more; since some_s it does on some of them. groups: that its
    processes belong to. ended: why its tuner has it no more. unbound: what it draws where no cap binds it. clocks: at
    its caps. said: by its tuner, of which believed is what is followed; doubt: why that is not followed. held: the cap
    in force, watts, and the slowdown there with its error, as said last. beyond: whether it is slower than its tuner
    allows, as said last."""

    name: str
    gpus: tuple[int, ...]
    pid: int | None = None
    free: bool = False
    tuned: bool = False
    silent: bool = False
    put_back: bool = False
    ceiling_w: float = 0.0
    missed: int = 0
    draws_w: deque[tuple[float, float]] = field(default_factory=deque)
    since_s: float = 0.0
    claim: Claim | None = None
    waits: bool = False
    some_s: float | None = None
    groups: frozenset[int] = frozenset()
    ended: str = ""
    unbound: Unbound | None = None
    clocks: Clocks = field(default_factory=Clocks)
    said: JobCurve | None = None
    believed: JobCurve | None = None
    doubt: str | None = None
    held: tuple[float, float, float] | None = None
    beyond: bool = False

    def drew(self, t_s: float, readings: Sequence[Reading]) -> None:
        """Its devices were read. Where a driver says that the cap binds, it does, whatever is drawn: a job of short
        phases is held down in some of them, and draws less on average."""
        draws_w = [reading.power_w for reading in readings if reading.power_w is not None]
        if any(reading.cap_binding for reading in readings):
            draws_w.append(self.ceiling_w)
        if draws_w:
            self.draws_w.append((t_s, max(draws_w)))
        forget(self.draws_w, t_s - DRAWN_S)

    def reset(self, t_s: float) -> None:
        """It has other caps from now on."""
        self.since_s = t_s
        self.draws_w.clear()

    def most_drawn_w(self, t_s: float) -> float | None:
        """What one of its devices draws at most under the caps that it has, watts; `None` while that is not known."""
        return upper(self.draws_w) if self.draws_w and t_s >= self.since_s + DRAWN_S else None


@dataclass(slots=True, kw_only=True)
class Lowering:
    """An order to lower that is carried out, and not confirmed yet."""

    order: Order
    given_s: float

    def is_done(self, t_s: float, draws_w: Sequence[float], devices: int) -> bool:
        """Whether the devices are seen to draw no more, or have had the time: the cap was read back, and the card sees
        to it."""
        most_w = self.order.cap_w + max(_SETTLED_W, _SETTLED_SHARE * self.order.cap_w)
        drawn = len(draws_w) == devices and max(draws_w) <= most_w
        return t_s > self.given_s and (drawn or t_s >= self.given_s + _SETTLED_S)


def upper(series: Iterable[tuple[float, float]]) -> float:
    """The upper quantile of some values with their times."""
    return float(np.quantile([value for _, value in series], _UPPER))
