import pytest

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.errors import UsageError
from autocap.events import TrialStarted
from autocap.records import TrialState
from autocap.strategies import Needs, registry
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import needs_of
from autocap.strategies.registry import option_values
from autocap.testing.curves import CLIFF, FALLING, GRID, PHYSICAL, RISING, measured, search, trial_of
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.strategies import ENERGY, StrategyContract
from bench.simulation.jobs import COMPARISONS, every, find, tune
from bench.strategies.baselines import DepoGolden, DepoLinear, Gpoeo, ZeusScan
from tests.doubles.searches import built, searched

Baseline = type[DepoGolden] | type[DepoLinear] | type[Gpoeo] | type[ZeusScan]
WATT_BY_WATT = CapGrid.stepped(100, 260, 1)


class TestDepoLinear(StrategyContract):
    strategy = DepoLinear


class TestDepoGolden(StrategyContract):
    strategy = DepoGolden


class TestZeusScan(StrategyContract):
    strategy = ZeusScan


class TestGpoeo(StrategyContract):
    strategy = Gpoeo


def test_depo_linear_takes_eleven_windows_from_the_top_to_the_bottom() -> None:
    assert searched(DepoLinear, CLIFF, grid=WATT_BY_WATT).asks == tuple(float(cap_w) for cap_w in range(260, 99, -16))


def test_depo_golden_takes_eight_windows_and_then_measures_the_middle_that_it_returns() -> None:
    found = searched(DepoGolden, CLIFF, grid=WATT_BY_WATT)
    assert found.asks[:4] == (161.0, 199.0, 138.0, 123.0)
    assert len(found.asks) == 9
    assert found.kept_w == found.asks[-1]
    assert min(abs(cap_w - found.asks[-1]) for cap_w in found.asks[:-1]) <= 160 / 25 / 2


def test_depo_golden_keeps_the_nearest_cap_where_its_middle_cannot_be_measured() -> None:
    baseline = measured(CLIFF, 260.0)
    middle_w = searched(DepoGolden, CLIFF, grid=WATT_BY_WATT).asks[-1]
    strategy = built(DepoGolden, ENERGY, baseline, grid=WATT_BY_WATT)
    found = search(strategy, CLIFF, ENERGY, baseline, fails=lambda cap_w, count: cap_w == middle_w)
    assert 0 < abs(found.kept_w - middle_w) <= 5


def test_zeus_scans_every_25_watts_from_the_highest_cap() -> None:
    assert searched(ZeusScan, CLIFF).asks == (260.0, 235.0, 210.0, 185.0, 160.0, 135.0, 110.0)


def test_gpoeo_widens_its_strides_until_the_cost_rises_and_divides_what_lies_between() -> None:
    found = searched(Gpoeo, CLIFF)
    assert found.asks[:2] == (180.0, 190.0)
    assert found.asks[2:5] == (170.0, 150.0, 120.0)
    assert CLIFF.regret(ENERGY, found.kept_w or GRID[-1]) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "iterations", "first_s"),
    [
        ("depo-linear", {2, 3}, 3.5 * 0.5),  # 1.2 s of iterations of 0.5 s and, at the lowest caps, 0.9 s
        ("zeus-scan", {40}, 50.5 * 0.5),
        ("gpoeo", {2}, 4.0 + 2.5 * 0.57),  # in the middle of the range
    ],
)
def test_a_baseline_measures_in_its_own_windows_and_prunes_nothing(name, iterations, first_s) -> None:
    profile = profiles.load("quadro-rtx-6000/resnet50")
    outcome = tune(SimulatedJob(profile=profile), TuneConfig(metric=ENERGY), name, stop_when_held=True)
    trials = [event.trial for event in outcome.trials]
    begun_s = next(event.t_s for event in outcome.log.events if isinstance(event, TrialStarted))
    assert {round(trial.measurement.iterations) for trial in trials if trial.measurement} == iterations
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert outcome.trials[0].t_s - begun_s == pytest.approx(first_s, abs=0.6)


@pytest.mark.parametrize("kind", [DepoLinear, DepoGolden, ZeusScan, Gpoeo])
def test_none_of_them_measures_a_cap_twice(kind: Baseline) -> None:
    for curve in (*PHYSICAL, FALLING, RISING):
        asks = searched(kind, curve, noise=0.005).asks
        assert len(asks) == len(set(asks))


def test_gpoeo_begins_at_the_cheapest_cap_of_its_history() -> None:
    baseline = measured(CLIFF, GRID[-1])
    history = [trial_of(ENERGY, measured(CLIFF, cap_w), baseline) for cap_w in (240.0, 133.0, 180.0)]
    assert built(Gpoeo, ENERGY, baseline, history=history).ask() == 135.0


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_baseline_has_no_options_needs_the_power_limit_and_is_no_choice_of_a_users(name: str) -> None:
    assert find(name) in (DepoLinear, DepoGolden, ZeusScan, Gpoeo)
    assert name in every()
    assert option_values(find(name), []) == {}
    assert needs_of(find(name)) is Needs.POWER_LIMIT
    refusal = rf"strategy '{name}' is there to compare with, in `python -m bench strategies` .*; choose one of model, "
    with pytest.raises(UsageError, match=refusal):
        registry.find(name)
