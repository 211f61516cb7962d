"""A job on CPU packages that follows a simple physical model, under whatever limit a powercap tree holds.

A package at relative frequency x draws `static + dynamic x V(x)²` while it computes, V flat below a knee and linear
above (proportional to x where both are 0), and less while it waits for memory; an iteration takes
`compute / x + memory`. The package runs at the highest frequency whose mean power is within the limit, which it follows
as its time window lets it.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from autocap.clock import VirtualClock
from autocap.metrics import Metric
from autocap.records import Measurement, StepReading
from tests.doubles.rapl_tree import RaplTree

_STEP_S = 0.010
_LOWEST_X = 0.25
_NONE_W = 500.0  # no limit


@dataclass(frozen=True)
class CpuShape:
    """One package and what an iteration asks of it: watts at full frequency, seconds of compute there and of memory."""

    static_w: float = 22.0
    dynamic_w: float = 130.0
    knee: float = 0.4
    flat: float = 0.65  # V below the knee
    compute_s: float = 0.25
    memory_s: float = 0.10
    waiting: float = 0.45  # of the dynamic power, while it waits for memory
    memory_w: float = 8.0  # of the DRAM, idle; as much again at full speed

    def time_s(self, x: float) -> float:
        return self.compute_s / x + self.memory_s

    def dynamic(self, x: float) -> float:
        return self.dynamic_w * x * (self.flat + (1 - self.flat) * max(x - self.knee, 0.0) / (1 - self.knee)) ** 2

    def package_w(self, x: float) -> float:
        """Mean over an iteration."""
        busy = self.compute_s / x / self.time_s(x)
        return self.static_w + self.dynamic(x) * (busy + self.waiting * (1 - busy))

    def dram_w(self, x: float) -> float:
        return self.memory_w * (1 + self.time_s(1.0) / self.time_s(x))

    @cache  # noqa: B019 - shapes are few
    def frequency(self, cap_w: float) -> float:
        """The highest within a cap."""
        low, high = _LOWEST_X, 1.0
        if self.package_w(high) <= cap_w:
            return high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.package_w(middle) <= cap_w else (low, middle)
        return low

    def truth(self, cap_w: float, packages: int = 1) -> Measurement:
        """What a cap costs per iteration, without any error."""
        x = self.frequency(cap_w)
        time_s, power_w = self.time_s(x), packages * (self.package_w(x) + self.dram_w(x))
        return Measurement(
            setting=(cap_w,) * packages, start_s=0.0, duration_s=time_s, iterations=1, period_s=time_s,
            period_rel_stderr=0.0, power_w=power_w, power_rel_stderr=0.0, energy_per_iteration_j=time_s * power_w,
            energy_rel_stderr=0.0, time_energy_corr=0.0,
        )  # fmt: skip

    def regret_pct(self, metric: Metric, cap_w: float, min_w: float, original_w: float) -> float:
        """How much more a cap costs than the best of all from min_w to original_w, percent."""
        base = self.truth(original_w)
        caps_w = [*np.arange(min_w, original_w, 0.25), original_w]
        best = min(metric.cost(self.truth(float(cap)), base).value for cap in caps_w)
        return 100 * (metric.cost(self.truth(cap_w), base).value / best - 1)


class CpuJob(VirtualClock):
    """The clock of a machine whose packages run one job together: waiting lets them work, and their counters move.

    zones: of the packages. jitter: relative standard deviation of an iteration's time. iterations: how many there are.
    """

    def __init__(
        self,
        tree: RaplTree,
        zones: list[str],
        shape: CpuShape,
        *,
        seed: int = 0,
        jitter: float = 0.003,
        iterations: int = 10**9,
    ) -> None:
        super().__init__()
        self._tree, self._zones, self._shape = tree, zones, shape
        self._rng, self._jitter, self._iterations = np.random.default_rng(seed), jitter, iterations
        self._held_w = [limit_w if enabled else _NONE_W for limit_w, _, enabled in self._settings()]
        self._at = 0.0  # of the iteration, by its work
        self._factor = 1.0
        self._done, self._done_s = 0, 0.0

    @property
    def ended(self) -> bool:
        return self._done >= self._iterations

    def steps(self) -> StepReading | None:
        return StepReading(count=self._done, t_s=self._done_s) if self._done else None

    def wait_until(self, t_s: float) -> int | None:
        now_s, used_j = self.now(), [0.0, 0.0]  # of one package, which all do the same; and of its memory
        settings = self._settings()
        while now_s < t_s - 1e-9:
            step_s = min(_STEP_S, t_s - now_s)
            package_w, dram_w = self._work(now_s, step_s, settings)
            used_j = [used_j[0] + package_w * step_s, used_j[1] + dram_w * step_s]
            now_s += step_s
        for zone in self._zones:
            self._tree.use(zone, used_j[0])
            self._tree.use(f"{zone}:1", used_j[1])
        return super().wait_until(t_s)

    def _settings(self) -> list[tuple[float, int, int]]:
        return [self._tree.setting(zone) if self._tree.caps(zone) else (_NONE_W, 1, 0) for zone in self._zones]

    def _work(self, now_s: float, step_s: float, settings: list[tuple[float, int, int]]) -> tuple[float, float]:
        """Watts of a package and of its memory in a step that short."""
        shape = self._shape
        for index, (limit_w, window_us, enabled) in enumerate(settings):
            held_w = self._held_w[index]
            lag = -math.expm1(-step_s / (window_us / 4e6))
            self._held_w[index] = held_w + lag * ((limit_w if enabled else _NONE_W) - held_w)
        x = min(shape.frequency(round(held_w, 1)) for held_w in self._held_w)  # they wait for the slowest
        if not self.ended:
            self._at += step_s / (shape.time_s(x) * self._factor)
        if self._at >= 1.0:
            over_s = (self._at - 1.0) * shape.time_s(x) * self._factor
            self._at -= 1.0
            self._done, self._done_s = self._done + 1, now_s + step_s - over_s
            self._factor = math.exp(self._jitter * self._rng.standard_normal())
        waits = self._at < shape.memory_s / shape.time_s(x)
        dynamic_w = 0.0 if self.ended else shape.dynamic(x) * (shape.waiting if waits else 1.0)
        return shape.static_w + dynamic_w, shape.dram_w(x)
