"""What a search is made with outside of a session."""

from collections.abc import Sequence

import numpy as np

from autocap import registry as packages
from autocap.controller.search import NewStrategy
from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies import registry
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.registry import StrategyFactory

# How other tools search, by the names that the benchmarks give them.
COMPARISONS = {
    "depo-linear": "bench.strategies.baselines:DepoLinear",
    "depo-golden": "bench.strategies.baselines:DepoGolden",
    "gpoeo": "bench.strategies.baselines:Gpoeo",
    "zeus-scan": "bench.strategies.baselines:ZeusScan",
}


def every() -> list[str]:
    """The names of all that come with autocap, and of those to compare with."""
    return [*packages.ours("strategies"), *COMPARISONS]


def find(name: str) -> StrategyFactory:
    """As the registry of users, and those to compare with by their names too."""
    return registry.find(COMPARISONS.get(name, name))


def new_strategy(
    factory: StrategyFactory,
    grid: CapGrid,
    seed: int = 0,
    options: Sequence[tuple[str, str]] = (),
    past: Sequence[Trial] = (),
) -> NewStrategy:
    """As a controller takes it. grid: the whole one. options: by name, as on a command line. past: trials of earlier
    runs, which are its history until there are some of this one."""
    values = registry.option_values(factory, options, grid.knob)

    def make(baseline: Measurement, before: Sequence[Trial], caps: CapGrid, metric: Metric) -> StrategyLike:
        rng, now = np.random.default_rng(seed), registry.allowed_now(factory, values, grid, caps)
        return factory(grid=caps, metric=metric, baseline=baseline, rng=rng, history=before or past, options=now)

    return make
