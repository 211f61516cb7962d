"""Tuning from the power signal alone, on the simulated device.

Readings that come late, in bursts, or hardly at all: the detector says what it can, and never fails.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import PERIOD_WITHIN_SECONDS, TuneConfig
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS, SensorModel
from autocap.metrics import Metric
from autocap.progress import BestProgress, Mark, SpeedProgress
from autocap.progress.period import Cycles, PeriodEstimate, Verdict, count, detect, lock, ratio
from autocap.progress.period import progress as period_progress
from autocap.progress.period.counted import counter_misses
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.period.series import prepare
from autocap.records import Reading, Sample, SensorInfo
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import Episode, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode, Spell
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record
from bench.simulation.clock import Starvation
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.logs import announced, warnings
from tests.doubles.odd_readings import play
from tests.doubles.starved import KINDS, starved

EDS = Metric(name="eds", k=2.0)


def tuned(name: str, sensor: str) -> tuple[Outcome, PeriodProgress]:
    node = SimulatedNode(sensor=PRESETS[sensor])
    job = SimulatedJob(profile=profiles.load(name))
    progress = PeriodProgress(PRESETS[sensor].info())
    outcome = tune(
        job, TuneConfig(metric=EDS), "golden", node=node, seed=1, progress=progress, stop_when_held=True, end_s=2000.0
    )
    return outcome, progress


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_job_that_changes_while_a_cap_is_tried_is_learned_anew_at_the_limit_found_on_arrival() -> None:
    played = Played()
    assert played.play((300.0, 0.50, 20.0), (250.0, 0.55, 15.0)) is None
    assert played.play((250.0, 0.40, 80.0)) is not None
    assert [said.split(":")[0] for said in played.changed] == ["the workload may have changed"]
    assert played.play((300.0, 0.36, 30.0), (250.0, 0.40, 20.0)) is None
    assert played.pace_s() == pytest.approx(0.40, rel=0.01)
    assert played.play((250.0, 0.60, 80.0)) is not None  # and once more
    assert len(played.changed) == 2


@pytest.mark.slow
def test_a_cap_that_hides_the_pattern_is_taken_for_a_change_once() -> None:
    played = Played()
    assert played.play((300.0, 0.50, 20.0), (150.0, None, 40.0)) is not None
    assert len(played.changed) == 1
    assert played.play((300.0, 0.50, 25.0)) is None
    assert played.play((150.0, None, 40.0)) is not None
    assert played.play((250.0, 0.55, 20.0)) is None  # and other caps may be tried
    assert len(played.changed) == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


SEEDS = st.integers(0, 2**32 - 1)


def heard(rng: np.random.Generator) -> Signal:
    load = Load(
        waveform=WAVEFORMS[str(rng.choice(["cnn", "accumulate4", "shallow"]))],
        period_s=float(np.exp(rng.uniform(np.log(0.3), np.log(6.0)))),
        jitter=float(rng.choice([0.0, 0.03, 0.1])),
        disturbance=str(rng.choice(["none", "stalls", "validation"])),
    )
    return record(load, SENSORS["100/25"], float(rng.uniform(4.0, 60.0)), rng)


def sound(found: PeriodEstimate) -> None:
    assert found.reason
    assert math.isfinite(found.cycles)
    assert 0 <= found.confidence <= 1
    assert (found.period_s is None) == (found.rel_stderr is None)
    if found.period_s is not None and found.rel_stderr is not None:
        assert 0 < found.period_s < math.inf
        assert 0 <= found.rel_stderr < math.inf
    assert found.verdict is not Verdict.PERIODIC or found.cycles >= 8


def countable_cycles(found: Cycles | None) -> None:
    if found is None:
        return
    assert np.isfinite(found.t_s).all()
    assert np.isfinite(found.count).all()
    assert (np.diff(found.t_s) >= 0).all()
    assert (np.diff(found.count) >= 0).all()
    assert 0 < found.period_s < math.inf
    assert 0 <= found.rel_stderr < math.inf


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(seed=SEEDS, window_s=st.sampled_from([0.0, 0.025, 1.0]), update_s=st.sampled_from([0.02, 0.1, 1.0]))
def test_whatever_is_left_of_the_readings_there_is_a_verdict(kind, seed, window_s, update_s) -> None:
    rng = np.random.default_rng(seed)
    signal = heard(rng)
    t_s, power_w = starved(signal.t_s, signal.power_w, kind, rng)
    estimate = detect(t_s, power_w, update_s=update_s, window_s=window_s, witnesses=[(t_s, power_w)])
    sound(estimate)
    if estimate.period_s is None:
        return
    countable_cycles(count(estimate, t_s, power_w, update_s=update_s, window_s=window_s))
    template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
    if template is None:
        return
    again_s, again_w = starved(signal.t_s, signal.power_w, str(rng.choice(KINDS)), rng)
    found = ratio(template, again_s, again_w, slowest=4.5)
    assert found.ratio is None or 0 < found.ratio < math.inf
    assert not found.ok or found.cycles >= 8
    countable_cycles(count(template, again_s, again_w, update_s=update_s, window_s=window_s))


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=SEEDS)
@example(7)  # powers whose squares are no numbers any more
@example(28)  # a sensor without an update interval
@example(140)  # a witness whose squares are 0
@example(308)  # stamps as far apart as that
@example(406)  # a period of which no integer number fits into the readings
def test_whatever_the_readings_are_there_is_a_verdict(seed: int) -> None:
    play(seed)


def test_a_pattern_that_is_followed_through_no_two_neighbouring_readings_is_lost() -> None:
    """As in an attach on a machine with fourteen jobs on two cores: there was no span to count cycles in."""
    t_s = 0.1 * np.arange(600)
    power_w = 200 + 60 * np.sign(np.sin(2 * np.pi * t_s / 0.9)) + np.random.default_rng(0).normal(0, 3, 600)
    estimate = detect(t_s, power_w, update_s=0.1, window_s=0.025)
    template = lock(t_s, power_w, estimate, update_s=0.1, window_s=0.025)
    for seed in (121, 184, 247, 301):
        few_s, few_w = starved(t_s, power_w, "every-nth", np.random.default_rng(seed))
        assert not ratio(template, few_s, few_w, slowest=4.5).ok
        assert count(template, few_s, few_w, update_s=0.1, window_s=0.025) is None


@pytest.mark.slow
def test_blocks_that_hold_no_reading_are_no_pattern() -> None:
    """A few readings, a gap, many readings: most blocks of the fit were followed, and empty."""
    for seed in (42, 18, 3):
        rng = np.random.default_rng(seed)
        rng.uniform()  # of the period that a job would have had
        walk_w = np.abs(np.cumsum(rng.normal(0, 3, 900)) + 200)
        t_s, power_w = starved(0.1 * np.arange(900), walk_w, "island", rng)
        sound(detect(t_s, power_w, update_s=0.02, window_s=0.1))


def test_readings_at_the_same_time_are_one_and_a_grid_is_no_finer_than_they_are_many() -> None:
    t_s = np.repeat(np.arange(60.0), 3) + np.tile([0.0, 0.0, 1e-9], 60)
    series = prepare(t_s, 200.0 + np.arange(180) % 7, update_s=0.1, window_s=0.1)
    assert (np.diff(series.t_s) > 0).all()
    assert len(series.t_s) == 120
    assert series.step_s == pytest.approx(59.0 / 8 / 120, rel=1e-3)


def test_a_day_without_a_reading_costs_no_more_than_an_hour_of_them() -> None:
    t_s = np.concatenate((np.arange(0.0, 30.0, 0.1), 86_400.0 + np.arange(0.0, 30.0, 0.1)))
    watts = 200 + 60 * np.sign(np.sin(2 * np.pi * t_s / 0.9))
    sound(detect(t_s, watts, update_s=0.1))


def test_a_cycle_that_is_sampled_too_seldom_is_not_called_found() -> None:
    """A job of 0.6 s seen every 0.5 to 5 s: nothing that is found may be taken for its period."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        signal = record(Load(waveform=WAVEFORMS["cnn"], period_s=0.6, jitter=0.01), SENSORS["100/25"], 120.0, rng)
        places = np.searchsorted(signal.t_s, signal.t_s[0] + np.cumsum(rng.uniform(0.5, 5.0, 43)), side="right") - 1
        estimate = detect(signal.t_s[places], signal.power_w[places], update_s=0.1, window_s=0.025)
        assert estimate.verdict is not Verdict.PERIODIC


