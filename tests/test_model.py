from collections.abc import Sequence

import numpy as np

from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.registry import option_values
from autocap.strategies.model import Model
from autocap.strategy import CapGrid, OptionScalar
from tests.curves import GRID
from tests.strategy_contract import StrategyContract


def model(
    metric: Metric,
    baseline: Measurement,
    grid: CapGrid = GRID,
    history: Sequence[Trial] = (),
    **options: OptionScalar,
) -> Model:
    values = option_values(Model, []) | options
    rng = np.random.default_rng(0)
    return Model(grid=grid, metric=metric, baseline=baseline, rng=rng, history=history, options=values)


class TestContract(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Model:
        return model(metric, baseline, grid, history)
