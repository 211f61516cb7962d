"""The closed loop over all published profiles, and through the command line."""

import numpy as np
import pytest

from autocap.config import TuneConfig
from autocap.metrics import Metric
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import regret_pct, seed_profiles, tune

EDS = TuneConfig(metric=Metric(name="eds", k=2.0))


@pytest.mark.slow
def test_the_kept_cap_is_near_the_best_for_every_profile() -> None:
    regrets = {}
    for profile in seed_profiles():
        outcome = tune(SimulatedJob(profile=profile), EDS, "golden", seed=11, stop_when_held=True)
        assert outcome.decided.confirmed, outcome.decided.reason
        original_w = profile.cap_range.default_w
        regrets[profile.name] = regret_pct(profile, EDS.metric, outcome.grid, outcome.final_cap_w, original_w)
    assert len(regrets) == 12
    assert np.mean(list(regrets.values())) < 0.4
    assert max(regrets.values()) < 1.0, max(regrets.items(), key=lambda item: item[1])
