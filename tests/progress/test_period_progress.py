"""Tuning from the power signal alone, on the simulated device."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import PERIOD_WITHIN_SECONDS, TuneConfig
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS, SensorModel
from autocap.metrics import Metric
from autocap.progress import BestProgress, Mark, SpeedProgress
from autocap.progress.period import progress as period_progress
from autocap.progress.period.counted import counter_misses
from autocap.progress.period.estimate import PeriodEstimate, Verdict
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Reading, Sample, SensorInfo
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import Episode, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode, Spell
from bench.simulation.clock import Starvation
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.logs import announced, warnings

EDS = Metric(name="eds", k=2.0)


def tuned(name: str, sensor: str) -> tuple[Outcome, PeriodProgress]:
    node = SimulatedNode(sensor=PRESETS[sensor])
    job = SimulatedJob(profile=profiles.load(name))
    progress = PeriodProgress(PRESETS[sensor].info())
    outcome = tune(
        job, TuneConfig(metric=EDS), "golden", node=node, seed=1, progress=progress, stop_when_held=True, end_s=2000.0
    )
    return outcome, progress


@pytest.mark.parametrize(
    ("name", "sensor"),
    [("quadro-rtx-6000/alexnet", "v100"), ("tesla-v100/resnet152", "a100"), ("quadro-rtx-6000/inception3", "turing")],
)
def test_a_job_is_tuned_from_its_power_alone(name: str, sensor: str) -> None:
    outcome, _ = tuned(name, sensor)
    profile = profiles.load(name)
    baseline = announced(outcome, events.BaselineMeasured)[0]
    assert baseline.measurement.period_s == pytest.approx(profile.time_s(profile.cap_range.default_w), rel=0.01)
    for event in outcome.trials:
        if event.trial.measurement is not None:  # the same multiple at every cap
            expected_s = profile.time_s(event.trial.setting)
            assert event.trial.measurement.period_s == pytest.approx(expected_s, rel=0.02)
    assert outcome.decided.confirmed
    assert regret_pct(profile, EDS, outcome.grid, outcome.final_cap_w, profile.cap_range.default_w) < 1.5
    found = announced(outcome, events.ProgressFound)
    assert [(event.kind, event.confidence) for event in found] == [("period", "high")]


@pytest.mark.parametrize("sensor", ["a100", "turing"])
def test_a_period_out_of_the_sensors_reach_leaves_the_limit_found_on_arrival_with_the_reason(sensor: str) -> None:
    outcome, progress = tuned("quadro-rtx-6000/alexnet", sensor)  # 113 ms
    assert outcome.final_cap_w == 260.0
    said = warnings(outcome)
    assert progress.trouble is not None
    assert said[-1].startswith(progress.trouble)
    assert said[:-1] == ([] if progress.notice is None else [progress.notice])


def sampled(period_s: float, window_s: float, step_s: float) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Means over the last window_s of a cycle of 20 W around 200 W, every step_s for 40 s."""
    t_s = np.arange(1.0, 41.0, step_s)
    inner = t_s[:, None] - np.linspace(0, window_s, 50, endpoint=False)
    return t_s, 200 + 20 * np.sin(2 * np.pi * inner / period_s).mean(axis=1)


@pytest.mark.parametrize("window_s", [0.025, 0.0])
def test_the_counter_misses_the_beat_of_a_fast_cycle_with_the_sampling(window_s: float) -> None:
    beat_s = 1 / (1 / 0.1 - 1 / 0.113)
    readings, counted = sampled(0.113, 0.025, 0.1), sampled(0.113, 0.1, 0.1)
    assert counter_misses(beat_s, *readings, *counted, window_s=window_s)


@pytest.mark.parametrize("period_s", [0.35, 0.87, 3.0])
def test_the_counter_does_not_miss_a_cycle_of_the_jobs_own(period_s: float) -> None:
    readings, counted = sampled(period_s, 0.025, 0.1), sampled(period_s, 0.1, 0.1)
    assert not counter_misses(period_s, *readings, *counted, window_s=0.025)
    assert not counter_misses(period_s, *readings, *counted, window_s=0.0)


