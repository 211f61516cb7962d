"""The six recurring trainings of Zeus's published traces: epochs to target by batch size, time and power by cap.

What was published is in bench/data/zeus2023.json: for each batch size the epochs that some runs needed to the target
(none where a run never reached it), and for seven power limits of a Tesla V100 the seconds and the mean power of an
epoch. Here a higher cap is never slower and never draws less: single measurements that say otherwise are noise, and are
pooled with their neighbours (isotonic regression). Between the seven caps the curve is interpolated.
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
