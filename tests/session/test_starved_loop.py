"""The loop on a machine with too few cores: what a sample says is what held at its time, however late it comes."""

import math

import numpy as np

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.metrics import Metric
from autocap.records import Sample
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import Spell
from bench.simulation.clock import Starvation
from bench.simulation.jobs import tune
from tests.doubles.recorded import Kept

JOB = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), iterations=400)
OBSERVE = TuneConfig(metric=Metric(name="energy"), observe=True)
ALWAYS = (Spell(start_s=0.0, end_s=math.inf),)


def seen(starvation: Starvation) -> tuple[list[Sample], SimulatedDevice]:
    log = Kept()
    outcome = tune(JOB, OBSERVE, "golden", log=log, starvation=starvation)
    return log.samples, outcome.device


def test_no_step_has_ended_after_its_sample() -> None:
    samples, _ = seen(Starvation(spells=ALWAYS, gap_s=0.5, spread=1.0, held_up=0.3))
    assert len(samples) > 100
    for sample in samples:
        assert sample.steps is None or sample.steps.t_s <= sample.t_s


def test_a_reading_in_whose_middle_we_were_held_up_is_taken_again() -> None:
    samples, device = seen(Starvation(spells=ALWAYS, gap_s=1.0, spread=0.3, held_up=0.3))
    counted_j = np.array([sample.readings[0].energy_j for sample in samples], dtype=float)
    truth_j = np.array([device.true_energy_j(samples[0].t_s, sample.t_s)[0] for sample in samples])
    behind_j = truth_j - (counted_j - counted_j[0]) * truth_j[-1] / (counted_j[-1] - counted_j[0])
    assert np.mean(np.abs(behind_j) > 60.0) < 0.1  # J, a quarter of a second; three in ten without a second look


def test_samples_come_late_several_at_once_and_as_usual_afterwards() -> None:
    spell = Spell(start_s=20.0, end_s=120.0)
    samples, _ = seen(Starvation(spells=(spell,), gap_s=0.8, spread=1.2, bursts=0.3))
    t_s = np.array([sample.t_s for sample in samples])
    starved_s = np.diff(t_s[(t_s > 20.0) & (t_s < 120.0)])
    assert starved_s.max() <= 5.0 + 1e-9
    assert np.mean(starved_s < 0.021) > 0.2
    assert np.mean(starved_s > 1.0) > 0.2
    usual_s = np.diff(t_s[t_s < 20.0])  # while a cap is searched for, and while it is held
    assert np.all(np.isclose(usual_s, 0.05) | np.isclose(usual_s, 0.8))