def test_a_counter_as_coarse_as_the_sensor_misses_nothing_that_this_sees() -> None:
    readings = sampled(0.113, 0.1, 0.1)
    assert not counter_misses(0.87, *readings, *readings, window_s=0.1)


def followed(
    node: SimulatedNode,
    caps_w: Sequence[float],
    seconds: float,
    interval_s: float,
    profile: str = "tesla-v100/resnet50",
) -> PeriodProgress:
    """What period progress makes of a job, some seconds at each cap of the whole node."""
    clock = VirtualClock()
    job = SimulatedJob(profile=profiles.load(profile))
    device = SimulatedDevice(clock, job, node, seed=1)
    limits = device.limits()
    progress = PeriodProgress(device.sensor)
    for cap_w in caps_w:
        for gpu in device.gpus:
            limits.set_limit_w(gpu.uuid, cap_w)
        end_s = clock.now() + seconds
        while clock.now() < end_s:
            clock.wait_until(clock.now() + interval_s)
            progress.marks(Sample(t_s=clock.now(), readings=device.read()))
    return progress


@pytest.mark.parametrize(
    ("sensor", "profile"),
    [("v100", "tesla-v100/resnet50"), ("a100", "tesla-v100/resnet50"), ("average-1s", "tesla-v100/vgg19")],
)
def test_energy_counters_that_move_at_different_times_are_one_witness(sensor: str, profile: str) -> None:
    progress = followed(SimulatedNode(gpus=4, sensor=PRESETS[sensor]), [300.0], 25.0, 0.02, profile)
    assert progress.trouble is None


@pytest.mark.parametrize(
    ("sensor", "seconds", "profile"),
    [("v100", 8.0, "quadro-rtx-6000/resnet50"), ("turing", 11.5, "quadro-rtx-6000/inception4")],
)
def test_a_period_is_learned_by_two_looks_at_no_more_readings_than_these_need(sensor, seconds, profile) -> None:
    """The first as soon as there may be enough, the other when it sees enough that the first did not."""
    progress = followed(SimulatedNode(sensor=PRESETS[sensor]), [260.0], seconds, 0.02, profile)
    assert progress.trouble is None


Stretch = tuple[float, float | None, float]  # cap, watts; period, seconds, `None` for noise; how long, seconds
LOW, PEAK = ((0.3, 200.0), (1.0, 300.0)), ((0.85, 200.0), (1.0, 300.0))
HELD: tuple[Stretch, ...] = ((300.0, 0.50, 20.0), (250.0, 0.55, 130.0))  # until it is followed by its phase


class Played:
    """Period progress that is shown a power signal with a counter, 20 times a second. changed: what it has said of the
    job, each once."""

    def __init__(self) -> None:
        self.progress = PeriodProgress(SensorInfo(update_s=0.05, window_s=0.05, settle_s=0.1, window_known=True))
        self._t_s = self._energy_j = 0.0
        self._rng = np.random.default_rng(0)
        self.marks: list[Mark] = []
        self.changed: list[str] = []

    def play(self, *stretches: Stretch, waveform: Sequence[tuple[float, float]] = LOW) -> str | None:
        """The trouble at the end."""
        for cap_w, period_s, seconds in stretches:
            end_s, before = self._t_s + seconds, self.progress.changed
            while self._t_s < end_s:
                self._t_s += 0.05
                power_w = 250.0 + float(self._rng.normal(0, 20 if period_s is None else 1))
                if period_s is not None:
                    phase = self._t_s % period_s / period_s
                    power_w += next(watts for until, watts in waveform if phase < until) - 250.0
                self._energy_j += 0.05 * power_w
                reading = Reading(
                    t_s=self._t_s, power_w=power_w, requested_w=cap_w, sm_clock_hz=5e6 * cap_w, energy_j=self._energy_j
                )
                self.marks += self.progress.marks(Sample(t_s=self._t_s, readings=(reading,)))
                if self.progress.changed not in (before, None):
                    self.changed.append(self.progress.changed or "")
                before = self.progress.changed
        return self.progress.trouble

    def pace_s(self) -> float:
        """Of the latest iterations."""
        last, before = self.marks[-1], self.marks[-11]
        return (last.t_s - before.t_s) / (last.iterations - before.iterations)


