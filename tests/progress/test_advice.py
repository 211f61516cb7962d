"""What is advised where no iterations can be counted: what would help against that very reason."""

import numpy as np
import pytest

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.metrics import Metric
from autocap.progress import HAVE_COUNTED, LONGER, NEVER_S, BestProgress, Progress, SpeedProgress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Reading, Sample
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import tune
from tests.doubles.logs import warnings

SENSOR = PRESETS["a100"].info()


def fed(progress: Progress, seconds: float, *, clock_hz: float | None = None) -> Progress:
    """With readings of a job whose power repeats nothing."""
    power_w = 200 + 20 * np.random.default_rng(7).standard_normal(round(seconds / SENSOR.update_s))
    for i, watts in enumerate(power_w):
        t_s = i * SENSOR.update_s
        reading = Reading(t_s=t_s, power_w=float(watts), sm_clock_hz=clock_hz, requested_w=300.0)
        assert progress.marks(Sample(t_s=t_s, readings=(reading,))) == () or clock_hz is not None
    return progress


@pytest.mark.slow
def test_a_signal_that_does_not_repeat_is_not_waited_for_longer() -> None:
    for clock_hz, advice in ((None, HAVE_COUNTED), (1.4e9, f"pass --progress speed, or {HAVE_COUNTED}")):
        progress = fed(PeriodProgress(SENSOR), 60.0, clock_hz=clock_hz)
        assert (progress.trouble or "").startswith("no period in the power signal (")
        assert progress.advice == advice
        assert "--wait" not in progress.advice


class Glimpsing(PeriodProgress):
    """Counts how often a long cycle is looked for, which takes tens of milliseconds each time."""

    glimpses = 0

    def _glimpse(self) -> float | None:
        self.glimpses += 1
        return super()._glimpse()


@pytest.mark.slow
def test_in_a_signal_that_does_not_repeat_a_long_cycle_is_looked_for_twice_before_something_else_is_taken() -> None:
    progress = Glimpsing(SENSOR)
    fed(progress, 60.0)
    assert progress.glimpses == 2


def test_a_signal_that_is_still_too_short_is() -> None:
    progress = fed(PeriodProgress(SENSOR), 1.0)
    assert progress.trouble == "the power signal is still too short to tell a period"
    assert progress.advice == f"{LONGER}, or {HAVE_COUNTED}"


@pytest.mark.parametrize(
    "trouble",
    ["the period of 1.0 s was not found a second time yet", "no period in the power signal (unresolvable): only 5.0 "
     "cycles, 8 are needed", "only 3.0 cycles, 12 are needed"],
)  # fmt: skip
def test_neither_is_one_that_needs_only_more_cycles(trouble: str) -> None:
    progress = PeriodProgress(SENSOR)
    progress.trouble = trouble
    assert progress.advice.startswith(LONGER)
    progress.notice = "it was waited for already"
    assert progress.advice == HAVE_COUNTED


@pytest.mark.slow
def test_attach_without_period_and_clock_advises_to_have_iterations_counted() -> None:
    progress = fed(BestProgress(PeriodProgress(SENSOR), SpeedProgress(), 60.0), 30.0)
    assert (progress.trouble or "").endswith(", and the device does not report its SM clock")
    assert progress.advice == HAVE_COUNTED


@pytest.mark.slow
def test_an_aperiodic_signal_is_given_up_in_time_with_what_would_help() -> None:
    progress = fed(BestProgress(PeriodProgress(SENSOR), SpeedProgress(), 60.0), 59.0, clock_hz=1.4e9)
    assert "None" not in (progress.trouble or "")
    assert progress.advice == f"pass --progress speed, or {HAVE_COUNTED}"
    assert (progress.worth_until_s, progress.notice) == (NEVER_S, None)
    progress = fed(BestProgress(PeriodProgress(SENSOR), SpeedProgress(), 60.0), 62.0, clock_hz=1.4e9)
    assert progress.kind == "speed"
    assert (progress.notice or "").startswith("no period in the power signal (")
    said = f", so iterations are counted by speed, with low confidence; better {HAVE_COUNTED}"
    assert (progress.notice or "").endswith(said)


def test_run_that_waits_less_than_it_looks_for_steps_is_told_of_the_period() -> None:
    counted = SpeedProgress()
    counted.kind, counted.confidence = "period", "high"
    progress = fed(BestProgress(StepProgress(), counted, 20.0), 10.0, clock_hz=1.4e9)
    assert progress.advice == "pass --progress period, or a --wait above 20 s, after which it is used"


def test_steps_that_never_come_may_be_counted_by_hand() -> None:
    assert StepProgress().advice == f"{LONGER}, or call autocap.step() once an iteration"
    assert SpeedProgress().advice == HAVE_COUNTED


class Hopeful(StepProgress):
    """Something shows until 50 s have passed."""

    worth_until_s, notice = 50.0, "something shows"


def test_what_is_worth_waiting_for_is_said_and_waited_for_beyond_the_longest_wait() -> None:
    idle = SimulatedJob(profile=profiles.load("quadro-rtx-6000/alexnet"), start_s=1000.0)
    config = TuneConfig(metric=Metric(name="eds", k=2.0), wait_s=30.0)
    outcome = tune(idle, config, "golden", progress=Hopeful(), end_s=80.0)
    said, failed = warnings(outcome)
    assert said == "something shows"
    assert failed.startswith("no optimiser step was seen within 50 s, so nothing is tuned; ")


@pytest.mark.slow
def test_the_warning_of_a_job_that_is_not_tuned_ends_with_the_advice() -> None:
    progress = PeriodProgress(SENSOR)
    job = SimulatedJob(profile=profiles.load("quadro-rtx-6000/alexnet"))  # an iteration takes 0.1 s
    config = TuneConfig(metric=Metric(name="eds", k=2.0), wait_s=30.0)
    outcome = tune(job, config, "golden", node=SimulatedNode(sensor=PRESETS["turing"]), progress=progress, end_s=60.0)
    (warning,) = warnings(outcome)
    assert warning == (
        "no period in the power signal (ambiguous): it may be a beat: its phase goes ahead and back with "
        f"the sensor's clock within 30 s, so nothing is tuned; pass --progress speed, or {HAVE_COUNTED}"
    )
