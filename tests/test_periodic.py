"""Tuning from the power signal alone, on the simulated device."""

import numpy as np
import pytest

from autocap import events, profiles
from autocap.alias import is_alias
from autocap.config import TuneConfig
from autocap.devices.simulated import SimulatedJob, SimulatedNode
from autocap.metrics import Metric
from autocap.periodic import PeriodProgress
from autocap.sensor import PRESETS
from bench.jobs import Outcome, regret_pct, tune

EDS = Metric(name="eds", k=2.0)


def tuned(name: str, sensor: str) -> tuple[Outcome, PeriodProgress]:
    node = SimulatedNode(sensor=PRESETS[sensor])
    job = SimulatedJob(profile=profiles.load(name))
    progress = PeriodProgress(PRESETS[sensor].info())
    outcome = tune(
        job,
        TuneConfig(metric=EDS),
        "golden",
        node=node,
        seed=1,
        progress=progress,
        stop_when_held=True,
        end_s=2000.0,
    )
    return outcome, progress


@pytest.mark.parametrize(
    ("name", "sensor"),
    [
        ("quadro-rtx-6000/alexnet", "v100"),
        ("tesla-v100/resnet152", "a100"),
        ("quadro-rtx-6000/inception3", "turing"),
    ],
)
def test_a_job_is_tuned_from_its_power_alone(name: str, sensor: str) -> None:
    outcome, _ = tuned(name, sensor)
    profile = profiles.load(name)
    baseline = next(event for event in outcome.log.events if isinstance(event, events.BaselineMeasured))
    assert baseline.measurement.period_s == pytest.approx(profile.time_s(profile.cap_range.default_w), rel=0.01)
    for event in outcome.trials:
        if event.trial.measurement is not None:  # the same multiple at every cap
            expected_s = profile.time_s(event.trial.cap_w)
            assert event.trial.measurement.period_s == pytest.approx(expected_s, rel=0.02)
    assert outcome.decided is not None
    assert outcome.decided.confirmed
    assert regret_pct(profile, EDS, outcome.grid, outcome.final_cap_w, profile.cap_range.default_w) < 1.5
    found = [event for event in outcome.log.events if isinstance(event, events.ProgressFound)]
    assert [(event.kind, event.confidence) for event in found] == [("period", "high")]


@pytest.mark.parametrize("sensor", ["a100", "turing"])
def test_a_period_out_of_the_sensors_reach_leaves_the_limit_found_on_arrival_with_the_reason(sensor: str) -> None:
    outcome, progress = tuned("quadro-rtx-6000/alexnet", sensor)  # 113 ms
    assert outcome.final_cap_w == 260.0
    assert not [event for event in outcome.log.events if isinstance(event, events.CapSet)]
    (warning,) = [event.text for event in outcome.log.events if isinstance(event, events.Warned)]
    assert progress.trouble is not None
    assert warning.startswith(progress.trouble)


def sampled(period_s: float, window_s: float, step_s: float) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Means over the last window_s of a cycle of 20 W around 200 W, every step_s for 40 s."""
    t_s = np.arange(1.0, 41.0, step_s)
    inner = t_s[:, None] - np.linspace(0, window_s, 50, endpoint=False)
    return t_s, 200 + 20 * np.sin(2 * np.pi * inner / period_s).mean(axis=1)


def test_the_beat_of_a_fast_cycle_with_the_sampling_is_an_alias() -> None:
    beat_s = 1 / (1 / 0.1 - 1 / 0.113)
    readings, counted = sampled(0.113, 0.025, 0.1), sampled(0.113, 0.1, 0.1)
    assert is_alias(beat_s, *readings, 0.025, *counted)


@pytest.mark.parametrize("period_s", [0.35, 0.87, 3.0])
def test_a_real_period_is_seen_by_the_counter_as_well(period_s: float) -> None:
    assert not is_alias(period_s, *sampled(period_s, 0.025, 0.1), 0.025, *sampled(period_s, 0.1, 0.1))


def test_a_counter_as_coarse_as_the_sensor_cannot_tell() -> None:
    assert not is_alias(0.87, *sampled(0.113, 0.1, 0.1), 0.1, *sampled(0.113, 0.1, 0.1))
