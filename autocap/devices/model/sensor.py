"""What a power sensor makes of true power: late, held, averaged over a part of the time, scaled, and noisy.

True power is given as it becomes known, piecewise constant, in stretches of any length; the sensor returns what a
driver would have reported. One implementation serves the emulated device (stretches of milliseconds, as time passes)
and the simulated one (of seconds): how time is divided into stretches changes nothing but rounding. A first-order low
pass precedes the sensor's window, and coloured noise is added to it.

Behaviour and numbers: "Accurate and Convenient Energy Measurements for GPUs", SC24, arXiv 2312.02741, and its logs.
"""

import copy
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model import WINDOWS_S, sensor_of
from autocap.records import SensorInfo

Floats = NDArray[np.float64]

_SETTLED = 50.0  # time constants after which nothing of the start is left in a float
_AT_ONCE = 300.0  # time constants whose exponential a float holds with room to spare


def low_passed(start: float, values: Floats, spans_s: Floats, time_constant_s: float) -> Floats:
    """A first-order low pass of what is constant over successive spans: the output at the end of each, shape (n,).

    start: the output where the first span begins. values, spans_s: shape (n,).
    """
    steps = np.minimum(spans_s / time_constant_s, _SETTLED)
    passed = np.empty(len(values))
    chunks = (np.cumsum(steps) // _AT_ONCE).astype(int)
    for places in np.split(np.arange(len(values)), np.flatnonzero(np.diff(chunks)) + 1):
        # y' = (x - y) / τ, so y e^(t/τ) grows by x (e^(t₁/τ) - e^(t₀/τ)) over a span.
        ends = np.cumsum(steps[places])
        grown = np.cumsum(values[places] * np.exp(ends) * -np.expm1(-steps[places]))
        passed[places] = (start + grown) * np.exp(-ends)
        start = float(passed[places[-1]])
    return passed


def low_passed_at(t_s: Floats, edges_s: Floats, values: Floats, outputs: Floats, time_constant_s: float) -> Floats:
    """The low pass at any time between the edges; shape of t_s.

    edges_s, outputs: shape (n+1,), where the values change and the output there. values: shape (n,).
    """
    place = np.clip(np.searchsorted(edges_s, t_s, side="right") - 1, 0, len(values) - 1)
    left = np.exp(-(t_s - edges_s[place]) / time_constant_s)
    return values[place] + (outputs[place] - values[place]) * left


def coloured(last: Floats, white: Floats, correlation: float) -> Floats:
    """First-order autoregressive noise of the white noise's variance, shape (m, n).

    last: shape (m,), what went before. white: shape (m, n). correlation: of successive values, 0 to 1.
    """
    memory, echo = _weights(correlation, white.shape[1])
    noise: Floats = np.sqrt(1.0 - correlation**2) * (white @ memory) + last[:, None] * echo
    return noise


@cache
def _weights(correlation: float, count: int) -> tuple[Floats, Floats]:
    """What is left of each of `count` values in each later one, shape (count, count), and of the one before them."""
    lags = np.arange(count)[None, :] - np.arange(count)[:, None]
    memory = np.where(lags >= 0, correlation ** np.maximum(lags, 0), 0.0)
    return memory, correlation ** np.arange(1.0, count + 1)


_BLOCK = 256  # random numbers are drawn for this many updates at once, whatever the stretches
_INSTANT_SETTLE_S = 0.5
_JITTER_SIGMAS = 3.0
_RESPONSES = 4.6  # time constants until a low pass has come within 1 % of a step
_AT_LIMIT = 0.97  # of the power limit, from which on a card regulates


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorModel:
    """How one power sensor behaves.

    update_s: mean time between fresh readings, each interval off by a relative standard deviation of update_jitter, so
    that the phase wanders. phase_jitter_s: by how much a reading comes off that clock, standard deviation.
    window_s: the trailing average that a reading covers; less than update_s means that part of the time goes unseen.
    response_s: time constant of a first-order low pass before that average, 0 for none.
    gain, offset_w: reading = gain · power + offset_w. quantum_w: what a reading is a multiple of, 0 for none.
    noise: relative standard deviation of a reading, limit_noise: of one at the power limit, where the card regulates
    (0: no other). noise_correlation: of the noise of successive readings.
    average_window_s: window of the second, slow channel. energy_update_s: how often the energy counter moves.
    """

    update_s: float
    window_s: float
    update_jitter: float = 0.01
    gain: float = 1.0
    offset_w: float = 0.0
    noise: float = 0.003
    average_window_s: float = 1.0
    energy_update_s: float = 0.1
    phase_jitter_s: float = 0.0
    response_s: float = 0.0
    quantum_w: float = 0.0
    limit_noise: float = 0.0
    noise_correlation: float = 0.0

    def info(self) -> SensorInfo:
        """What a device says of this sensor. Settling: half a second, or twice the window of a slow average, and what
        a low pass needs to come within 1 %. Behind a low pass that is slower than the updates no time goes unseen."""
        settle_s = max(_INSTANT_SETTLE_S, 2 * self.window_s, self.window_s + _RESPONSES * self.response_s)
        window_s = max(self.window_s, min(self.response_s, self.update_s))
        return SensorInfo(update_s=self.update_s, window_s=window_s, settle_s=settle_s, counter_s=self.energy_update_s)


# Update period and window as measured on each card (SC24 logs), and the 1 s average of GA10x, Ada and Hopper.
PRESETS = {
    "v100": SensorModel(update_s=0.020, window_s=WINDOWS_S["v100"]),
    "turing": SensorModel(update_s=0.101, window_s=0.101),
    "quadro-rtx": SensorModel(update_s=0.100, window_s=WINDOWS_S["quadro-rtx"]),
    "a100": SensorModel(update_s=0.100, window_s=WINDOWS_S["a100"]),
    "rtx-3090": SensorModel(update_s=0.100, window_s=WINDOWS_S["rtx-3090"]),
    "rtx-4090": SensorModel(update_s=0.100, window_s=WINDOWS_S["rtx-4090"]),
    "h100": SensorModel(update_s=0.100, window_s=WINDOWS_S["h100"]),
    "average-1s": SensorModel(update_s=0.100, window_s=1.0),
}


def for_gpu(gpu_name: str) -> SensorModel:
    """The sensor of a card of that name; the slow average of recent cards where the card was not measured."""
    return PRESETS[sensor_of(gpu_name) or "average-1s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorReadings:
    """The fresh readings of a stretch of time, oldest first, and the moves of the energy counter.

    t_s, power_w, average_w: shape (n,), when each reading was taken, its power and the slow channel's.
    energy_t_s, energy_j: shape (m,), when the counter moved and what it showed from then on.
    """

    t_s: Floats
    power_w: Floats
    average_w: Floats
    energy_t_s: Floats
    energy_j: Floats


class PowerSensor:
    """The sensor of one card, from the first moment that it is fed.

    rng belongs to this sensor alone: the same seed and the same power give the same readings.
    """

    def __init__(self, model: SensorModel, rng: np.random.Generator) -> None:
        self.model = model
        self._rng = rng
        self._edges_s: Floats = np.empty(0)  # the recent past: where power changed, and the energy used up to there
        self._energy_j: Floats = np.empty(0)
        self._powers_w: Floats = np.empty(0)  # between the edges, and what the low pass makes of it at each edge
        self._passed_w: Floats = np.empty(0)
        self._due_s: Floats = np.empty(0)  # when the next updates come, and their noise (instant, average)
        self._deviations: Floats = np.empty((2, 0))
        self._last_deviations: Floats = np.empty(2)
        self._clock_s = 0.0  # of the last update that is scheduled
        self._origin_s = 0.0
        self._first_tick_s = 0.0
        self._ticks = 0
        self._latest: tuple[float, float] | None = None
        self._average_w: float | None = None
        self._counter_j = 0.0

    def latest(self) -> tuple[float, float] | None:
        """The newest reading: when it was taken, seconds, and watts. Held until the next; `None` before the first."""
        return self._latest

    def average_w(self) -> float | None:
        """The slow channel's newest reading, watts."""
        return self._average_w

    def energy_j(self) -> float:
        """The energy counter as it stands: joules since the first stretch began, scaled by the gain."""
        return self._counter_j

    def fork(self) -> "PowerSensor":
        """An independent sensor in the same state: given the same power, it returns the same readings."""
        twin = copy.copy(self)  # the arrays are only ever replaced, so they may be shared
        twin._rng = copy.deepcopy(self._rng)
        return twin

    def advance(self, edges_s: Floats, power_w: Floats, limit_w: float = np.inf) -> SensorReadings:
        """Take the next stretch of true power; the readings that fall into it.

        edges_s: shape (n+1,), seconds, ascending; the first is where the last stretch ended. power_w: shape (n,), the
        constant board draw between consecutive edges. limit_w: the power limit of the card throughout the stretch.
        Raises ValueError where the stretch does not follow the last.
        """
        if len(edges_s) != len(power_w) + 1 or len(power_w) == 0:
            raise ValueError(f"{len(power_w)} powers need {len(power_w) + 1} edges, got {len(edges_s)}")
        if len(self._edges_s) == 0:
            self._begin(float(edges_s[0]), float(power_w[0]))
        elif abs(edges_s[0] - self._edges_s[-1]) > 1e-9:
            raise ValueError(f"power from {edges_s[0]} s on does not follow what ended at {self._edges_s[-1]} s")
        used_j = self._energy_j[-1] + np.cumsum(power_w * np.diff(edges_s))
        self._edges_s = np.concatenate((self._edges_s, edges_s[1:]))
        self._energy_j = np.concatenate((self._energy_j, used_j))
        if self.model.response_s:
            passed_w = low_passed(float(self._passed_w[-1]), power_w, np.diff(edges_s), self.model.response_s)
            self._passed_w = np.concatenate((self._passed_w, passed_w))
            self._powers_w = np.concatenate((self._powers_w, power_w))
        readings = self._read_up_to(float(edges_s[-1]), limit_w)
        self._forget()
        return readings

    def _begin(self, origin_s: float, power_w: float) -> None:
        self._origin_s = origin_s
        self._edges_s = np.array([origin_s])
        self._energy_j = np.zeros(1)
        self._passed_w = np.array([power_w])
        # Readings and counter each run at a phase of their own.
        self._first_tick_s = origin_s + self.model.energy_update_s * self._rng.random()
        first_s = origin_s + self.model.update_s * (1.0 - self._rng.random())
        if self.model.noise_correlation:
            self._last_deviations = self._rng.standard_normal(2)
        self._schedule(first_s)

    def _schedule(self, first_s: float) -> None:
        """Draw the times of the next block of updates, from first_s on, and their noise."""
        jitter = np.clip(self._rng.standard_normal(_BLOCK), -_JITTER_SIGMAS, _JITTER_SIGMAS)
        intervals_s = self.model.update_s * (1.0 + self.model.update_jitter * jitter)
        clock_s = first_s + np.concatenate(([0.0], np.cumsum(intervals_s[:-1])))
        self._clock_s = float(clock_s[-1])
        deviations = self._rng.standard_normal((2, _BLOCK))
        if self.model.noise_correlation:
            deviations = coloured(self._last_deviations, deviations, self.model.noise_correlation)
            self._last_deviations = deviations[:, -1]
        self._deviations = np.concatenate((self._deviations, deviations), axis=1)
        if self.model.phase_jitter_s:  # never early, so that the first comes after the origin
            off = np.clip(self._rng.standard_normal(_BLOCK), -_JITTER_SIGMAS, _JITTER_SIGMAS) + _JITTER_SIGMAS
            clock_s = clock_s + self.model.phase_jitter_s * off
        self._due_s = np.concatenate((self._due_s, clock_s))

    def _read_up_to(self, end_s: float, limit_w: float) -> SensorReadings:
        while self._due_s[-1] <= end_s:
            self._schedule(self._clock_s + self.model.update_s)
        count = int(np.searchsorted(self._due_s, end_s, side="right"))
        t_s, deviations = self._due_s[:count], self._deviations[:, :count]
        self._due_s, self._deviations = self._due_s[count:], self._deviations[:, count:]
        power_w = self._shown(self._windowed(t_s, self.model.window_s), deviations[0], limit_w)
        average_w = self._shown(self._windowed(t_s, self.model.average_window_s), deviations[1], limit_w)
        if count:
            self._latest = (float(t_s[-1]), float(power_w[-1]))
            self._average_w = float(average_w[-1])
        ticks = int(np.floor((end_s - self._first_tick_s) / self.model.energy_update_s)) + 1
        numbers = np.arange(self._ticks, ticks, dtype=np.float64)
        energy_t_s = self._first_tick_s + self.model.energy_update_s * numbers
        energy_j = self.model.gain * np.interp(energy_t_s, self._edges_s, self._energy_j)
        if len(energy_j):
            self._ticks, self._counter_j = ticks, float(energy_j[-1])
        return SensorReadings(t_s=t_s, power_w=power_w, average_w=average_w, energy_t_s=energy_t_s, energy_j=energy_j)

    def _windowed(self, t_s: Floats, window_s: float) -> Floats:
        """The noiseless reading at each time: the mean over its window, or over what there is of it at the start."""
        from_s = np.maximum(t_s - window_s, self._origin_s)
        used_j = np.interp(t_s, self._edges_s, self._energy_j) - np.interp(from_s, self._edges_s, self._energy_j)
        if self.model.response_s:  # y' = (x - y) / τ, so ∫y = ∫x - τ Δy
            used_j = used_j - self.model.response_s * (self._passed_at(t_s) - self._passed_at(from_s))
        return np.maximum(self.model.gain * used_j / (t_s - from_s) + self.model.offset_w, 0.0)

    def _passed_at(self, t_s: Floats) -> Floats:
        return low_passed_at(t_s, self._edges_s, self._powers_w, self._passed_w, self.model.response_s)

    def _shown(self, power_w: Floats, deviations: Floats, limit_w: float) -> Floats:
        """A noiseless reading with its noise, in whole quanta."""
        noise: float | Floats = self.model.noise
        if self.model.limit_noise:
            noise = np.where(power_w >= _AT_LIMIT * limit_w, self.model.limit_noise, noise)
        shown_w = power_w * (1.0 + noise * deviations)
        return self.model.quantum_w * np.round(shown_w / self.model.quantum_w) if self.model.quantum_w else shown_w

    def _forget(self) -> None:
        """Drop what no window can reach any more."""
        reach_s = self._edges_s[-1] - max(self.model.window_s, self.model.average_window_s)
        keep = max(0, int(np.searchsorted(self._edges_s, reach_s, side="right")) - 1)
        self._edges_s, self._energy_j = self._edges_s[keep:], self._energy_j[keep:]
        self._powers_w, self._passed_w = self._powers_w[keep:], self._passed_w[keep:]
