"""True power of real jobs, with the truth about their steps.

The numbers are those of public logs: two TITAN X that train GPT-2-like models under gloo and NCCL, H100 under DDP, and
the fast square waves of the sensor study of SC24 (arXiv 2312.02741).

What a reader sees of a card: the newest reading of its sensor and its utilisation, whenever it gets to look.

The families of real-like signals: loads, the sensors and readers they are seen through, and what can be known.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model.sensor import PowerSensor, SensorModel
from autocap.runlog.traces import counted, updates
from autocap.testing.logged_sensors import LOGGED
from bench.period.signals import Signal

Floats = NDArray[np.float64]
Range = tuple[float, float]

_BUSY_PASS = 0.92  # of the power of the second pass
_LEVELS_W = (96.0, 74.0)  # while a checkpoint is written: first and second half
_SPINNING_W = (235.0, 232.0)  # the same on a card that spins and waits
_DRIFT = (0.02, 0.05)
_DRIFT_S = (60.0, 180.0)
_OFF_PERIOD = 0.06  # what was meant to be 20 ms took 19 or 21
_NO_TRUTH = np.empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueLoad:
    """What a card draws and does. edges_s: shape (n+1,), power_w, busy: shape (n,), constant between the edges; busy:
    whether a kernel runs. progress_t_s, progress: as in `signals.Signal`, empty where there are no steps.
    """

    edges_s: Floats
    power_w: Floats
    busy: Floats
    progress_t_s: Floats = field(default_factory=lambda: np.empty(0))
    progress: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Time in which no step is done. length_s: of each. burst: training between two of them, over their length; `None`
    for at most one in all. levels_w: power in its first and second half.
    """

    length_s: Range = (3.0, 15.0)
    burst: Range | None = None
    levels_w: tuple[float, float] = _LEVELS_W

    def gaps_s(self, ends_s: Floats, span_s: float, rng: np.random.Generator) -> Floats:
        """Time before each step, shape (steps,), where steps alone would end at ends_s."""
        gaps_s = np.zeros(len(ends_s))
        length_s = rng.uniform(*self.length_s)
        if self.burst is None:
            place = int(np.searchsorted(ends_s, rng.uniform(0.0, 1.5 * span_s)))  # beyond the end in a third
            gaps_s[min(place, len(gaps_s) - 1)] = length_s
            return gaps_s
        steps = max(2, int(np.searchsorted(ends_s - ends_s[0], length_s * rng.uniform(*self.burst))))
        before = np.arange(rng.integers(steps), len(gaps_s), steps)
        gaps_s[before] = length_s * np.exp(0.05 * rng.standard_normal(len(before)))
        return gaps_s


