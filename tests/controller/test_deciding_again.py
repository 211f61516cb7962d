"""What was decided is decided again once what it rests on is known better, and one look that is off costs itself."""

from typing import Any

import pytest

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events import State
from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from bench.simulation.jobs import tune
from tests.doubles.logs import states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
ENERGY = Metric(name="energy")


class Second:
    """Tries 180 W by a rough baseline, and 130 W only by one that is known well, which it is then told anew."""

    def __init__(self, *, baseline: Measurement, **_: Any) -> None:
        self._caps_w = [180.0, 130.0] if baseline.period_rel_stderr < 0.02 else [180.0]
        self._costs: dict[float, float] = {}

    def ask(self) -> float | None:
        return next((cap_w for cap_w in self._caps_w if cap_w not in self._costs), None)

    def tell(self, trial: Trial) -> None:
        if trial.cost is not None:
            self._costs[trial.setting] = trial.cost

    def recommend(self) -> float | None:
        return min(self._costs, key=lambda cap_w: self._costs[cap_w], default=None)


def test_a_search_that_a_rough_baseline_had_ended_goes_on_once_it_is_known() -> None:
    job = SimulatedJob(profile=RESNET50, jitter=0.01)
    outcome = tune(job, TuneConfig(metric=ENERGY), f"{__name__}:Second", stop_when_held=True)
    entered = states(outcome)
    searched = entered[entered.index(State.SEARCHING) :]
    assert searched[:4] == [State.SEARCHING, State.CONFIRMING, State.SEARCHING, State.CONFIRMING]
    assert (outcome.decided.setting, outcome.decided.confirmed) == (130.0, True)
    assert [one.trial.setting for one in outcome.trials] == [180.0, 180.0, 130.0], "what the confirmation showed counts"


def test_a_baseline_that_was_off_once_does_not_begin_all_anew() -> None:
    """Other work holds the job up while the baseline is measured again, and is gone when it is looked at once more."""
    burst = WorkloadChange(at=417, until=437, time=1.5, power=0.8)
    job = SimulatedJob(profile=RESNET50, jitter=0.01, bursts=(burst,))
    patient = [("patience", "0")]
    outcome = tune(job, TuneConfig(metric=ENERGY), "linear", options=patient, seed=1, end_s=600.0, stop_when_held=True)
    assert not [text for text in warnings(outcome) if text.startswith("tuning anew")]
    assert outcome.decided.setting == 125.0


def test_a_workload_that_did_change_is_searched_anew_after_a_second_look() -> None:
    change = WorkloadChange(at=417, time=1.5, power=0.8)
    job = SimulatedJob(profile=RESNET50, jitter=0.01, change=change)
    patient = [("patience", "0")]
    outcome = tune(job, TuneConfig(metric=ENERGY), "linear", options=patient, seed=1, end_s=420.0, stop_when_held=True)
    assert [text for text in warnings(outcome) if text.startswith("tuning anew: at the limit found on arrival")]


@pytest.mark.parametrize("strategy", ["linear", "golden"])
def test_no_trial_fails_for_want_of_savings(strategy: str) -> None:
    """The job has lost time while it warmed up, and its steps scatter by a fifth."""
    job = SimulatedJob(profile=RESNET50, jitter=0.2, iterations=900, warm_up_iterations=30, warm_up_factor=2.0)
    limited = TuneConfig(metric=Metric(name="energy", max_slowdown=0.05))
    outcome = tune(job, limited, strategy, end_s=400.0, stop_when_held=True)
    assert not [one for one in outcome.trials if one.trial.state is TrialState.FAILED]
    assert not [text for text in warnings(outcome) if "the search ends early" in text]
