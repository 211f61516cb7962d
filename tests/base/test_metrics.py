"""What every metric is: 1 at the baseline, more where energy or time is more, with an error that is never negative."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.metrics import METRICS, Metric, slowdown
from autocap.records import Measurement
from tests.doubles import arbitrary
from tests.doubles.feeds import measurement

BASE = measurement(100.0, 0.5, energy_error=0.0, period_error=0.0)
EVERY = [
    Metric(name="energy"),
    Metric(name="edp"),
    Metric(name="ed2p"),
    Metric(name="eds", k=2.0),
    Metric(name="eds", k=1.5),
    Metric(name="cost", energy_price=0.3, hour_price=2.0),
]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (Metric(name="energy"), 0.8),
        (Metric(name="edp"), 0.8 * 1.1),
        (Metric(name="ed2p"), 0.8 * 1.1**2),
        (Metric(name="eds", k=2.0), 0.5 * 0.8 + 0.5 * 1.1),
        (Metric(name="eds", k=1.5), (0.5 / 1.5) * 0.8 + 1.1 / 1.5),
        (Metric(name="cost", energy_price=0.36, hour_price=3.6), (80.0 * 1e-7 + 0.55e-3) / (100.0 * 1e-7 + 0.5e-3)),
    ],
)
def test_metrics_follow_their_formulas(metric: Metric, expected: float) -> None:
    assert metric.cost(measurement(80.0, 0.55), BASE).value == pytest.approx(expected)


@pytest.mark.parametrize("price", [-0.3, -0.072, 0.0, 0.3])
@pytest.mark.parametrize("hour_price", [0.0, 3.6, -1.0])
def test_a_price_that_moves_may_fall_below_0_and_money_still_ranks_caps(price: float, hour_price: float) -> None:
    metric = Metric(name="cost", hour_price=hour_price, moving=True).at(price)

    def money(energy_j: float, period_s: float) -> float:
        return energy_j * price / 3.6e6 + period_s * hour_price / 3600

    costs = [metric.cost(measurement(*shown), BASE).value for shown in ((100.0, 0.5), (80.0, 0.55), (70.0, 0.6))]
    saved = [money(100.0, 0.5) - money(*shown) for shown in ((100.0, 0.5), (80.0, 0.55), (70.0, 0.6))]
    unit = 100.0 * abs(price) / 3.6e6 + 0.5 * abs(hour_price) / 3600
    assert costs == pytest.approx([1 - one / (unit or 1.0) for one in saved])


CARBON, COST = Metric(name="carbon", moving=True), Metric(name="cost", hour_price=2.0, moving=True)


@pytest.mark.parametrize(
    ("metric", "same"),
    [
        (
            replace(CARBON, carbon_price=100.0, hour_price=3.6).at(400.0),
            Metric(name="cost", energy_price=0.04, hour_price=3.6),
        ),
        (CARBON.at(400.0), Metric(name="energy")),
        (COST, Metric(name="eds", k=2.0)),  # without a value energy and time count evenly, or energy alone
        (CARBON, Metric(name="energy")),
    ],
)
def test_a_metric_that_moves_weighs_as_its_value_says(metric: Metric, same: Metric) -> None:
    assert metric.terms(BASE) == same.terms(BASE)


@pytest.mark.slow
@pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
@pytest.mark.parametrize("corr", [-0.9, 0.0, 0.9])
def test_the_stated_error_is_the_scatter_of_noisy_measurements(metric: Metric, corr: float) -> None:
    rng = np.random.default_rng(7)
    draws = rng.multivariate_normal([0, 0], [[1, corr], [corr, 1]], size=4000) * [0.01, 0.006]
    values = [metric.cost(measurement(80 * math.exp(e), 0.55 * math.exp(t)), BASE).value for e, t in draws]
    stated = metric.cost(measurement(80.0, 0.55, energy_error=0.01, period_error=0.006, corr=corr), BASE)
    assert stated.stderr == pytest.approx(np.std(values), rel=0.05)


def test_versus_includes_the_error_of_the_baseline_and_cost_does_not() -> None:
    metric = Metric(name="energy")
    noisy = measurement(100.0, 0.5, energy_error=0.004)
    trial = measurement(80.0, 0.55, energy_error=0.003)
    assert metric.cost(trial, noisy).stderr == pytest.approx(0.8 * 0.003)
    assert metric.versus(trial, noisy).stderr == pytest.approx(0.8 * 0.005)


def test_a_cap_is_allowed_only_when_the_upper_end_of_its_two_sigma_range_passes() -> None:
    metric = Metric(name="energy", max_slowdown=0.05)
    assert metric.allows(measurement(80, 0.5 * 1.04, period_error=0.004), BASE)
    assert not metric.allows(measurement(80, 0.5 * 1.04, period_error=0.006), BASE)
    assert not metric.forbids(measurement(80, 0.5 * 1.06, period_error=0.006), BASE)
    assert metric.forbids(measurement(80, 0.5 * 1.07, period_error=0.006), BASE)
    assert slowdown(measurement(80, 0.55), BASE)[0] == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "eds", "k": math.inf}, "k is inf"),
        ({"name": "energy", "moving": True}, "prices belong to the metric cost, not to energy"),
        ({"name": "carbon"}, "the metric carbon needs the carbon of a kWh, in grams"),
        ({"name": "cost", "energy_price": math.nan, "moving": True}, "prices are nan per kWh"),
        ({"name": "energy", "max_slowdown": 0.0}, "the largest slowdown is 0.0; it must be above 0"),
    ],
)
def test_a_metric_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Metric(**given)


prices = st.floats(min_value=0.01, max_value=100.0)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    name = draw(st.sampled_from(METRICS))
    return Metric(
        name=name,
        k=draw(st.floats(min_value=1.01, max_value=100.0)) if name == "eds" else None,
        energy_price=draw(prices) if name in ("cost", "carbon") else None,
        hour_price=draw(prices) if name in ("cost", "carbon") else None,
        moving=name == "carbon",
        max_slowdown=draw(st.none() | st.floats(min_value=0.001, max_value=10.0)),
    )


@pytest.mark.slow
@given(metrics(), arbitrary.measurements())
def test_it_is_1_at_the_baseline_and_no_claim_is_surer_than_the_measurement(metric: Metric, one: Measurement) -> None:
    assert metric.cost(one, one).value == pytest.approx(1.0)
    assert 0 <= metric.cost(one, one).stderr <= metric.versus(one, one).stderr


@pytest.mark.slow
@given(
    metrics(), arbitrary.ratios, arbitrary.ratios, st.floats(min_value=1.0, max_value=10.0), arbitrary.measurements()
)
def test_more_energy_or_more_time_never_costs_less(metric, energy, time, factor, baseline) -> None:
    value = metric.value(energy, time, baseline)
    assert metric.value(energy * factor, time, baseline) >= value * (1 - 1e-12)
    assert metric.value(energy, time * factor, baseline) >= value * (1 - 1e-12)
    assert value > 0


@pytest.mark.slow
@given(metrics(), arbitrary.measurements(), arbitrary.measurements())
def test_no_cap_is_both_allowed_and_forbidden_and_an_exact_one_is_either(metric, one, baseline) -> None:
    assert not (metric.allows(one, baseline) and metric.forbids(one, baseline))
    exact, base = replace(one, period_rel_stderr=0.0), replace(baseline, period_rel_stderr=0.0)
    assert metric.allows(exact, base) != metric.forbids(exact, base)
    limit = metric.max_slowdown
    assert metric.allows(exact, base) == (limit is None or exact.period_s / base.period_s <= 1 + limit)
