import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.grid import CapGrid
from autocap.strategies.model import Model
from autocap.strategies.model.belief import Belief, Costs
from autocap.strategies.model.parameters import Floats
from autocap.strategies.model.residual import POWER, ROUGH, TIME, Observation, kernels
from autocap.strategies.model.shapes import FAMILIES, shapes
from autocap.testing.curves import CLIFF, FLAT, GRID, PHYSICAL, Curve, Search, measured, search, trial_of
from autocap.testing.strategies import BUDGET, EDP, EDS, ENERGY, StrategyContract
from tests.doubles.searches import built, searched

ED2P = Metric(name="ed2p")
COST = Metric(name="cost", energy_price=0.3, hour_price=0.05)
PLATEAU = next(curve for curve in PHYSICAL if curve.name == "draws little")


model = partial(built, Model)


fit = partial(searched, Model)


class TestContract(StrategyContract):
    strategy = Model


@cache
def physical(metric: Metric) -> list[tuple[Curve, Search]]:
    """A search on every physical curve, with half a percent of noise."""
    return [(curve, fit(curve, metric, noise=0.005, seed=3)) for curve in PHYSICAL]


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ENERGY, ED2P, EDS], ids=lambda metric: metric.name)
def test_half_a_percent_of_noise_costs_little_in_a_handful_of_trials(metric: Metric) -> None:
    searches = physical(metric)
    regrets = [curve.regret(metric, found.kept_w or GRID[-1]) for curve, found in searches]
    assert np.mean(regrets) < 0.004
    assert max(regrets) < 0.03
    assert np.mean([len(found.asks) for _, found in searches]) <= 6


def test_no_cap_above_the_draw_is_tried_where_lower_ones_are_cheaper() -> None:
    for seed in range(5):
        assert max(fit(PLATEAU, noise=0.005, seed=seed).asks) <= 140


def test_it_never_goes_a_long_step_below_the_lowest_cap_measured() -> None:
    for _, found in physical(ENERGY):
        for count in range(1, len(found.asks)):
            assert found.asks[count] >= 0.85 * min(found.asks[:count])


def test_a_flat_curve_takes_few_trials() -> None:
    assert len(fit(FLAT, noise=0.005).asks) <= 8


def test_it_makes_no_more_trials_than_it_may() -> None:
    assert len(fit(CLIFF, EDP, noise=0.005, trials=2).asks) == 2


def test_a_gain_that_is_asked_for_ends_the_search_earlier() -> None:
    assert len(fit(CLIFF, gain=50.0).asks) == 1 < len(fit(CLIFF).asks)


def test_a_trial_of_no_gain_ends_with_the_cap_on_arrival_measured() -> None:
    steep = Curve(name="nothing to save", draw_w=400, memory_share=0.0, static_share=0.5, exponent=1.0)
    assert fit(steep, ED2P).kept_w == GRID[-1]


def test_a_warm_start_begins_where_the_earlier_run_found_its_best_cap() -> None:
    best_w = min(GRID, key=lambda cap_w: CLIFF.cost(EDP, cap_w))
    found = fit(CLIFF, EDP, noise=0.002, history=past(CLIFF, 1.0))
    assert abs(found.asks[0] - best_w) <= 10
    assert CLIFF.regret(EDP, found.kept_w or GRID[-1]) < 0.01


def test_a_warm_start_holds_for_iterations_of_another_length() -> None:
    longer, same = (fit(CLIFF, EDP, noise=0.002, history=past(CLIFF, factor)).asks[0] for factor in (3.0, 1.0))
    assert longer == pytest.approx(same, abs=5)


def test_a_warm_start_that_no_longer_holds_is_dropped() -> None:
    memory_bound = next(curve for curve in PHYSICAL if curve.name == "memory-bound")
    found = fit(memory_bound, EDP, noise=0.002, history=past(PHYSICAL[0], 1.0))
    assert memory_bound.regret(EDP, found.kept_w or GRID[-1]) < 0.01


