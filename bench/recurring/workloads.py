"""The six recurring trainings of Zeus's published traces: epochs to target by batch size, time and power by cap.

What was published is in bench/data/zeus2023.json: for each batch size the epochs that some runs needed to the target
(none where a run never reached it), and for seven power limits of a Tesla V100 the seconds and the mean power of an
epoch. Here a higher cap is never slower and never draws less: single measurements that say otherwise are noise, and are
pooled with their neighbours (isotonic regression). Between the seven caps the curve is interpolated.

Made-up recurring trainings in the shape of the published ones, one for each seed: nothing was chosen on them.

Epochs grow with the batch size b by 1 + b / b_c, for a critical b_c of its own (McCandlish et al., "An empirical model
of large-batch training", 2018), each batch size off by some 5 %, which makes more than one valley; five runs of each
scatter by 2 to 20 %. Where three times the fewest epochs are needed, a run in three never reaches the target. An
iteration takes some host time whatever its batch, and so small batches take longer for an epoch and leave the card
idle. A cap lowers the clock x; computing takes 1 / x, and draws a power of x.

How the epochs to target move over the recurrences of a job. Made up: the traces have no drift.

The best batch size of the first recurrence keeps its epochs; on the side of it that has more batch sizes the others
need fewer than before, by (b / best) to the power 0.35, on the other side more. So the best one moves that way.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.metrics import Metric
from autocap.strategies.grid import CapGrid
from bench.strategies.curves import CapCurve, Floats

_FILE = Path(__file__).parent.parent / "data" / "zeus2023.json"
_ETA = 0.5  # of Zeus's cost, as in its evaluation
_J_PER_KWH, _S_PER_HOUR = 3.6e6, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a run costs: energy · joules + time · seconds."""

    name: str
    energy: float
    time: float

    @property
    def metric(self) -> Metric:
        """The same as autocap's own metric."""
        if not self.time:
            return Metric(name="energy")
        return Metric(name="cost", energy_price=self.energy * _J_PER_KWH, hour_price=self.time * _S_PER_HOUR)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One recurring training. epochs: for each batch size those of the published runs, NaN where the target was missed.

    curves: for each batch size power and seconds of an epoch against the cap. default: a place in batch_sizes.
    max_epochs: when a run gives up.
    """

    name: str
    batch_sizes: tuple[int, ...]
    default: int
    epochs: tuple[Floats, ...]
    curves: tuple[CapCurve, ...]
    max_epochs: int

    @property
    def grid(self) -> CapGrid:
        """The caps that may be set, of which those of the traces are some."""
        return self.curves[0].grid

    @cached_property
    def power_and_time(self) -> tuple[Floats, Floats]:
        """Watts and seconds of an epoch, shape (batch sizes, caps of the grid) each."""
        both = [curve.at(self.grid) for curve in self.curves]
        return np.array([power_w for power_w, _ in both]), np.array([time_s for _, time_s in both])

    @cached_property
    def mean_epochs(self) -> Floats:
        """Expected epochs to target, shape (batch sizes,); infinite where some run never reached it."""
        return np.array([math.inf if np.isnan(runs).any() else runs.mean() for runs in self.epochs])

    def per_epoch(self, price: Price) -> Floats:
        """What an epoch costs, shape (batch sizes, caps of the grid)."""
        power_w, time_s = self.power_and_time
        return (price.energy * power_w + price.time) * time_s


@lru_cache(maxsize=1)
def workloads() -> dict[str, Workload]:
    """All of the file, by name."""
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    caps_w = tuple(float(cap_w) for cap_w in data["caps_w"])
    made = {}
    for name, one in data["workloads"].items():
        sizes = {int(size): row for size, row in one["batch_sizes"].items()}
        made[name] = Workload(
            name=name,
            batch_sizes=tuple(sizes),
            default=list(sizes).index(one["default"]),
            epochs=tuple(np.array(row["epochs"], dtype=np.float64) for row in sizes.values()),
            curves=tuple(
                CapCurve(
                    name=f"{name}/{size}",
                    caps_w=caps_w,
                    powers_w=tuple(rising(np.array(row["power_w"])).tolist()),
                    times_s=tuple(rising(np.array(row["time_s"])[::-1])[::-1].tolist()),
                )
                for size, row in sizes.items()
            ),
            max_epochs=one["max_epochs"],
        )
    return made


def prices() -> dict[str, Price]:
    """By name: energy alone, and the cost of Zeus, η · energy + (1 - η) · largest limit · time with η = 0.5."""
    most_w = next(iter(workloads().values())).grid[-1]
    both = (Price(name="energy", energy=1.0, time=0.0), Price(name="zeus", energy=_ETA, time=(1 - _ETA) * most_w))
    return {price.name: price for price in both}


def rising(values: NDArray[np.float64]) -> Floats:
    """The nearest values that never fall (least squares): isotonic regression by its minimax formula."""
    count = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means = np.full((count, count), np.nan)  # of values[first : last + 1]
    for first in range(count):
        means[first, first:] = (sums[first + 1 :] - sums[first]) / np.arange(1, count - first + 1)
    least = [np.min(means[: place + 1, place:], axis=1) for place in range(count)]
    return np.array([np.max(some) for some in least])


_CAPS_W = (100.0, 125.0, 150.0, 175.0, 200.0, 225.0, 250.0)
_CLOCKS = np.linspace(0.3, 1.0, 701)
_IDLE_W = 35.0
_PATIENCE = 20  # times the epochs of the default: it reaches the target whatever has drifted
_RUNS = 5
_BUMPS = 0.05
_MOST_GROWTH, _MISSED = 3.0, 1 / 3


@lru_cache(maxsize=1)
def made_up(seed: int) -> Workload:
    """The training of that seed."""
    rng = np.random.default_rng([seed, 2])
    sizes = 2 ** (int(rng.integers(3, 7)) + np.arange(int(rng.integers(5, 11))))
    critical = sizes[0] * (sizes[-1] / sizes[0]) ** rng.uniform(0.2, 1.0)
    needed = (
        np.exp(rng.uniform(*np.log([4, 100])))
        * (1 + sizes / critical)
        * np.exp(_BUMPS * rng.standard_normal(len(sizes)))
    )
    scatter = np.exp(rng.uniform(*np.log([0.02, 0.2])))
    epochs = np.maximum(np.rint(needed[:, None] * np.exp(scatter * rng.standard_normal((len(sizes), _RUNS)))), 1.0)
    missed = (needed > _MOST_GROWTH * needed.min())[:, None] & (rng.random(epochs.shape) < _MISSED)
    epochs[missed] = np.nan
    default = int(rng.choice(np.flatnonzero(~np.isnan(epochs).any(axis=1))))
    compute_s = float(np.exp(rng.uniform(*np.log([10, 3000]))))
    half = sizes[0] * (sizes[-1] / sizes[0]) ** rng.uniform(0.0, 0.7)  # half of the time is the host's
    full_w, power = rng.uniform(200, 280), rng.uniform(1.8, 2.6)
    curves = []
    for size in sizes:
        powers_w, times_s = _curve(compute_s, compute_s * half / size, full_w, power)
        curves.append(
            CapCurve(name=f"made-up-{seed}/{size}", caps_w=_CAPS_W, powers_w=tuple(powers_w), times_s=tuple(times_s))
        )
    return Workload(
        name="made-up",
        batch_sizes=tuple(int(size) for size in sizes),
        default=default,
        epochs=tuple(epochs),
        curves=tuple(curves),
        max_epochs=_PATIENCE * int(epochs[default].max()),
    )


def _curve(compute_s: float, host_s: float, full_w: float, power: float) -> tuple[Floats, Floats]:
    """Watts and seconds of an epoch at each cap, shape (caps,): the highest clock that the cap allows."""
    time_s = host_s + compute_s / _CLOCKS
    drawn_w = _IDLE_W + (full_w - _IDLE_W) * compute_s / _CLOCKS / time_s * _CLOCKS**power
    clocks = [np.searchsorted(drawn_w, cap_w, side="right") - 1 for cap_w in _CAPS_W]
    at = np.clip(np.array(clocks), 0, None)
    return drawn_w[at], time_s[at]


DRIFTS = ("none", "gradual", "sudden")
_POWER = 0.35
_BEGINS, _ENDS, _SUDDEN = 15, 30, 25  # recurrences


def factors(workload: Workload, best: int, drift: str, recurrences: int) -> Floats:
    """By what the epochs of each recurrence and batch size are multiplied, shape (recurrences, batch sizes)."""
    number = np.arange(recurrences)
    if drift == "none":
        done = np.zeros(recurrences)
    elif drift == "gradual":
        done = np.clip((number - _BEGINS) / (_ENDS - _BEGINS), 0, 1)
    else:
        done = (number >= _SUDDEN).astype(np.float64)
    sizes = np.array(workload.batch_sizes, dtype=np.float64)
    upward = len(sizes) - 1 - best >= best
    ratios = sizes[best] / sizes if upward else sizes / sizes[best]
    return np.asarray(ratios[None, :] ** (_POWER * done[:, None]))
