"""A cap that is held: a changed workload is told from noise, and tuned anew."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import Keep
from autocap.controller.holding import Hold, HoldPlan
from autocap.devices.model import profiles
from autocap.events import State
from autocap.measurement.drift import DriftWatch
from autocap.measurement.metering import Metering
from autocap.metrics import Metric
from autocap.progress import Mark
from autocap.records import Reading, Sample
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from bench.simulation.jobs import tune
from tests.doubles.feeds import Meter, measurement
from tests.doubles.logs import announced, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
REFERENCE = measurement(energy_j=100.0, period_s=0.5)


def noticed_after(times: np.ndarray, watts: np.ndarray, lasts_s: float = 0.0) -> int | None:
    """How many iterations of these times and powers it takes until the watch says something."""
    watch, meter, t_s = DriftWatch(REFERENCE, lasts_s), Meter(), 0.0
    for number, (time_s, power_w) in enumerate(zip(times, watts, strict=True), start=1):
        t_s += time_s
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=power_w),))
        if watch.add(meter.of(sample, (Mark(t_s=t_s, iterations=float(number)),))) is not None:
            return number
    return None


def jittered(count: int, jitter: float, seed: int) -> np.ndarray:
    return 0.5 * np.exp(jitter * np.random.default_rng(seed).standard_normal(count) - jitter**2 / 2)


@pytest.mark.parametrize("change", [1.1, 0.9])
@pytest.mark.parametrize("quantity", ["time", "power"])
def test_a_change_of_a_tenth_is_noticed_within_60_iterations(change: float, quantity: str) -> None:
    late = 0
    for seed in range(20):
        factor = np.where(np.arange(300) < 200, 1.0, change)
        times, watts = jittered(300, 0.05, seed), np.full(300, 200.0)
        if quantity == "time":
            noticed = noticed_after(times * factor, watts / factor)  # the same energy
        else:
            noticed = noticed_after(times, watts * factor)
        late += noticed is None or not 200 < noticed <= 260
    assert late <= 1


@pytest.mark.parametrize("slower", [1.1, 1.5, 0.8])
def test_what_passes_within_half_the_time_that_a_change_must_last_is_none(slower: float) -> None:
    """As bursts of other work do, again and again."""
    lasts_s, number = 60.0, np.arange(1200)
    watts = np.full(1200, 200.0)
    passing = np.where(number % 200 >= 160, slower, 1.0)
    assert noticed_after(jittered(1200, 0.02, 1) * passing, watts) is not None
    assert noticed_after(jittered(1200, 0.02, 1) * passing, watts, lasts_s) is None
    staying = np.where(number < 200, 1.0, slower)
    noticed = noticed_after(jittered(1200, 0.02, 1) * staying, watts, lasts_s)
    assert noticed is not None
    assert 200 + lasts_s / (0.5 * slower) <= noticed < 240 + lasts_s / (0.5 * slower)


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [0.01, 0.05, 0.1])
def test_noise_and_a_warming_card_are_no_change(jitter: float) -> None:
    warming = 1 + 0.02 * (1 - np.exp(-np.arange(4000) / 400))
    for seed in range(3):
        assert noticed_after(jittered(4000, jitter, seed) * warming, np.full(4000, 200.0)) is None


def starved(factor: float, seed: int, *, counts: bool) -> int | None:
    """As `noticed_after`, on a machine without time for us: samples up to 5 s apart or two at once, and an iteration
    whose power runs from 70 to 240 W. factor: on its time, from the 1000th iteration on. counts: there is a counter."""
    rng, watch, meter = np.random.default_rng(seed), DriftWatch(REFERENCE), Meter()
    ends_s = np.cumsum(0.5 * np.where(np.arange(4000) < 1000, 1.0, factor))
    t_s, done = 0.0, 0
    while (t_s := t_s + float(np.clip(np.exp(rng.normal(0.0, 1.2)), 0.02, 5.0))) < ends_s[-1]:
        count = int(np.searchsorted(ends_s, t_s, side="right"))
        power_w = float(rng.choice([70.0, 210.0, 240.0, 120.0], p=[0.1, 0.3, 0.52, 0.08]))
        energy_j = 100.0 * float(np.interp(t_s, ends_s, np.arange(1, 4001)))
        reading = Reading(t_s=t_s, power_w=power_w, energy_j=energy_j if counts else None)
        marks = (Mark(t_s=float(ends_s[count - 1]), iterations=float(count)),) if count > done else ()
        done = count
        if watch.add(meter.of(Sample(t_s=t_s, readings=(reading,)), marks)) is not None:
            return count
    return None


@pytest.mark.slow
@pytest.mark.parametrize("counts", [True, False])
def test_starvation_alone_is_no_change_of_the_workload(counts: bool) -> None:
    assert [starved(1.0, seed, counts=counts) for seed in range(4)] == [None] * 4


def test_a_change_is_noticed_by_the_iterations_own_time_however_late_the_samples_come() -> None:
    for seed in range(4):
        noticed = starved(1.3, seed, counts=True)
        assert 1000 < noticed <= 1060


@pytest.mark.slow
def test_a_changed_workload_is_tuned_anew_and_the_report_says_why() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=1100, change=WorkloadChange(at=500, time=1.3))
    outcome = tune(job, TuneConfig(metric=EDS), "golden")
    assert states(outcome).count(State.BASELINE) == 2
    assert states(outcome)[-2:] == [State.HOLDING, State.DONE]
    warned = warnings(outcome)
    assert len(warned) == 1
    assert warned[0].startswith("tuning anew: the workload has changed: +")
    change_pct = float(warned[0].split("+")[1].split(" %")[0])
    assert change_pct == pytest.approx(30, abs=10)  # the block in which it changed is counted with it
    warned_s = announced(outcome, events.Warned)[0].t_s
    baselines = announced(outcome, events.BaselineMeasured)
    measured = next(event.measurement for event in baselines if event.t_s > warned_s)
    assert measured.setting == (260.0,)
    assert measured.period_s == pytest.approx(1.3 * RESNET50.time_s(260.0), rel=0.01)


@pytest.mark.slow
def test_a_cap_is_kept_where_nothing_may_be_tuned_anew() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=700, change=WorkloadChange(at=500, time=1.3))
    outcome = tune(job, TuneConfig(metric=EDS, retune="never"), "golden")
    assert states(outcome).count(State.BASELINE) == 1


def test_time_and_a_request_are_reasons_too() -> None:
    sample = Meter().of(Sample(t_s=50.0, readings=()))
    hold = Hold(REFERENCE, 0.0, settle_s=1.0, retune=40.0)
    assert hold.why_anew(sample) == "it is time for another try"
    hold = Hold(REFERENCE, 0.0, settle_s=1.0, retry_s=40.0)
    assert hold.why_anew(sample) == "it is time for another try"
    hold = Hold(REFERENCE, 0.0, settle_s=1.0)
    assert hold.why_anew(sample) is None
    hold.ask()
    assert hold.why_anew(sample) == "it was asked for"


@pytest.mark.slow
def test_the_baseline_is_measured_again_at_growing_intervals_and_the_numbers_are_renewed() -> None:
    outcome = tune(SimulatedJob(profile=RESNET50, iterations=5600), TuneConfig(metric=EDS), "golden")
    decided = announced(outcome, events.Decided)
    assert [event.setting for event in decided] == [decided[0].setting] * len(decided)
    gaps_s = np.diff([event.t_s for event in decided])
    assert len(decided) == 3
    assert gaps_s[0] > 900
    assert gaps_s[1] > 1.8 * gaps_s[0]
    again = decided[-1]
    assert again.baseline.start_s > decided[-2].t_s
    tallies = announced(outcome, events.Tally)
    searched = next(event for event in tallies if event.t_s > decided[0].t_s)
    assert tallies[-1].exploration_s > searched.exploration_s  # what it costs is counted


def acted_on_s(hold: Hold, since_s: float) -> float | None:
    """When a job that takes twice its time from the beginning on is tuned anew."""
    metering = Metering()
    for number in range(1, 4000):
        t_s = since_s + number / 20
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0, energy_j=200.0 * t_s),))
        marks = (Mark(t_s=t_s, iterations=number / 20),) if number % 20 == 0 else ()
        metered = metering.meter(sample, marks, "steps", (260.0,))
        if hold.why_anew(metered):
            return t_s
    return None


def test_a_change_is_acted_on_only_after_the_rest() -> None:
    assert acted_on_s(Hold(REFERENCE, 0.0, retune="auto", settle_s=0.0, rest_s=60.0), 0.0) == 60.0


def test_a_search_that_came_to_no_decision_gives_the_first_one_no_rest() -> None:
    plan = HoldPlan("auto", settle_s=0.0)
    plan.begin_search(REFERENCE, 0.0)  # the job was still warming up
    plan.begin_search(REFERENCE, 100.0)
    first = acted_on_s(plan.hold(Keep(settings=(260.0,), reference=REFERENCE), 160.0, checked=False), 160.0)
    assert first < 160.0 + 15.0 + 15.0, "the alarm, and a quarter of the search's minute"
    plan.begin_search(REFERENCE, 200.0)
    assert acted_on_s(plan.hold(Keep(settings=(260.0,), reference=REFERENCE), 260.0, checked=False), 260.0) == 320.0


def test_pauses_of_the_job_are_no_change_of_the_workload() -> None:
    watch, meter, t_s = DriftWatch(REFERENCE), Meter(), 0.0
    for number in range(1, 400):
        paused = number % 4 == 0
        t_s += 5.0 if paused else 0.5
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0),))
        metered = meter.of(sample, (Mark(t_s=t_s, iterations=float(number)),))
        assert watch.add(replace(metered, paused=paused)) is None


def heard(factors: Sequence[float]) -> int | None:
    """The number of the iteration after which the watch says something. factors: of their times; a long one holds a
    pause. Each takes the same power, as an energy counter tells it."""
    watch, meter, t_s, energy_j = DriftWatch(REFERENCE), Metering(), 0.0, 0.0
    for number, factor in enumerate(factors, start=1):
        t_s, energy_j = t_s + 0.5 * factor, energy_j + 100.0 * factor
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0, energy_j=energy_j),))
        metered = meter.meter(sample, (Mark(t_s=t_s, iterations=float(number)),), "steps", (260.0,))
        if watch.add(metered) is not None:
            return number
    return None


@pytest.mark.parametrize(("fast", "queued"), [(0.69, 4), (0.5, 8), (0.3, 8)])
def test_what_a_stall_leaves_to_be_counted_in_a_hurry_is_no_change_of_the_workload(fast: float, queued: int) -> None:
    assert heard(10 * [*30 * [1.0], 12.0, *queued * [fast]]) is None


def test_a_job_that_is_faster_after_a_pause_is_noticed_soon_all_the_same() -> None:
    noticed = heard([*200 * [1.0], 12.0, *100 * [0.7]])
    assert 201 < noticed <= 240