def test_a_warm_start_by_which_nothing_is_to_be_gained_is_tried_where_it_costs_least() -> None:
    first, *others = past(PHYSICAL[0], 1.0)
    assert first.measurement is not None
    slow = [replace(first, measurement=_longer(first.measurement, 0.5)), *others]  # its baseline was wrong
    found = fit(PHYSICAL[0], EDP, noise=0.002, history=slow)
    assert found.asks[:2] == (GRID[-1], 200.0)
    assert PHYSICAL[0].regret(EDP, found.kept_w or GRID[-1]) < 0.01
    steep = Curve(name="nothing to save", draw_w=400, memory_share=0.0, static_share=0.5, exponent=1.0)
    assert fit(steep, EDP, noise=0.002, history=past(steep, 1.0)).kept_w == GRID[-1]
    failing = built(Model, EDP, measured(steep, GRID[-1]), history=past(steep, 1.0))
    asked = [failing.ask()]
    while asked[-1] is not None:
        failing.tell(Trial(setting=asked[-1], state=TrialState.FAILED, reason="no progress"))
        asked.append(failing.ask())
    assert asked.count(200.0) <= 1


def past(curve: Curve, factor: float) -> list[Trial]:
    """The trials of an earlier run, whose iterations were that much longer."""
    baseline = measured(curve, GRID[-1], stated=0.002)
    trials = [trial_of(EDP, measured(curve, cap_w, stated=0.002), baseline) for cap_w in (260.0, 200.0, 160.0, 140.0)]
    return [replace(trial, measurement=_longer(trial.measurement, factor)) for trial in trials if trial.measurement]


def _longer(one: Measurement, factor: float) -> Measurement:
    energy_j = factor * one.energy_per_iteration_j
    return replace(one, period_s=factor * one.period_s, energy_per_iteration_j=energy_j)


def test_it_says_what_it_expects_of_the_cap_it_recommends() -> None:
    baseline = measured(CLIFF, GRID[-1], stated=0.002)
    strategy = model(ENERGY, baseline)
    assert strategy.explain() is None
    found = search(strategy, CLIFF, ENERGY, baseline, 0.005)
    assert f"of the baseline's at {found.kept_w:g} W" in (strategy.explain() or "")
    expected = float((strategy.explain() or "").split(" ± ")[0])
    assert expected == pytest.approx(CLIFF.cost(ENERGY, found.kept_w or 0.0), abs=0.02)


@pytest.mark.parametrize("curve", PHYSICAL, ids=lambda curve: curve.name)
def test_what_it_predicts_of_caps_that_were_not_measured_is_as_right_as_it_says(curve: Curve) -> None:
    baseline = measured(curve, GRID[-1], stated=0.002)
    strategy = model(EDS, baseline)
    search(strategy, curve, EDS, baseline, 0.005)
    off = []
    for one in strategy.predict():
        truth = measured(curve, one.setting)
        off.append((truth.period_s / baseline.period_s - one.time) / (one.time * one.period_rel_stderr))
        energy = truth.energy_per_iteration_j / baseline.energy_per_iteration_j
        off.append((energy - one.energy) / (one.energy * one.energy_rel_stderr))
        expected, error = ENERGY.predicted(one, baseline).value, ENERGY.predicted(one, baseline).stderr
        assert (expected, error) == pytest.approx((one.energy, one.energy * one.energy_rel_stderr))
    assert len(off) > 8
    assert np.mean(np.abs(off) < 2) > 0.8


class Waiting(Curve):
    """A job that waits for memory: it draws 0.8 of any cap, and nothing slows down above 0.72 of the grid's highest; a
    tenth below that an iteration takes 1.3 times as long."""

    def power_w(self, cap_w: float) -> float:
        return 0.8 * cap_w

    def time_s(self, cap_w: float) -> float:
        return 1 + 3 * max(0.0, 0.72 - cap_w / GRID[-1])


WAITS = Waiting(name="waits for memory")


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
def test_a_knee_is_found_from_above(metric: Metric) -> None:
    for seed in range(3):
        found = fit(WAITS, metric, noise=0.005, seed=seed)
        assert WAITS.regret(metric, found.kept_w or GRID[-1]) < 0.02
        assert len(found.asks) <= 8
        assert min(found.asks) >= 0.5 * GRID[-1]


def test_what_stopping_may_cost_is_expected_where_it_may_cost_much() -> None:
    baseline = measured(WAITS, GRID[-1], stated=0.002)
    unsure, surer = model(EDP, baseline, trials=1), model(EDP, baseline)
    assert unsure.expected_loss() is None
    losses = []
    for strategy in (unsure, surer):
        search(strategy, WAITS, EDP, baseline, 0.005)
        losses.append(strategy.expected_loss() or (0.0, 0.0))
    assert losses[0][0] > 2 * losses[1][0] > 0
    assert min(spread for _, spread in losses) > 0


class WithoutMemory(Model):
    """No family of it describes jobs that wait for memory."""

    families = ("phases", "law")