SHORTER = "the period went to 0.90 times its length with the cap: it is not the job's own cycle"


def test_what_gets_shorter_at_a_lower_cap_is_another_jobs_or_was_never_its_own_cycle() -> None:
    """A job that speeds up when it is capped: no job does. The job may have changed; where the limit found on arrival
    shows the same as before, it has not, and what repeats was a beat of the job with the sampling."""
    played = Played()
    assert played.play((300.0, 0.50, 20.0)) is None
    assert played.play((250.0, 0.45, 30.0)) == SHORTER
    assert played.changed == [f"the workload may have changed: {SHORTER}"]
    assert played.play((300.0, 0.50, 30.0)) is None
    assert played.play((250.0, 0.45, 30.0)) == SHORTER
    assert len(played.changed) == 1
    assert played.play((300.0, 0.50, 30.0)) == SHORTER  # for good


def test_a_job_that_changes_while_a_cap_is_tried_is_learned_anew_at_the_limit_found_on_arrival() -> None:
    played = Played()
    assert played.play((300.0, 0.50, 20.0), (250.0, 0.55, 15.0)) is None
    assert played.play((250.0, 0.40, 80.0)) is not None
    assert [said.split(":")[0] for said in played.changed] == ["the workload may have changed"]
    assert played.play((300.0, 0.36, 30.0), (250.0, 0.40, 20.0)) is None
    assert played.pace_s() == pytest.approx(0.40, rel=0.01)
    assert played.play((250.0, 0.60, 80.0)) is not None  # and once more
    assert len(played.changed) == 2


def test_a_cap_that_hides_the_pattern_is_taken_for_a_change_once() -> None:
    played = Played()
    assert played.play((300.0, 0.50, 20.0), (150.0, None, 40.0)) is not None
    assert len(played.changed) == 1
    assert played.play((300.0, 0.50, 25.0)) is None
    assert played.play((150.0, None, 40.0)) is not None
    assert played.play((250.0, 0.55, 20.0)) is None  # and other caps may be tried
    assert len(played.changed) == 1


@pytest.mark.parametrize(
    ("noise_s", "now_s", "said"), [(25.0, 0.55, []), (0.0, 0.77, ["1.40 times as long as before"])]
)
def test_what_was_followed_and_is_lost_is_looked_for_again(noise_s: float, now_s: float, said: list[str]) -> None:
    """A long pause is over at some time; another pace is another job, and is said."""
    played = Played()
    assert played.play(*HELD) is None
    assert played.progress.step_s > 0
    assert (played.play((250.0, None, noise_s)) is None) == (noise_s == 0.0)
    assert played.play((250.0, now_s, 150.0)) is None
    assert played.progress.step_s > 0
    assert played.pace_s() == pytest.approx(now_s, rel=0.01)
    assert [one.rsplit("takes ")[-1] for one in played.changed] == said


@pytest.mark.parametrize("cap_w", [250.0, 300.0])
def test_what_repeats_otherwise_than_what_was_followed_is_another_job(cap_w: float) -> None:
    """Where the limit found on arrival holds, it is learned anew; elsewhere its baseline is to be measured."""
    played = Played()
    assert played.play((300.0, 0.50, 20.0), (cap_w, 0.50 if cap_w == 300.0 else 0.55, 130.0)) is None
    played.play((cap_w, 0.70, 60.0), waveform=PEAK)
    assert played.changed == ([] if cap_w == 300.0 else [OTHERWISE])
    if cap_w == 300.0:
        assert played.progress.trouble is None
        assert played.pace_s() == pytest.approx(0.70, rel=0.01)


OTHERWISE = "the workload has changed: its power repeats otherwise than before, every 0.7 s"


