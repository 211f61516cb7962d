"""What one device of a job shows while one cap holds: its readings, and the other signals that may bear them out.

One device and not the sum: the devices of a job iterate together, but their sensors update at different times, so that
a sum of held readings is smeared over an update. Energy is still summed where it is measured.

What a power reading averages over is learned from the energy counter, which misses nothing. A reading at t that
averages over the last w seconds is the energy of these seconds over w, whatever the load does:

    r(t) = gain·(E(t) - E(t - w))/w + offset

The counter shows E where it moves, later by up to one of its moves; in between it is taken to rise evenly. Of all w the
one that explains the readings best is the window, and those that do not explain them worse in every stretch of time
may be it as well: with ten stretches a wrong one is that bad by chance once in a thousand. How finely the counter moves
limits that, so the window is given with half of a move on either side. A sensor that is no average, as a low pass,
leaves too much, or has another gain; so do readings that show a load faster than the sensor, which the counter does
not. Then nothing is learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autocap.progress.period.counted import Load, Witness, counter_misses
from autocap.progress.period.estimate import Floats
from autocap.progress.period.series import ascending
from autocap.records import Sample, SensorInfo

_STEP = 1.08  # from one window that is tried to the next
_SHORTEST_MOVES, _SHORTEST, _LONGEST_S = 0.2, 0.1, 1.6  # windows that are tried: of a move, of an update; seconds
_LATE = np.linspace(-0.25, 1.0, 6)  # moves of the counter that these may be seen late
_STRETCHES, _FEWEST_READINGS = 10, 100
_LEFT = 0.05  # of the variation of the readings, at most
_GAIN = (0.92, 1.08)  # of the readings against the counter: both are of the same shunts
_MOVES, _MOST_MOVES_APART = 60, 2.5  # fewest moves; gap between two of them, times the usual one
_RESPONSES, _AS_WELL = np.geomspace(0.15, 1.5, 8), 3.0  # time constants, in windows; left by a low pass, at least
_LEAST_MOVES = 2.0  # of the counter in a window: of a shorter one these say little
_WIDEST = 0.6  # of what is learned: half of it, over its middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a reading averages over: window_s, seconds, and by which share it may be longer or shorter."""

    window_s: float
    off: float


def learned(t_s: Floats, power_w: Floats, moved_s: Floats, energy_j: Floats, *, update_s: float) -> Window | None:
    """The window of a sensor, `None` where that cannot be told.

    t_s, power_w: fresh readings with their own stamps, ascending, shape (n,), seconds and watts. moved_s, energy_j:
    when the energy counter was seen to have moved, ascending, and what it showed, shape (m,), seconds and joules.
    update_s: of the sensor.
    """
    if len(moved_s) < _MOVES:
        return None
    move_s = float(np.median(np.diff(moved_s)))
    shortest_s = min(_SHORTEST_MOVES * move_s, _SHORTEST * update_s)
    windows_s = np.geomspace(shortest_s, _LONGEST_S, int(np.log(_LONGEST_S / shortest_s) / np.log(_STEP)) + 2)
    within = (t_s > moved_s[0] + _LONGEST_S) & (t_s < moved_s[-1] - move_s) & np.isfinite(power_w)
    gaps_s = np.diff(moved_s)[np.clip(np.searchsorted(moved_s, t_s) - 1, 0, len(moved_s) - 2)]
    within &= gaps_s < _MOST_MOVES_APART * move_s
    t_s, power_w = t_s[within], power_w[within]
    if len(t_s) < _FEWEST_READINGS or np.ptp(power_w) <= 0:
        return None
    averages_w = [_averages(t_s + late_s, moved_s, energy_j, windows_s) for late_s in _LATE * move_s]
    left, gain = _left(averages_w, power_w)
    whole = left.sum(axis=1)
    best = int(np.argmin(whole))
    if whole[best] > _LEFT or not _GAIN[0] < gain[best] < _GAIN[1]:
        return None
    passed_w = [_passed(t_s + late_s, moved_s, energy_j, _RESPONSES * windows_s[best]) for late_s in _LATE * move_s]
    if np.min(_left(passed_w, power_w)[0].sum(axis=1)) < _AS_WELL * whole[best]:
        return None
    worse = np.all(left > left[best], axis=1)
    may_be_s = windows_s[~worse]
    if may_be_s[0] < _LEAST_MOVES * move_s:
        return None
    low_s = max(float(may_be_s[0]) / _STEP - 0.5 * move_s, 0.0)
    high_s = float(may_be_s[-1]) * _STEP + 0.5 * move_s
    found = Window(window_s=0.5 * (low_s + high_s), off=(high_s - low_s) / (high_s + low_s))
    return found if found.off < _WIDEST else None


