"""A trial at another cap for a period that nothing else proves, in whole jobs in virtual time."""

from dataclasses import replace

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.devices.simulated.job import SimulatedJob
from autocap.devices.simulated.node import SimulatedNode
from autocap.metrics import Metric
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.period.ratio import Tried
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.outcomes import announced, warnings

EDP = Metric(name="edp")
PROFILE = profiles.load("tesla-v100/resnet50")  # 0.34 s, little more than three updates of the sensor
NODE = SimulatedNode(sensor=PRESETS["rtx-3090"], energy_counter=False)


def tuned(config: TuneConfig, *, end_s: float = 1200.0) -> Outcome:
    progress = PeriodProgress(PRESETS["rtx-3090"].info())
    job = SimulatedJob(profile=PROFILE, jitter=0.01)
    return tune(job, config, "model", node=NODE, seed=1, progress=progress, end_s=end_s, stop_when_held=True)


def test_a_period_that_may_be_a_beat_is_proven_by_one_trial_and_tuned_by() -> None:
    outcome = tuned(TuneConfig(metric=EDP))
    trial, back = announced(outcome, events.CapSet)[:2]
    limit_w = PROFILE.cap_range.default_w
    assert trial.setting[0] < limit_w
    assert back.setting == (limit_w,)
    assert back.t_s - trial.t_s < 30.0
    assert warnings(outcome)[0].startswith("a period of 0.34")
    found = announced(outcome, events.ProgressFound)[0]
    assert found.t_s > back.t_s  # nothing is counted before
    assert outcome.decided.confirmed
    assert regret_pct(PROFILE, EDP, outcome.grid, outcome.final_cap_w, limit_w) < 1.0


@pytest.mark.parametrize(
    "config", [TuneConfig(metric=EDP, observe=True), TuneConfig(metric=replace(EDP, max_slowdown=0.05))]
)
def test_nothing_is_tried_where_nothing_may_be_set_or_no_time_was_saved_up(config: TuneConfig) -> None:
    outcome = tuned(config, end_s=300.0)
    assert announced(outcome, events.CapSet) == []
    assert "one trial at another cap would decide it" in warnings(outcome)[-1]


@pytest.mark.parametrize("says", [Tried.UNCLEAR, Tried.REFUTED])
def test_a_trial_that_proves_nothing_leaves_the_limit_found_and_no_count(says, monkeypatch) -> None:
    monkeypatch.setattr("autocap.progress.period.ratio.tried", lambda *_, **__: (says, 0.7))
    outcome = tuned(TuneConfig(metric=EDP), end_s=600.0)
    assert [event.setting for event in announced(outcome, events.CapSet)][1:] == [(PROFILE.cap_range.default_w,)]
    assert not announced(outcome, events.ProgressFound)
    assert not outcome.trials
    unlikely = "unlike beats of fast loads, which are not excluded"
    wanted = "it is not the job's own cycle" if says is Tried.REFUTED else unlikely
    assert wanted in warnings(outcome)[-1]
