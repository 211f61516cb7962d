"""Power signals with known iterations, as a power sensor would report them, and signals that repeat nothing.

True power is built iteration by iteration, disturbed, and read through
`autocap.devices.model.sensor.PowerSensor`; the truth comes along as the job's progress over time, so that an estimate
is held against the mean realised inside its own window.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model.sensor import PowerSensor, SensorModel
from autocap.testing.simulated.job import DEEP, NEARLY_FLAT, SHALLOW, Phase

Floats = NDArray[np.float64]

_MEAN_W = 200.0
_IDLE_W = 60.0
_HOST_POWER = 0.7  # phases that draw less wait for the host: a cap neither slows nor flattens them
LEAD_S = 1.5  # true power before the first reading that is kept, so that every window of the sensor is full


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCase:
    """A sensor of the grid. counter: the signal is the differences of the energy counter, not the power reading."""

    model: SensorModel
    counter: bool = False

    @property
    def update_s(self) -> float:
        return self.model.energy_update_s if self.counter else self.model.update_s

    @property
    def window_s(self) -> float:
        return self.model.energy_update_s if self.counter else self.model.window_s


SENSORS = {
    "20/10": SensorCase(model=SensorModel(update_s=0.020, window_s=0.010)),
    "100/25": SensorCase(model=SensorModel(update_s=0.100, window_s=0.025)),
    "100/100": SensorCase(model=SensorModel(update_s=0.100, window_s=0.100)),
    "counter": SensorCase(model=SensorModel(update_s=0.100, window_s=1.0), counter=True),
}

_CLOSING = (Phase(share=0.30, power=0.55),)
WAVEFORMS: dict[str, tuple[Phase, ...]] = {
    "cnn": DEEP,
    "accumulate4": DEEP * 4 + _CLOSING,
    "shallow": SHALLOW,
    "near-flat": NEARLY_FLAT,
}
JITTERS = (0.0, 0.01, 0.03, 0.10)
DISTURBANCES = ("none", "stalls", "validation", "drift", "checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Readings and, where there are iterations, the truth about them.

    t_s, power_w: the fresh readings, shape (n,). progress_t_s, progress: iterations done at moments between which
    progress is linear; empty where nothing repeats.
    """

    t_s: Floats
    power_w: Floats
    progress_t_s: Floats
    progress: Floats

    def mean_iteration_s(self, start_s: float, end_s: float) -> float:
        """The mean iteration time realised between two moments; time in which nothing progresses is left out."""
        t_s = self.progress_t_s
        moments_s = np.concatenate(([start_s], t_s[(t_s > start_s) & (t_s < end_s)], [end_s]))
        done = np.interp(moments_s, t_s, self.progress)
        working_s = float(np.diff(moments_s)[np.diff(done) > 0].sum())
        return working_s / float(done[-1] - done[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is trained. slowdown: what a cap makes of the iteration time; flatten: of the deviations above the mean."""

    waveform: tuple[Phase, ...]
    period_s: float
    jitter: float
    disturbance: str = "none"
    slowdown: float = 1.0
    flatten: float = 1.0


def record(load: Load, sensor: SensorCase, span_s: float, rng: np.random.Generator) -> Signal:
    """A training job seen through a sensor for span_s seconds."""
    edges_s, power_w, progress_t_s, progress = truth(load, span_s + LEAD_S, rng)
    t_s, read_w = read(edges_s, power_w, sensor, rng)
    keep = t_s >= LEAD_S
    return Signal(
        t_s=t_s[keep],
        power_w=read_w[keep],
        progress_t_s=progress_t_s,
        progress=progress,
    )


def read(edges_s: Floats, power_w: Floats, sensor: SensorCase, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """True power through the sensor: stamps and watts of the fresh readings."""
    readings = PowerSensor(sensor.model, rng).advance(edges_s, power_w)
    if sensor.counter:
        return readings.energy_t_s[1:], np.diff(readings.energy_j) / np.diff(readings.energy_t_s)
    return readings.t_s, readings.power_w


def truth(load: Load, span_s: float, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Edges and powers of true power; moments and counts of progress."""
    shares, powers = _at_cap(load)
    period_s = load.period_s * load.slowdown
    count = int(span_s / period_s * 1.5 + 20)
    factors = np.exp(load.jitter * rng.standard_normal(count) - load.jitter**2 / 2)
    gaps_s, gaps_w = _gaps(load, period_s, span_s, count, rng)
    lengths_s = factors * period_s
    ends_s = np.cumsum(lengths_s + gaps_s) - period_s * rng.random()
    starts_s = ends_s - lengths_s
    bounds = np.concatenate(([0.0], np.cumsum(shares)))[:-1]
    edges_s = np.column_stack((starts_s - gaps_s, starts_s[:, None] + bounds * lengths_s[:, None])).ravel()
    watts = np.column_stack((gaps_w, np.tile(powers, (count, 1)))).ravel()
    if load.disturbance == "validation":
        edges_s, watts = _with_validation(edges_s, watts, gaps_s, starts_s, period_s)
    if load.disturbance == "drift":
        watts = watts * (1.0 + 0.06 * edges_s / span_s)
    inside = (edges_s > 0) & (edges_s < span_s)
    first = int(np.flatnonzero(inside)[0])
    cut_s = np.concatenate(([0.0], edges_s[inside], [span_s]))
    cut_w = np.concatenate(([watts[max(0, first - 1)]], watts[inside]))
    progress_t_s = np.column_stack((starts_s, ends_s)).ravel()
    progress = np.repeat(np.arange(count + 1, dtype=np.float64), 2)[1:-1]
    return cut_s, cut_w, progress_t_s, progress


def _at_cap(load: Load) -> tuple[Floats, Floats]:
    """Shares (sum 1) and powers of the phases: a cap stretches and flattens the compute phases only."""
    shares = np.array([phase.share for phase in load.waveform])
    powers = np.array([phase.power for phase in load.waveform])
    shares = shares / shares.sum()
    host = powers < _HOST_POWER
    compute = float(shares[~host].sum())
    shares[~host] *= (load.slowdown - (1.0 - compute)) / compute
    shares /= shares.sum()
    top = powers[~host]
    powers[~host] = load.flatten * (top.mean() + (top - top.mean()) * load.flatten)
    return shares, _MEAN_W * powers


def _gaps(load: Load, period_s: float, span_s: float, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Time and power of what comes before each iteration and is none."""
    gaps_s, gaps_w = np.zeros(count), np.full(count, _IDLE_W)
    middle = int(rng.uniform(0.35, 0.65) * span_s / period_s)
    if load.disturbance == "stalls":
        gaps_s = np.where(rng.random(count) < min(0.03, 3 * period_s / span_s), rng.exponential(0.5, count), 0.0)
    elif load.disturbance == "validation":
        gaps_s[middle] = 0.15 * span_s
    elif load.disturbance == "checkpoint":
        gaps_s[middle] = min(15.0, 0.3 * span_s)
    return gaps_s, gaps_w


def _with_validation(
    edges_s: Floats, watts: Floats, gaps_s: Floats, starts_s: Floats, period_s: float
) -> tuple[Floats, Floats]:
    """The gap filled with a validation pass: forward only, so faster, at its own power."""
    place = int(np.flatnonzero(gaps_s)[0])
    step_s = 0.37 * period_s
    passes = np.arange(starts_s[place] - gaps_s[place], starts_s[place], step_s)
    extra_s = np.column_stack((passes, passes + 0.2 * step_s)).ravel()
    extra_w = np.tile([0.5 * _MEAN_W, 0.95 * _MEAN_W], len(passes))
    inside = extra_s < starts_s[place] - 1e-9
    order = np.argsort(np.concatenate((edges_s, extra_s[inside])), kind="stable")
    return (
        np.concatenate((edges_s, extra_s[inside]))[order],
        np.concatenate((watts, extra_w[inside]))[order],
    )


def _white(t_s: Floats, rng: np.random.Generator) -> Floats:
    return rng.standard_normal(len(t_s))


def _autoregressive(t_s: Floats, rng: np.random.Generator) -> Floats:
    memory_s = 10 ** rng.uniform(-1, 0.7)
    keep = np.exp(-np.diff(t_s, prepend=t_s[0]) / memory_s)
    steps = rng.standard_normal(len(t_s)) * np.sqrt(1 - keep**2)
    values = np.zeros(len(t_s))
    for place in range(1, len(t_s)):
        values[place] = keep[place] * values[place - 1] + steps[place]
    return values


def _constant(t_s: Floats, rng: np.random.Generator) -> Floats:
    return np.zeros(len(t_s))


def _telegraph(t_s: Floats, rng: np.random.Generator) -> Floats:
    mean_s = 10 ** rng.uniform(-0.7, 0.7)
    switches = np.cumsum(rng.exponential(mean_s, int(3 * (t_s[-1] - t_s[0]) / mean_s) + 50))
    return np.where(np.searchsorted(switches, t_s - t_s[0]) % 2 == 0, 3.0, -3.0)


def _random_walk(t_s: Floats, rng: np.random.Generator) -> Floats:
    return np.cumsum(rng.standard_normal(len(t_s)) * np.sqrt(np.diff(t_s, prepend=t_s[0])))


_NOISES: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "white": _white,
    "ar1": _autoregressive,
    "constant": _constant,
    "telegraph": _telegraph,
    "random-walk": _random_walk,
}
NULLS = tuple(_NOISES)


def record_noise(kind: str, sensor: SensorCase, span_s: float, rng: np.random.Generator) -> Signal:
    """A load of that kind, which repeats nothing, seen through a sensor."""
    edges_s = np.arange(0.0, span_s + LEAD_S + 0.005, 0.01)
    watts = _MEAN_W + 10.0 * _NOISES[kind](edges_s[:-1], rng)
    t_s, read_w = read(edges_s, np.maximum(watts, 1.0), sensor, rng)
    keep = t_s >= LEAD_S
    empty = np.empty(0)
    return Signal(t_s=t_s[keep], power_w=read_w[keep], progress_t_s=empty, progress=empty)
