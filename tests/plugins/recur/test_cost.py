"""What a whole run costs by a metric, and by which metrics runs are not compared."""

import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.plugins.recur.record import Spent, cost, require_metric


def test_a_price_counts_by_the_whole_run_and_not_where_it_moves() -> None:
    fixed = Metric(name="cost", energy_price=0.36, hour_price=1.8)
    require_metric(fixed)
    assert cost(Spent(energy_j=1e6, time_s=1000.0, devices=2, most_w=500.0), fixed) == pytest.approx(0.1 + 1.0)
    with pytest.raises(UsageError, match="give --energy-price a number"):
        require_metric(Metric(name="cost", hour_price=1.8, moving=True))
    with pytest.raises(UsageError, match="has no sum over a run"):
        require_metric(Metric(name="carbon", carbon_price=100.0, hour_price=1.8, moving=True))