def _averages(t_s: Floats, moved_s: Floats, energy_j: Floats, windows_s: Floats) -> Floats:
    """Mean power over the last of some windows, shape (windows, n)."""
    before_j = np.interp(t_s - windows_s[:, None], moved_s, energy_j)
    means_w: Floats = (np.interp(t_s, moved_s, energy_j) - before_j) / windows_s[:, None]
    return means_w


def _passed(t_s: Floats, moved_s: Floats, energy_j: Floats, constants_s: Floats) -> Floats:
    """Power behind a first-order low pass with each of some time constants, shape (constants, n)."""
    spans_s = np.diff(moved_s)
    power_w, kept = np.diff(energy_j) / spans_s, np.exp(-spans_s / constants_s[:, None])
    at_moves_w = np.empty((len(constants_s), len(moved_s)))
    at_moves_w[:, 0] = power_w[0]
    for place, now_w in enumerate(power_w):
        at_moves_w[:, place + 1] = now_w + (at_moves_w[:, place] - now_w) * kept[:, place]
    last = np.clip(np.searchsorted(moved_s, t_s) - 1, 0, len(power_w) - 1)
    since = np.exp(-(t_s - moved_s[last]) / constants_s[:, None])
    passed_w: Floats = power_w[last] + (at_moves_w[:, last] - power_w[last]) * since
    return passed_w


def _left(models_w: Sequence[Floats], power_w: Floats) -> tuple[Floats, Floats]:
    """What is left of the variation of readings, shape (n,), in each of some stretches, by the best of what each of
    some sensors would read, all of shape (sensors, n): shape (sensors, stretches); and the gains, shape (sensors,)."""
    values = power_w - power_w.mean()
    starts = np.arange(_STRETCHES) * len(values) // _STRETCHES
    left, gains = np.full((len(models_w[0]), _STRETCHES), np.inf), np.ones(len(models_w[0]))
    for model_w in models_w:
        centred_w = model_w - model_w.mean(axis=1, keepdims=True)
        gain = centred_w @ values / np.maximum(np.sum(centred_w**2, axis=1), 1e-12)
        rest = values - np.clip(gain, *_GAIN)[:, None] * centred_w
        squares = np.add.reduceat(rest**2, starts, axis=1)
        better = squares.sum(axis=1) < left.sum(axis=1)
        left[better], gains[better] = squares[better], gain[better]
    return left / float(values @ values), gains


_BLURRED_S = 0.5  # a window from which on a sensor's average hides the cycle
_EVENED = 11  # moves of a counter that are taken together


class Host(Protocol):
    """`host_time.HostTime`, or a double."""

    def load(self, t_s: Floats) -> Load | None: ...


