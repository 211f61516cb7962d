"""Whatever a job's trials show, a search stays on its grid, ends, and keeps only what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.grid import CapGrid
from autocap.testing.curves import CLIFF, FALLING, GRID, PHYSICAL, RISING, measured, trial_of
from autocap.testing.strategies import EDP, EDS, ENERGY, METRICS
from bench.simulation.jobs import every, find
from tests.doubles import arbitrary
from tests.doubles.searches import built, searched

milliwatts = st.integers(50_000, 500_000)


@given(milliwatts, milliwatts, st.integers(500, 100_000))
def test_a_stepped_grid_ascends_within_its_bounds_both_of_them_in_it_and_no_gap_is_wider_than_a_step(
    one_mw: int, other_mw: int, step_mw: int
) -> None:
    min_w, max_w, step_w = min(one_mw, other_mw) / 1000, max(one_mw, other_mw) / 1000, step_mw / 1000
    grid = CapGrid.stepped(min_w, max_w, step_w)
    assert (grid[0], grid[-1]) == (min_w, max_w)
    gaps_w = np.diff(grid)
    assert np.all(gaps_w > 0)
    assert np.all(gaps_w <= step_w + 1e-6)
    assert np.allclose(gaps_w[1:], step_w)  # from the top down, so only the lowest gap may be narrower


@given(st.sets(st.floats(min_value=1.0, max_value=1000.0), min_size=1), st.floats(min_value=-10.0, max_value=2000.0))
def test_the_nearest_cap_of_a_grid_is_no_farther_than_any_other(caps_w: set[float], asked_w: float) -> None:
    grid = CapGrid(tuple(sorted(caps_w)))
    nearest_w = grid.nearest(asked_w)
    assert nearest_w in grid
    assert all(abs(nearest_w - asked_w) <= abs(cap_w - asked_w) for cap_w in grid)


def told(cap_w: float, metric: Metric, baseline: Measurement, rng: np.random.Generator) -> Trial:
    """Any result that a trial may have, from nothing at all to nonsense."""
    state = list(TrialState)[rng.choice(len(TrialState), p=[0.6, 0.2, 0.2])]
    if state is TrialState.FAILED:
        return Trial(setting=cap_w, state=TrialState.FAILED, reason="no progress")
    energy, time = np.exp(rng.normal(0, rng.choice([1e-6, 0.1, 3.0]), 2))
    error_e, error_t = rng.choice([0.0, 1e-12, 0.005, 0.5], 2)
    found = replace(
        baseline,
        setting=(cap_w,),
        period_s=baseline.period_s * float(time),
        energy_per_iteration_j=baseline.energy_per_iteration_j * float(energy),
        power_w=baseline.power_w * float(energy / time),
        period_rel_stderr=float(error_t),
        energy_rel_stderr=float(error_e),
        time_energy_corr=float(rng.choice([-1.0, 0.0, 1.0])),
        cap_binding=[None, True, False][rng.integers(3)],
    )
    cost = metric.cost(found, baseline)
    return Trial(setting=cap_w, state=state, reason=None, cost=cost.value, cost_stderr=cost.stderr, measurement=found)


@pytest.mark.parametrize("name", every())
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    metric=st.sampled_from(METRICS),
    size=st.integers(1, 20),
    baseline=arbitrary.measurements(cap_w=200.0),
)
def test_whatever_trials_show_a_search_stays_on_its_grid_and_ends(name, seed, metric, size, baseline) -> None:
    grid = CapGrid.stepped(200 - 5 * (size - 1), 200, 5) if size > 1 else CapGrid((200.0,))
    options = {"fixed": {"cap": grid[len(grid) // 2]}, "bayesian": {"sampler": "tpe"}}.get(name, {})
    strategy = built(find(name), metric, baseline, grid, seed=seed, **options)
    rng = np.random.default_rng(seed)
    complete = set()
    for _ in range(4 * len(grid) + 20):
        cap_w = strategy.ask()
        if cap_w is None:
            break
        assert cap_w in grid
        trial = told(cap_w, metric, baseline, rng)
        complete |= {cap_w} if trial.state is TrialState.COMPLETE else set()
        strategy.tell(trial)
        assert strategy.recommend() in {None, *complete}
    assert strategy.ask() is None
    predicted = getattr(strategy, "predict", tuple)()
    assert all(one.setting in grid for one in predicted)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
@pytest.mark.parametrize(
    ("name", "seeds", "worst", "asked", "fewer"),
    [
        ("golden", 8, 0.03, lambda found: len(set(found.asks)), len(GRID) / 3),
        ("bandit", 2, 0.05, lambda found: len(found.asks), 10),
        ("linear", 4, 0.01, lambda found: len(set(found.asks)), len(GRID) + 1),
    ],
)
def test_half_a_percent_of_noise_costs_little_and_few_trials(name, seeds, worst, asked, fewer, metric) -> None:
    searches = [
        (curve, searched(find(name), curve, metric, noise=0.005, seed=seed))
        for curve in PHYSICAL
        for seed in range(seeds)
    ]
    regrets = [curve.regret(metric, found.kept_w or GRID[-1]) for curve, found in searches]
    assert np.mean(regrets) < 0.004
    assert max(regrets) < worst
    assert np.mean([asked(found) for _, found in searches]) < fewer


@pytest.mark.parametrize(("name", "noise"), [("golden", 0.0), ("bandit", 0.005)])
def test_either_end_of_the_grid_is_reached(name: str, noise: float) -> None:
    assert searched(find(name), FALLING, noise=noise).kept_w == 100.0
    assert searched(find(name), RISING, noise=noise).kept_w == 260.0


@pytest.mark.parametrize(("name", "options"), [("golden", {}), ("bandit", {}), ("bayesian", {"sampler": "tpe"})])
def test_a_warm_start_begins_at_the_cheapest_cap_of_its_history(name: str, options: dict[str, str]) -> None:
    baseline = measured(CLIFF, GRID[-1])
    history = [trial_of(ENERGY, measured(CLIFF, cap_w), baseline) for cap_w in (240.0, 133.0, 180.0)]
    assert built(find(name), ENERGY, baseline, history=history, **options).ask() == 135.0
