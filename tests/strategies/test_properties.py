"""Whatever a job's trials show, a search stays on its grid, ends, and keeps only what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.registry import BUILTIN, find, option_values
from autocap.testing.strategies import METRICS
from tests.doubles import arbitrary

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


def built(name: str, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int) -> StrategyLike:
    factory = find(name)
    given_options = {"fixed": [("cap", str(grid[len(grid) // 2]))], "bayesian": [("sampler", "tpe")]}.get(name, [])
    return factory(
        grid=grid,
        metric=metric,
        baseline=baseline,
        rng=np.random.default_rng(seed),
        history=(),
        options=option_values(factory, given_options),
    )


def told(cap_w: float, metric: Metric, baseline: Measurement, rng: np.random.Generator) -> Trial:
    """Any result that a trial may have, from nothing at all to nonsense."""
    state = list(TrialState)[rng.choice(len(TrialState), p=[0.6, 0.2, 0.2])]
    if state is TrialState.FAILED:
        return Trial(cap_w=cap_w, state=TrialState.FAILED, reason="no progress")
    energy, time = np.exp(rng.normal(0, rng.choice([1e-6, 0.1, 3.0]), 2))
    error_e, error_t = rng.choice([0.0, 1e-12, 0.005, 0.5], 2)
    found = replace(
        baseline,
        cap_w=(cap_w,),
        period_s=baseline.period_s * float(time),
        energy_per_iteration_j=baseline.energy_per_iteration_j * float(energy),
        power_w=baseline.power_w * float(energy / time),
        period_rel_stderr=float(error_t),
        energy_rel_stderr=float(error_e),
        time_energy_corr=float(rng.choice([-1.0, 0.0, 1.0])),
        cap_binding=[None, True, False][rng.integers(3)],
    )
    cost = metric.cost(found, baseline)
    return Trial(cap_w=cap_w, state=state, reason=None, cost=cost.value, cost_stderr=cost.stderr, measurement=found)


@pytest.mark.parametrize("name", BUILTIN)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    metric=st.sampled_from(METRICS),
    size=st.integers(1, 20),
    baseline=arbitrary.measurements(cap_w=200.0),
)
def test_whatever_trials_show_a_search_stays_on_its_grid_and_ends(
    name: str, seed: int, metric: Metric, size: int, baseline: Measurement
) -> None:
    grid = CapGrid.stepped(200 - 5 * (size - 1), 200, 5) if size > 1 else CapGrid((200.0,))
    strategy = built(name, grid, metric, baseline, seed)
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
    assert all(one.cap_w in grid for one in predicted)