def test_a_long_cycle_is_still_counted_after_ten_minutes_at_a_cap() -> None:
    clock, sensor = VirtualClock(), SensorModel(update_s=0.5, window_s=0.1)
    profile = replace(profiles.load("tesla-v100/resnet50"), default_time_s=8.0)
    device = SimulatedDevice(clock, SimulatedJob(profile=profile, jitter=0.001), SimulatedNode(sensor=sensor), seed=1)
    progress = PeriodProgress(device.sensor)
    late_s = []
    while clock.now() < 600.0:
        clock.wait_until(clock.now() + 0.25)
        late_s += [clock.now() - mark.t_s for mark in progress.marks(Sample(t_s=clock.now(), readings=device.read()))]
    assert progress.trouble is None
    assert len(late_s) == pytest.approx(600 / 8.0, abs=10)
    assert max(late_s[15:]) < 60.0  # no stretch of half the readings was forgotten before it was counted


def test_a_disturbed_window_does_not_end_the_search_for_a_period() -> None:
    """Validation and checkpoints come in between, and autocap hardly gets to look: the clock has to do for a while."""
    sensor = PRESETS["v100"]
    profile = replace(profiles.load("tesla-v100/resnet50"), default_time_s=0.5)
    episodes = (Episode(every=120, duration_s=6.0, power=0.4), Episode(every=200, duration_s=5.0))
    starved = Starvation(spells=(Spell(start_s=0.0, end_s=1e9),), gap_s=0.06, spread=1.2, bursts=0.2, held_up=0.05)
    progress = BestProgress(PeriodProgress(sensor.info()), SpeedProgress(), PERIOD_WITHIN_SECONDS, late=True)
    job = SimulatedJob(profile=profile, episodes=episodes)
    node, config = SimulatedNode(sensor=sensor), TuneConfig(metric=Metric(name="energy"))
    outcome = tune(job, config, "model", node=node, progress=progress, end_s=240.0, starvation=starved)
    found = announced(outcome, events.ProgressFound)
    assert [event.kind for event in found] == ["speed", "period"]
    assert found[-1].t_s < 150.0
    measured = [event.measurement for event in announced(outcome, events.BaselineMeasured)]
    assert measured[-1].period_s == pytest.approx(0.5, rel=0.02)


def test_another_period_counts_as_a_change_only_once_it_is_found_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a cap, a look of few seconds had taken a part of a disturbed cycle for it."""
    found = iter((0.21, 0.33, None, 0.33, 0.331))

    def detect(*signal: object, **seeing: object) -> PeriodEstimate:
        period_s = next(found)
        verdict = Verdict.APERIODIC if period_s is None else Verdict.PERIODIC
        return PeriodEstimate(
            start_s=0.0,
            end_s=4.0,
            verdict=verdict,
            period_s=period_s,
            rel_stderr=0.001,
            verified=period_s is not None,
            reason="",
        )

    monkeypatch.setattr(period_progress, "detect", detect)
    progress = PeriodProgress(PRESETS["v100"].info())
    for t_s, limit_w in ((0.0, 250.0), (1.0, 200.0)):
        progress.marks(Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=150.0, requested_w=limit_w),)))
    signal = np.arange(2.0), np.full(2, 150.0), 0.02, 0.02
    for _ in range(4):
        progress._look_for_another(signal, 0)
        assert progress.changed is None
    progress._look_for_another(signal, 0)
    assert progress.changed == "the workload has changed: its power repeats otherwise than before, every 0.331 s"


def test_a_job_that_goes_on_at_another_pace_is_counted_by_its_new_period() -> None:
    node = SimulatedNode(sensor=PRESETS["v100"])
    profile = replace(profiles.load("tesla-v100/resnet50"), default_time_s=0.5)
    clock = VirtualClock()
    device = SimulatedDevice(clock, SimulatedJob(profile=profile, change=WorkloadChange(at=60, time=1.6)), node, seed=1)
    progress = PeriodProgress(device.sensor)
    marks = []
    while clock.now() < 120.0:
        clock.wait_until(clock.now() + 0.02)
        marks += progress.marks(Sample(t_s=clock.now(), readings=device.read()))
    assert progress.trouble is None
    last, before = marks[-1], marks[-11]
    assert (last.t_s - before.t_s) / (last.iterations - before.iterations) == pytest.approx(0.8, rel=0.02)