class CapSignals:
    """Samples of one stretch at constant caps. settled_s: what is read before is left out. window: what a reading
    averages over, where that was learned before. host: looks at the job's CPU time, `None` where nobody does."""

    def __init__(
        self, sensor: SensorInfo, settled_s: float, window: Window | None = None, host: Host | None = None
    ) -> None:
        self._sensor, self._settled_s, self.window, self._host = sensor, settled_s, window, host
        self._samples: list[Sample] = []

    def take(self, sample: Sample) -> None:
        """Add a sample; one with a missing reading is a gap, and one at the time of the last adds nothing."""
        if sample.t_s < self._settled_s or (self._samples and sample.t_s <= self._samples[-1].t_s):
            return
        if all(reading.power_w is not None for reading in sample.readings):
            self._samples.append(sample)

    @property
    def span_s(self) -> float:
        return self._samples[-1].t_s - self._samples[0].t_s if self._samples else 0.0

    @property
    def clock_hz(self) -> float | None:
        """Mean SM clock of all devices; `None` where none reports it."""
        reported = [[one.sm_clock_hz for one in sample.readings] for sample in self._samples]
        known = [[hz for hz in clocks_hz if hz is not None] for clocks_hz in reported]
        means = [sum(clocks_hz) / len(clocks_hz) for clocks_hz in known if clocks_hz]
        return sum(means) / len(means) if means else None

    @property
    def _window_s(self) -> float:
        if self.window is not None:
            return self.window.window_s
        return self._sensor.window_s if self._sensor.window_known else 0.0

    @property
    def window_off(self) -> float:
        """By which share the window of `signal` may be off, beyond what is usual: one that was learned."""
        return 0.0 if self.window is None or self.blurred else self.window.off

    def learn_window(self, device: int) -> None:
        """What a reading averages over, from the energy counter, where nobody has measured it."""
        if self.window is None and not self._sensor.window_known:
            energy_j = np.array([sample.readings[device].energy_j for sample in self._samples], dtype=np.float64)
            moved = moved_at(self._sampled_s, energy_j)
            if moved is not None:
                self.window = learned(*self._fresh(device), *moved, update_s=self._sensor.update_s)

    @property
    def blurred(self) -> bool:
        """Whether the readings are averages too long to show a cycle, so that the energy counter has to."""
        return (self.window.window_s if self.window is not None else self._sensor.window_s) >= _BLURRED_S

    def liveliest(self) -> int:
        """The device whose power varies most."""
        watts = np.array([[one.power_w for one in sample.readings] for sample in self._samples])
        return int(np.argmax(np.std(watts, axis=0))) if len(watts) else 0

    def signal(self, device: int) -> tuple[Floats, Floats, float, float] | None:
        """Times, watts, update and window, seconds, of what a period is looked for in, 0 for a window that is not
        known; `None` where the readings are blurred and there is no counter. A long average has no response at whole
        fractions of its window."""
        if not self.blurred:
            return *self._fresh(device), self._sensor.update_s, self._window_s
        counted = self.counted(device)
        if counted is None:
            return None
        span_s = float(np.median(np.diff(counted[0])))
        return *counted, span_s, span_s

    def counted(self, device: int) -> tuple[Floats, Floats] | None:
        """Mean power between two moves of the energy counter, with the time of the later one, each of shape (n,)."""
        energy_j = np.array([sample.readings[device].energy_j for sample in self._samples], dtype=np.float64)
        return moves(self._sampled_s, energy_j)

    def counter(self, device: int) -> Witness | None:
        """The energy counter as a second view of the readings; `None` where there is none, or it is the signal."""
        return None if self.blurred else self.counted(device)

    def witnesses(self, device: int) -> list[Witness]:
        """Other signals of the device, each as (times, values)."""
        found = [self._fresh(device)] if self.blurred else []
        utilisation = np.array([sample.readings[device].utilisation for sample in self._samples], dtype=np.float64)
        if np.isfinite(utilisation).all():
            found.append((self._sampled_s, utilisation))
        return found

    @property
    def load(self) -> Load | None:
        """Of the host's CPUs by the job meanwhile."""
        return None if self._host is None or not self._samples else self._host.load(self._sampled_s)

    def contradicted(self, period_s: float, device: int) -> bool:
        """Whether the energy counter does not see a period that the readings show: a beat."""
        counted = self.counter(device)
        return counted is not None and counter_misses(period_s, *self._fresh(device), *counted, window_s=self._window_s)

    def shorten(self) -> None:
        """Forget the older half."""
        self.keep(len(self._samples) - len(self._samples) // 2)

    def keep(self, latest: int) -> None:
        """Forget all but so many samples, 1 or more."""
        del self._samples[:-latest]

    @property
    def _sampled_s(self) -> Floats:
        return np.array([sample.t_s for sample in self._samples])

    def _fresh(self, device: int) -> tuple[Floats, Floats]:
        """Readings with their own stamps, each once."""
        readings = [sample.readings[device] for sample in self._samples]
        stamps_s = np.array([reading.t_s for reading in readings])
        watts = np.array([reading.power_w for reading in readings], dtype=np.float64)
        fresh = ascending(stamps_s) & (stamps_s >= self._settled_s)
        return stamps_s[fresh], watts[fresh]


def moves(t_s: Floats, energy_j: Floats) -> tuple[Floats, Floats] | None:
    """Mean power between two moves of an energy counter, with the time of the later one, each of shape (n,).

    t_s, energy_j: when it was looked at, and what it showed, each of shape (n,), seconds and joules.
    """
    moved = moved_at(t_s, energy_j)
    if moved is None:
        return None
    stamps_s, shown_j = moved
    return stamps_s[1:], np.diff(shown_j) / np.diff(stamps_s)


def moved_at(t_s: Floats, energy_j: Floats) -> tuple[Floats, Floats] | None:
    """When an energy counter was seen to move, and what it showed then, each of shape (n,); as `moves` takes it."""
    moved = np.flatnonzero(np.diff(energy_j) > 0) + 1
    return (_evened(t_s[moved]), energy_j[moved]) if len(moved) >= 3 else None


def _evened(t_s: Floats) -> Floats:
    """When a counter that moves regularly did so, shape (n,), seconds: a move is only noticed at the next sample, so
    each stamp is taken against its neighbours'. Where they are far apart, the stamps stay as they are, and so do those
    that would not ascend."""
    line = np.linspace(t_s[0], t_s[-1], len(t_s))
    padded = np.pad(t_s - line, _EVENED // 2, mode="edge")
    evened = line + np.convolve(padded, np.full(_EVENED, 1 / _EVENED), mode="valid")
    near = np.abs(evened - t_s) < 0.7 * float(np.median(np.diff(t_s)))
    return evened if near.all() and ascending(evened).all() else t_s
