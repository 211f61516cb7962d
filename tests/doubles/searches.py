"""A strategy of a kind, and whole searches with it over a made-up curve."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import StrategyFactory, option_values
from autocap.testing.curves import GRID, Curve, Search, measured, search
from autocap.testing.strategies import ENERGY


def built(
    kind: StrategyFactory,
    metric: Metric,
    baseline: Measurement,
    grid: CapGrid = GRID,
    history: Sequence[Trial] = (),
    seed: int = 0,
    **options: OptionScalar,
) -> Any:
    """With its defaults but for these options."""
    values = option_values(kind, [(name, str(value)) for name, value in options.items()], grid.knob)
    rng = np.random.default_rng(seed)
    return kind(grid=grid, metric=metric, baseline=baseline, rng=rng, history=history, options=values)


def searched(
    kind: StrategyFactory, curve: Curve, metric: Metric = ENERGY, noise: float = 0.0, seed: int = 0, **given: Any
) -> Search:
    """given: what it is built with."""
    baseline = measured(curve, given.get("grid", GRID)[-1], stated=noise / 2)
    return search(built(kind, metric, baseline, **given), curve, metric, baseline, noise, seed=seed)
