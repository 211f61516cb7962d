"""True power of real jobs, with the truth about their steps.

The numbers are those of public logs: two TITAN X that train GPT-2-like models under gloo and NCCL, H100 under DDP, and
the fast square waves of the sensor study of SC24 (arXiv 2312.02741).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
