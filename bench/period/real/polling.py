"""What a reader sees of a card: the newest reading of its sensor and its utilisation, whenever it gets to look."""

from dataclasses import dataclass

import numpy as np

from autocap.devices.model.sensor import PowerSensor, SensorModel
from autocap.runlog.traces import counted, updates
from bench.period.real.loads import Floats, Range, TrueLoad
from bench.period.signals import Signal

LEAD_S = 2.0  # true power before the first reading that is kept, so that every window is full
_SCATTER_S = 0.0007
_LATE_S = (0.125, 0.22)
_HELD_UP_S = 2.6
_STARVED_S = (0.02, 5.0)
_AT_ONCE_S = 0.001
_COUNTER_J = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How often somebody looks. every_s: between two looks. late: the share of them that come later, by _LATE_S at
    100 ms and in proportion; held_up: of those that come 2.6 s later.
    """

    every_s: Range
    late: float = 0.01
    held_up: float = 0.0

    def looks_s(self, span_s: float, rng: np.random.Generator) -> Floats:
        """When it looks, up to span_s."""
        every_s = rng.uniform(*self.every_s)
        count = int(span_s / every_s) + 1
        gaps_s = np.maximum(every_s + _SCATTER_S * rng.standard_normal(count), 0.2 * every_s)
        later_s = rng.uniform(*_LATE_S, count) * every_s / 0.1
        gaps_s = np.where(rng.random(count) < self.late, later_s, gaps_s)
        gaps_s += np.where(rng.random(count) < self.held_up, _HELD_UP_S, 0.0)
        return _up_to(span_s, gaps_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedReader:
    """A reader on a machine with too few cores: long gaps, and then several looks at once. median_s: of the gaps,
    spread: the standard deviation of their logarithm. at_once: the share of looks that follow the one before directly.
    """

    median_s: Range = (0.1, 0.3)
    spread: float = 1.0
    at_once: float = 0.3

    def looks_s(self, span_s: float, rng: np.random.Generator) -> Floats:
        """When it looks, up to span_s."""
        median_s = rng.uniform(*self.median_s)
        gaps_s = median_s * np.exp(self.spread * rng.standard_normal(int(4 * span_s / median_s) + 20))
        gaps_s = np.clip(gaps_s, *_STARVED_S)
        return _up_to(span_s, np.where(rng.random(len(gaps_s)) < self.at_once, _AT_ONCE_S, gaps_s))


SMI_100MS = Reader(every_s=(0.104, 0.105), held_up=0.0003)  # nvidia-smi --loop-ms=100
FAST = Reader(every_s=(0.007, 0.012), late=0.002)
STARVED = StarvedReader()


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """The share of the last window_s in which a kernel ran, whole per cent, once every `updates` of the power sensor:
    the same firmware samples both."""

    window_s: float = 1 / 6
    updates: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A log of a card, as it was polled, and the truth about it.

    looks_s, power_w, utilisation, energy_j: shape (n,), one row a look; energy_j is `None` without a counter. signal:
    the fresh readings, and the progress of what ran. update_s: between fresh readings, as the log shows. window_s: what
    a reading averages over, which no log shows.
    counted, witnesses: what a detector gets besides, as (times, values).
    """

    looks_s: Floats
    power_w: Floats
    utilisation: Floats
    energy_j: Floats | None
    signal: Signal
    update_s: float
    window_s: float
    counted: tuple[Floats, Floats] | None
    witnesses: tuple[tuple[Floats, Floats], ...]


def poll(
    load: TrueLoad,
    model: SensorModel,
    reader: Reader | StarvedReader,
    rng: np.random.Generator,
    *,
    limit_w: float = np.inf,
    utilisation: Utilisation | None = None,
    counter: bool = False,
) -> Recording:
    """The log of a card under a load. limit_w: its power limit."""
    utilisation = utilisation or Utilisation()
    readings = PowerSensor(model, rng).advance(load.edges_s, load.power_w, limit_w)
    looks_s = reader.looks_s(float(load.edges_s[-1]), rng)
    looks_s = looks_s[looks_s >= LEAD_S]
    power_w = _held(looks_s, readings.t_s, readings.power_w)
    sampled_s = readings.t_s[utilisation.updates :: utilisation.updates]
    busy = _held(looks_s, sampled_s, _busy(load, sampled_s, utilisation.window_s))
    energy_j = None
    if counter:
        energy_j = _COUNTER_J * np.round(_held(looks_s, readings.energy_t_s, readings.energy_j) / _COUNTER_J)
    update_s, fresh = updates(looks_s, power_w)
    signal = Signal(t_s=looks_s[fresh], power_w=power_w[fresh], progress_t_s=load.progress_t_s, progress=load.progress)
    return Recording(
        looks_s=looks_s,
        power_w=power_w,
        utilisation=busy,
        energy_j=energy_j,
        signal=signal,
        update_s=update_s,
        window_s=model.info().window_s,
        counted=None if energy_j is None else counted(looks_s, energy_j),
        witnesses=((looks_s, busy),),
    )


def _up_to(span_s: float, gaps_s: Floats) -> Floats:
    times_s = np.cumsum(gaps_s)
    return times_s[times_s <= span_s]


def _held(t_s: Floats, updated_s: Floats, values: Floats) -> Floats:
    """The newest value at each time."""
    return values[np.maximum(np.searchsorted(updated_s, t_s, side="right") - 1, 0)]


def _busy(load: TrueLoad, t_s: Floats, window_s: float) -> Floats:
    """The busy share of the window before each time, 0 to 1 in whole per cent."""
    busy_s = np.concatenate(([0.0], np.cumsum(load.busy * np.diff(load.edges_s))))
    share = (np.interp(t_s, load.edges_s, busy_s) - np.interp(t_s - window_s, load.edges_s, busy_s)) / window_s
    return np.round(share, 2)