AT_MOST_ONE = Checkpoints()
BURSTS = Checkpoints(burst=(0.8, 1.6))
FREQUENT = Checkpoints(length_s=(2.0, 4.0), burst=(0.6, 1.2))
ABOVE = Checkpoints(burst=(0.8, 2.5), levels_w=_SPINNING_W)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps of two passes and an all-reduce, whose times repeat every accumulation steps, in part.

    step_s: mean time of a step. scatter: relative standard deviation of the step times, repeating: the share of its
    variance that returns every accumulation steps. reduce: share of a step that the all-reduce takes, depth: how far
    power falls in it, mean and standard deviation from step to step. top_w, idle_w: power. busy: in the all-reduce.
    """

    step_s: Range
    scatter: Range = (0.045, 0.07)
    repeating: Range = (0.25, 0.48)
    accumulation: int = 10
    reduce: Range = (0.25, 0.45)
    depth: tuple[float, float] = (0.75, 0.08)
    top_w: Range = (215.0, 245.0)
    idle_w: Range = (95.0, 110.0)
    busy: float = 0.0
    checkpoints: Checkpoints = AT_MOST_ONE

    def power(self, span_s: float, rng: np.random.Generator) -> TrueLoad:
        """From 0 to span_s, beginning somewhere within a step."""
        step_s = rng.uniform(*self.step_s)
        lengths_s = step_s * self._factors(int(1.5 * span_s / step_s) + 4 * self.accumulation, step_s, rng)
        gaps_s = self.checkpoints.gaps_s(np.cumsum(lengths_s), span_s, rng)
        ends_s = np.cumsum(lengths_s + gaps_s) - step_s * rng.random()
        starts_s = ends_s - lengths_s
        passes = 1.0 - rng.uniform(*self.reduce)
        top_w, idle_w = rng.uniform(*self.top_w), rng.uniform(*self.idle_w)
        depth = np.clip(rng.normal(*self.depth, len(lengths_s)), 0.2, 1.0)
        edges_s = np.column_stack(
            (
                starts_s - gaps_s,
                starts_s - 0.5 * gaps_s,
                starts_s,
                starts_s + 0.33 * passes * lengths_s,
                starts_s + passes * lengths_s,
            )
        )
        watts = np.empty_like(edges_s)
        watts[:] = (*self.checkpoints.levels_w, _BUSY_PASS * top_w, top_w, 0.0)
        watts[:, -1] = top_w - depth * (top_w - idle_w)
        busy = np.empty_like(edges_s)
        busy[:] = (float(self.checkpoints.levels_w == _SPINNING_W),) * 2 + (1.0, 1.0, self.busy)
        return _cut(
            edges_s.ravel(),
            watts.ravel(),
            busy.ravel(),
            span_s,
            progress_t_s=np.column_stack((starts_s, ends_s)).ravel(),
            progress=np.repeat(np.arange(len(ends_s) + 1, dtype=np.float64), 2)[1:-1],
        )

    def _factors(self, count: int, step_s: float, rng: np.random.Generator) -> Floats:
        """Times of successive steps over their mean: a part that returns every accumulation steps (mostly with the
        opposite sign after half as many), an independent part, and a slow drift."""
        repeating = np.resize(_returning(self.accumulation, rng), count)
        share = rng.uniform(*self.repeating)
        scatter = np.sqrt(share) * repeating + np.sqrt(1.0 - share) * rng.standard_normal(count)
        turns = np.arange(count) * step_s / rng.uniform(*_DRIFT_S) + rng.random()
        drift = rng.uniform(*_DRIFT) * np.sin(2 * np.pi * turns)
        factors: Floats = np.exp(rng.uniform(*self.scatter) * scatter + drift)
        return factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A square wave too fast for the sensor. period_s: of a cycle, up to 6 % off; jitter: its relative standard
    deviation, drawn log-evenly.
    """

    period_s: float
    jitter: Range = (0.0005, 0.02)

    def power(self, span_s: float, rng: np.random.Generator) -> TrueLoad:
        """From 0 to span_s, beginning somewhere within a cycle."""
        period_s = self.period_s * rng.uniform(1.0 - _OFF_PERIOD, 1.0 + _OFF_PERIOD)
        jitter = np.exp(rng.uniform(*np.log(self.jitter)))
        lengths_s = period_s * np.exp(jitter * rng.standard_normal(int(1.2 * span_s / period_s) + 20))
        starts_s = np.cumsum(lengths_s) - lengths_s - period_s * rng.random()
        edges_s = np.column_stack((starts_s, starts_s + rng.uniform(0.3, 0.7) * lengths_s)).ravel()
        watts = np.tile([rng.uniform(150.0, 330.0), rng.uniform(70.0, 140.0)], len(starts_s))
        return _cut(edges_s, watts, np.tile([1.0, 0.0], len(starts_s)), span_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The same power throughout."""

    power_w: Range

    def power(self, span_s: float, rng: np.random.Generator) -> TrueLoad:
        return TrueLoad(edges_s=np.array([0.0, span_s]), power_w=rng.uniform(*self.power_w, 1), busy=np.ones(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Scenes of any length, each at a power of its own. scene_s: their mean time, drawn log-evenly."""

    scene_s: Range = (0.2, 5.0)

    def power(self, span_s: float, rng: np.random.Generator) -> TrueLoad:
        mean_s = np.exp(rng.uniform(*np.log(self.scene_s)))
        edges_s = np.cumsum(rng.exponential(mean_s, int(3 * span_s / mean_s) + 50)) - 5 * mean_s
        share = rng.random(len(edges_s))
        return _cut(edges_s, 120.0 + 280.0 * share, np.minimum(1.0, 0.4 + share), span_s)


Load = Training | Wave | Constant | Rendering


def _returning(count: int, rng: np.random.Generator) -> Floats:
    """A pattern of `count` values with mean 0 and variance 1 whose second half is mostly the first with its sign
    changed, shape (count,)."""
    half = count // 2
    opposite, alike = rng.standard_normal(half), rng.standard_normal(half)
    opposite /= np.sqrt(np.mean(opposite**2))
    alike = (alike - alike.mean()) / alike.std()
    share = rng.uniform(0.8, 0.95)
    first = np.sqrt(share) * np.concatenate((opposite, -opposite))
    pattern = first + np.sqrt(1.0 - share) * np.concatenate((alike, alike))
    scaled: Floats = pattern / pattern.std()
    return scaled


def _cut(
    edges_s: Floats,
    watts: Floats,
    busy: Floats,
    span_s: float,
    progress_t_s: Floats = _NO_TRUTH,
    progress: Floats = _NO_TRUTH,
) -> TrueLoad:
    """What lies between 0 and span_s of what begins at each edge and lasts up to the next, without empty pieces."""
    cut_s = np.append(np.clip(edges_s, 0.0, span_s), span_s)
    lasting = np.diff(cut_s) > 0
    return TrueLoad(
        edges_s=np.append(cut_s[:-1][lasting], span_s),
        power_w=watts[lasting],
        busy=busy[lasting],
        progress_t_s=progress_t_s,
        progress=progress,
    )


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


WINDOWS_S = (20.0, 40.0, 60.0)

GLOO_125M = Training(step_s=(0.65, 0.74))
GLOO_350M = Training(step_s=(1.43, 1.63))
NCCL_350M = Training(step_s=(0.40, 0.44), reduce=(0.20, 0.40), depth=(0.70, 0.15), busy=1.0)
SHORT = replace(NCCL_350M, step_s=(0.22, 0.30))
H100_DDP = Training(
    step_s=(0.230, 0.238),
    reduce=(0.20, 0.40),
    busy=1.0,
    top_w=(560.0, 640.0),
    idle_w=(250.0, 350.0),
    checkpoints=Checkpoints(length_s=(13.0, 17.0), burst=(0.5, 2.0), levels_w=(180.0, 120.0)),
)

Seen = tuple[SensorModel, Reader | StarvedReader]

_LIMIT_NOISE = (0.008, 0.024)
_UTILISATION_S = (1 / 6, 1 / 3, 1.0)  # NVML: between a sixth of a second and a second, depending on the product
_TITAN_X: Seen = (LOGGED["titan-x"], SMI_100MS)
_A100: Seen = (LOGGED["a100-logged"], FAST)
_RTX_3090: Seen = (LOGGED["rtx-3090-logged"], FAST)
_COARSE = (_A100, _RTX_3090, (LOGGED["a100-logged"], SMI_100MS), (LOGGED["rtx-4090-logged"], SMI_100MS))
_H100: Seen = (replace(LOGGED["h100-average"], noise=0.018), SMI_100MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Signals of one kind. steps: whether the sensor and the reader let the load's steps through, so that a period is
    there to be found; else whatever is called periodic is wrong. seen: sensors and readers. limit_w: the power limit.
    """

    name: str
    steps: bool
    loads: tuple[Load, ...]
    seen: tuple[Seen, ...] = (_TITAN_X,)
    limit_w: float = np.inf
    counter: bool = False

    def record(self, number: int, window_s: float, rng: np.random.Generator) -> Recording:
        """The signal of that number, window_s long: sensors and readers, and then loads, come in turn."""
        model, reader = self.seen[number % len(self.seen)]
        load = self.loads[number // len(self.seen) % len(self.loads)]
        if np.isfinite(self.limit_w):
            model = replace(model, limit_noise=rng.uniform(*_LIMIT_NOISE))
        sampled_s = float(rng.spawn(1)[0].choice(_UTILISATION_S))
        utilisation = Utilisation(window_s=sampled_s, updates=max(1, round(sampled_s / model.update_s)))
        truth = load.power(window_s + LEAD_S, rng)
        return poll(truth, model, reader, rng, limit_w=self.limit_w, utilisation=utilisation, counter=self.counter)


def _all_with(checkpoints: Checkpoints) -> tuple[Training, ...]:
    return tuple(replace(load, checkpoints=checkpoints) for load in (GLOO_125M, GLOO_350M, NCCL_350M))


FAMILIES = (
    Family(name="gloo 125M", steps=True, loads=(GLOO_125M,)),
    Family(name="gloo 350M", steps=True, loads=(GLOO_350M,)),
    Family(name="NCCL 350M", steps=True, loads=(NCCL_350M,)),
    Family(name="in bursts", steps=True, loads=_all_with(BURSTS)),
    Family(name="frequent checkpoints", steps=True, loads=_all_with(FREQUENT)),
    Family(name="checkpoints above", steps=True, loads=_all_with(ABOVE)),
    Family(name="gloo 350M at the cap", steps=True, loads=(replace(GLOO_350M, top_w=(248.0, 250.0)),), limit_w=250.0),
    Family(name="gloo 125M, counter", steps=True, loads=(GLOO_125M,), counter=True),
    Family(name="gloo, 100 ms sensors", steps=True, loads=(GLOO_125M, GLOO_350M), seen=_COARSE),
    Family(name="gloo 350M, starved", steps=True, loads=(GLOO_350M,), seen=((LOGGED["titan-x"], STARVED),)),
    Family(name="steps of 2 to 3 readings", steps=True, loads=(SHORT, replace(SHORT, checkpoints=FREQUENT))),
    Family(
        name="H100, 1 s average", steps=False, loads=(H100_DDP, replace(H100_DDP, checkpoints=FREQUENT)), seen=(_H100,)
    ),
    Family(name="wave of 20 ms", steps=False, loads=(Wave(period_s=0.020),), seen=_COARSE),
    Family(name="wave of 50 ms", steps=False, loads=(Wave(period_s=0.050),), seen=_COARSE),
    Family(name="wave of 100 ms", steps=False, loads=(Wave(period_s=0.100),), seen=_COARSE),
    Family(name="wave of 20 ms, counter", steps=False, loads=(Wave(period_s=0.020),), seen=_COARSE, counter=True),
    Family(
        name="wave of 20 ms, 20 ms sensor",
        steps=False,
        loads=(Wave(period_s=0.020),),
        seen=((LOGGED["v100-logged"], FAST),),
    ),
    Family(
        name="wave, starved",
        steps=False,
        loads=(Wave(period_s=0.020), Wave(period_s=0.1)),
        seen=((LOGGED["a100-logged"], STARVED),),
    ),
    Family(name="constant", steps=False, loads=(Constant(power_w=(100.0, 240.0)),), seen=(_TITAN_X, *_COARSE)),
    Family(
        name="constant at the cap",
        steps=False,
        loads=(Constant(power_w=(250.0, 250.0)),),
        seen=(_TITAN_X, *_COARSE),
        limit_w=250.0,
    ),
    Family(name="rendering", steps=False, loads=(Rendering(),), seen=(_TITAN_X, *_COARSE)),
)