def fed(progress: PeriodProgress, rng: np.random.Generator, samples: int) -> None:
    """Samples of a machine that is short of CPU: readings may be missing, stand still or fall, and stamps repeat."""
    t_s, energy_j, done, cap_w = 0.0, 0.0, -1.0, 250.0
    last_s, period_s = -math.inf, float(rng.uniform(0.3, 3.0))
    for _ in range(samples):
        t_s += float(rng.choice([0.0, 1e-9, 0.02, 0.05, 0.1, 0.3, 5.0], p=[0.05, 0.05, 0.2, 0.4, 0.2, 0.05, 0.05]))
        power_w = 200.0 + 60.0 * math.copysign(1.0, math.sin(2 * math.pi * t_s / period_s)) + float(rng.normal())
        energy_j += float(rng.choice([0.0, 5.0, 20.0, -50.0], p=[0.3, 0.3, 0.3, 0.1]))
        cap_w = float(rng.choice([150.0, 250.0])) if rng.random() < 0.002 else cap_w
        reading = Reading(
            t_s=t_s - float(rng.choice([0.0, 0.05, 6.0], p=[0.6, 0.3, 0.1])),
            power_w=None if rng.random() < 0.02 else power_w,
            energy_j=energy_j if rng.random() < 0.9 else None,
            requested_w=cap_w,
            sm_clock_hz=1e9,
            utilisation=float(rng.choice([0.0, 1.0])),
        )
        for mark in progress.marks(Sample(t_s=t_s, readings=(reading,))):
            assert mark.iterations >= done
            assert last_s <= mark.t_s <= t_s
            done, last_s = mark.iterations, mark.t_s


@settings(max_examples=4)
@given(seed=SEEDS, samples=st.sampled_from([1, 30, 400]), window_s=st.sampled_from([0.025, 1.0]))
def test_marks_never_go_back_nor_ahead_on_a_machine_without_time(seed: int, samples: int, window_s: float) -> None:
    fed(PeriodProgress(SensorInfo(update_s=0.1, window_s=window_s, settle_s=0.5)), np.random.default_rng(seed), samples)