def test_on_a_job_that_no_family_describes_it_is_not_sure() -> None:
    baseline = measured(WAITS, GRID[-1], stated=0.002)
    strategy = built(WithoutMemory, EDP, baseline)
    for cap_w in (200.0, 150.0):
        strategy.tell(trial_of(EDP, measured(WAITS, cap_w, stated=0.005), baseline))
    predictions = [one for one in strategy.predict() if 150 < one.setting < 200]
    off = [(measured(WAITS, one.setting).period_s / one.time - 1) / one.period_rel_stderr for one in predictions]
    assert np.abs(off).max() < 2.5


@pytest.mark.parametrize("metric", [ENERGY, EDP], ids=lambda metric: metric.name)
def test_below_a_cliff_no_cheap_plateau_is_expected(metric: Metric) -> None:
    baseline = measured(WAITS, GRID[-1], stated=0.002)
    strategy = built(WithoutMemory, metric, baseline)
    for cap_w in (200.0, 150.0, 170.0):
        strategy.tell(trial_of(metric, measured(WAITS, cap_w, stated=0.005), baseline))
    expected, _ = strategy.expected_loss() or (math.inf, 0.0)
    assert 0.01 < expected < 2 * WAITS.regret(metric, 200.0)


def test_a_slowdown_limit_is_come_near_to_without_waste() -> None:
    curve = PHYSICAL[2]
    found = fit(curve, BUDGET, noise=0.001)
    slowdown = curve.time_s(found.kept_w) / curve.time_s(GRID[-1])
    assert 1.03 < slowdown <= 1.05


def test_several_devices_are_judged_by_the_draw_of_one() -> None:
    def of_four(measurement: Measurement) -> Measurement:
        energy_j, power_w = 4 * measurement.energy_per_iteration_j, 4 * measurement.power_w
        return replace(measurement, setting=measurement.setting * 4, power_w=power_w, energy_per_iteration_j=energy_j)

    single = measured(CLIFF, GRID[-1], stated=0.002)
    assert model(ENERGY, of_four(single)).ask() == model(ENERGY, single).ask()


def test_a_grid_of_one_watt_steps_takes_no_more_trials_and_answers_fast() -> None:
    grid = CapGrid.stepped(100, 260, 1)
    baseline = measured(CLIFF, 260.0, stated=0.002)
    strategy = model(ENERGY, baseline, grid)
    begin_s = time.process_time()
    strategy.ask()
    assert time.process_time() - begin_s < 0.25  # some 20 ms, on a machine that does nothing else
    found = search(strategy, CLIFF, ENERGY, baseline, 0.005)
    assert len(found.asks) <= 8
    assert CLIFF.regret(ENERGY, found.kept_w or 260.0, grid) < 0.02


def test_a_failed_cap_is_left_alone() -> None:
    baseline = measured(CLIFF, GRID[-1], stated=0.002)
    strategy = model(ENERGY, baseline)
    first_w = strategy.ask()
    assert first_w is not None
    strategy.tell(Trial(setting=first_w, state=TrialState.FAILED, reason="no progress"))
    assert strategy.ask() not in (first_w, None)


def believed(power: Sequence[float], time_ratio: Sequence[float], families: Sequence[str] = tuple(FAMILIES)) -> Belief:
    """What is believed after measurements of every sixth cap, in ln against the baseline, exact to 0.2 %."""
    caps_w = np.array(GRID)
    places = range(0, len(GRID), 6)
    observed = [
        Observation(place=place, power=log_power, time=log_time, power_error=0.002, time_error=0.002)
        for place, log_power, log_time in zip(places, power, time_ratio, strict=True)
    ]
    before = [kernels(caps_w, GRID[-1], roughness) for roughness in (POWER, TIME)]
    return Belief.after(shapes(caps_w, GRID[-1], 230.0, False, families), *before, observed)


def physical_logs(bump: float) -> tuple[list[float], list[float]]:
    """ln power and ln time of a physical curve at every sixth cap, every second of them off by this."""
    curve, caps_w = PHYSICAL[2], GRID[::6]
    power = [math.log(curve.power_w(cap_w) / curve.power_w(GRID[-1])) for cap_w in caps_w]
    time_s = [math.log(curve.time_s(cap_w) / curve.time_s(GRID[-1])) for cap_w in caps_w]
    return power, [log_time + bump * (place % 2) for place, log_time in enumerate(time_s)]


