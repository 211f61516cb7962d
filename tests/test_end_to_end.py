"""The closed loop over all published profiles, and through the command line."""

import numpy as np
import pytest

from autocap.config import TuneConfig
from autocap.devices.simulated.device import SimulatedJob
from autocap.metrics import Metric
from bench.simulation.jobs import regret_pct, seed_profiles, tune

EDP_BY_15_W = TuneConfig(metric=Metric(name="edp"), step_w=15.0)  # linear measures every cap: at 5 W it takes seconds
EDS = TuneConfig(metric=Metric(name="eds", k=2.0))


@pytest.mark.parametrize(
    ("strategy", "config", "every"), [("linear", EDP_BY_15_W, 4), ("golden", EDS, 1)], ids=["linear", "golden"]
)
def test_the_kept_cap_is_near_the_best_for_every_profile(strategy: str, config: TuneConfig, every: int) -> None:
    regrets = {}
    for profile in seed_profiles()[::every]:
        outcome = tune(SimulatedJob(profile=profile), config, strategy, seed=11, stop_when_held=True)
        assert outcome.decided is not None
        assert outcome.decided.confirmed, outcome.decided.reason
        original_w = profile.cap_range.default_w
        regrets[profile.name] = regret_pct(profile, config.metric, outcome.grid, outcome.final_cap_w, original_w)
    assert len(regrets) == 12 / every
    assert np.mean(list(regrets.values())) < 0.4
    assert max(regrets.values()) < 1.0, max(regrets.items(), key=lambda item: item[1])
