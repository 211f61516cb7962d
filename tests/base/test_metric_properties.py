"""What every metric is: 1 at the baseline, more where energy or time is more, with an error that is never negative."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.metrics import METRICS, Metric
from autocap.records import Measurement
from tests.doubles import arbitrary

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


@given(metrics(), arbitrary.measurements())
def test_it_is_1_at_the_baseline_and_no_claim_is_surer_than_the_measurement(metric: Metric, one: Measurement) -> None:
    assert metric.cost(one, one).value == pytest.approx(1.0)
    assert 0 <= metric.cost(one, one).stderr <= metric.versus(one, one).stderr


@given(
    metrics(), arbitrary.ratios, arbitrary.ratios, st.floats(min_value=1.0, max_value=10.0), arbitrary.measurements()
)
def test_more_energy_or_more_time_never_costs_less(metric, energy, time, factor, baseline) -> None:
    value = metric.value(energy, time, baseline)
    assert metric.value(energy * factor, time, baseline) >= value * (1 - 1e-12)
    assert metric.value(energy, time * factor, baseline) >= value * (1 - 1e-12)
    assert value > 0


@given(metrics(), arbitrary.measurements(), arbitrary.measurements())
def test_no_cap_is_both_allowed_and_forbidden_and_an_exact_one_is_either(metric, one, baseline) -> None:
    assert not (metric.allows(one, baseline) and metric.forbids(one, baseline))
    exact, base = replace(one, period_rel_stderr=0.0), replace(baseline, period_rel_stderr=0.0)
    assert metric.allows(exact, base) != metric.forbids(exact, base)
    limit = metric.max_slowdown
    assert metric.allows(exact, base) == (limit is None or exact.period_s / base.period_s <= 1 + limit)