def test_bumps_that_were_seen_are_expected_elsewhere_too() -> None:
    terms = EDP.terms(measured(PHYSICAL[2], GRID[-1]))
    smooth, bumpy = (
        believed(*physical_logs(bump), families=["law"]).costs(terms).spread[3::6] for bump in (0.0, 0.015)
    )  # of the family that this curve is of
    assert bumpy.mean() > 1.2 * smooth.mean()


def test_of_a_job_whose_caps_scatter_by_percents_the_others_are_expected_to_scatter_as_much() -> None:
    terms = EDP.terms(measured(PHYSICAL[2], GRID[-1]))
    rough = believed(*physical_logs(0.06))
    assert rough.share_of(ROUGH) > 0.5
    assert rough.costs(terms).spread[3::6].min() > 0.04  # two sigma are the distance between its caps, or more


def test_a_trial_of_large_error_is_expected_to_gain_little_over_the_best_cap() -> None:
    costs = believed(*physical_logs(0.0)).costs(EDP.terms(measured(PHYSICAL[2], GRID[-1])))
    best = int(costs.mean.argmin())
    every = range(len(costs.mean))
    exact, _ = costs.gain_over(best, 1.0, 0.0, 0.0, of=every)
    rough, _ = costs.gain_over(best, 1.0, 0.04, 0.1, of=every)
    assert rough.max() < 0.5 * exact.max()


def test_a_further_trial_gains_where_two_measured_caps_are_close_and_nothing_where_they_are_far_apart() -> None:
    costs = believed(*physical_logs(0.0)).costs(ENERGY.terms(measured(PHYSICAL[2], GRID[-1])))
    best = int(costs.mean.argmin())
    near, far = [best, best + 1], [best, len(GRID) - 1]
    gain = costs.gain_again(near, 0.002, 0.005).max()
    assert gain > 100 * costs.gain_again(far, 0.002, 0.005).max()
    assert gain > 1.5 * costs.gain_again(near, 0.004, 0.01).max() > 1e-12  # more than rounding


def test_what_a_further_trial_gains_is_what_drawn_outcomes_say() -> None:
    costs = believed(*physical_logs(0.0)).costs(EDP.terms(measured(PHYSICAL[2], GRID[-1])))
    best = int(costs.mean.argmin())
    places = [best, best + 1, best + 2]
    rng = np.random.default_rng(0)
    cost_cov = _covariance(costs, places)
    mean = costs.mean[places]
    drawn = rng.multivariate_normal(mean, cost_cov, 200_000)
    noise = float(costs.weight @ ((costs.by_power[:, best] * 0.002) ** 2 + (costs.by_time[:, best] * 0.005) ** 2))
    seen = drawn[:, 0] + rng.normal(0, math.sqrt(noise), len(drawn))
    after = mean + np.outer(seen - mean[0], cost_cov[0] / (cost_cov[0, 0] + noise))
    expected = mean.min() - after.min(axis=1).mean()
    assert costs.gain_again(places, 0.002, 0.005)[0] == pytest.approx(expected, rel=0.05)


def _covariance(costs: Costs, places: Sequence[int]) -> Floats:
    """Of the costs of some caps, summed curve by curve."""
    total = np.zeros((len(places), len(places)))
    for curve, weight in enumerate(costs.weight):
        off = costs.value[curve, places] - costs.mean[places]
        total += weight * np.outer(off, off)
        for slopes, posterior in ((costs.by_power, costs.power), (costs.by_time, costs.time)):
            slope = slopes[curve, places]
            total += weight * np.outer(slope, slope) * posterior.cov[posterior.kind[curve]][np.ix_(places, places)]
    return total


@pytest.mark.slow
def test_a_measured_cap_is_tried_again_only_where_noise_leaves_the_choice_open() -> None:
    def repeats(noise: float) -> int:
        found = [fit(curve, EDP, noise=noise) for curve in PHYSICAL[:4]]
        return sum(len(each.asks) - len(set(each.asks)) for each in found)

    assert repeats(0.0002) == 0 < repeats(0.005)


def test_a_repeat_that_failed_is_not_asked_for_again() -> None:
    def refuse(cap_w: float, count: int) -> bool:
        return count > 1

    repeats = 0
    for curve in PHYSICAL[:4]:
        baseline = measured(curve, GRID[-1], stated=0.0025)
        found = search(model(EDP, baseline), curve, EDP, baseline, 0.005, fails=refuse)
        assert max(found.asks.count(cap_w) for cap_w in found.asks) <= 2
        repeats += len(found.asks) - len(set(found.asks))
    assert repeats > 0
