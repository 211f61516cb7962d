"""The beginning of a search: from a few iterations, or at the cap that an earlier run kept.

A trial at another cap for a period that nothing else proves, in whole jobs in virtual time.
"""

from dataclasses import replace
from functools import cache

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.comparison import scattering_as
from autocap.controller.waiting import FirstLook, Remembered
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.events import State
from autocap.events.settled import settled
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.progress.period.period_ratio import Tried
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Measurement, SensorInfo
from autocap.session.warm_start import WarmStartData, curve_of
from autocap.testing.logged_sensors import LOGGED
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.feeds import measurement, metered, samples, trial_of
from tests.doubles.logs import announced, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
ENERGY, EDP, EDS = Metric(name="energy"), Metric(name="edp"), Metric(name="eds", k=2.0)
SENSOR = SensorInfo(update_s=0.1, window_s=0.02, settle_s=0.5)


@cache
def searched(metric: Metric) -> Outcome:
    """A whole job of 600 iterations, without anything in its way."""
    return tune(SimulatedJob(profile=RESNET50, iterations=600), TuneConfig(metric=metric), "model")


def looked(*, kind: str = "steps", power_w: float = 200.0, seconds: float = 10.0) -> Measurement | None:
    look = FirstLook((260.0,), SENSOR, 8)
    feed = metered(samples(power_w=power_w, seconds=seconds), StepProgress())
    return next((found for one in feed if (found := look.add(one, kind)) is not None), None)


def at_top_s(outcome: Outcome) -> float:
    """How long the limit found on arrival held before something was decided, seconds."""
    since_s, total_s = 0.0, 0.0
    for event in outcome.log.events:
        match event:
            case events.CapSet(t_s=t_s, setting=caps_w):
                total_s, since_s = total_s + max(0.0, t_s - since_s), t_s if caps_w[0] == 260.0 else float("inf")
            case events.Decided(t_s=t_s):
                return total_s + max(0.0, t_s - since_s)
    raise AssertionError("nothing was decided")


def test_two_iterations_show_a_rough_baseline_and_its_errors_say_that_it_is_rough() -> None:
    found = looked()
    assert (found.period_s, found.power_w) == (pytest.approx(0.5), pytest.approx(200.0))
    assert found.duration_s <= 1.5
    assert min(found.period_rel_stderr, found.energy_rel_stderr, found.power_rel_stderr) >= 0.03


@pytest.mark.parametrize(
    ("kind", "power_w"), [("speed", 200.0), ("steps", 60.0)], ids=["a proxy", "a draw that may not be training"]
)
def test_what_says_too_little_is_no_rough_baseline(kind: str, power_w: float) -> None:
    assert looked(kind=kind, power_w=power_w) is None


def test_a_period_has_the_errors_that_its_many_cycles_show() -> None:
    found = looked(kind="period")
    assert found.iterations >= 8
    assert found.period_rel_stderr < 0.01


@pytest.mark.slow
def test_a_first_iteration_that_takes_long_is_not_taken_for_the_usual_one() -> None:
    job = SimulatedJob(profile=RESNET50, warm_up_iterations=3, warm_up_factor=6.0, iterations=600)
    outcome = tune(job, TuneConfig(metric=ENERGY), "model", stop_when_held=True)
    rough = announced(outcome, events.BaselineMeasured)[0]
    assert rough.rough
    assert rough.measurement.period_s == pytest.approx(RESNET50.default_time_s, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ENERGY, EDP], ids=["energy", "edp"])
def test_the_limit_found_on_arrival_holds_for_seconds_only_and_the_cap_kept_is_as_good(metric: Metric) -> None:
    outcome = searched(metric)
    assert states(outcome)[:4] == [State.WAITING, State.BASELINE, State.SEARCHING, State.CONFIRMING]
    assert at_top_s(outcome) < 10.0
    assert regret_pct(RESNET50, metric, outcome.grid, outcome.final_cap_w, 260.0) < 0.5


def test_all_that_is_stated_in_the_end_rests_on_the_baseline_that_was_measured_in_turn() -> None:
    outcome = searched(ENERGY)
    (refined,) = announced(outcome, events.BaselineRefined)
    decided = outcome.decided
    assert decided.baseline == refined.measurement
    known = settled(outcome.log.events)
    first = next(event for event in known if isinstance(event, events.BaselineMeasured))
    assert (first.measurement, first.rough) == (refined.measurement, False)
    for event in known:
        if isinstance(event, events.TrialEnded) and event.trial.measurement is not None:
            assert event.trial.cost == pytest.approx(ENERGY.cost(event.trial.measurement, refined.measurement).value)


@pytest.mark.slow
def test_a_rough_baseline_that_was_far_off_is_found_out_and_the_search_goes_on_from_the_true_one() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=900, warm_up_iterations=12, warm_up_factor=1.6, jitter=0.01)
    outcome = tune(job, TuneConfig(metric=ENERGY), "model")
    rough = announced(outcome, events.BaselineMeasured)[0]
    refined = announced(outcome, events.BaselineRefined)[0]
    assert rough.measurement.period_s > 1.2 * refined.measurement.period_s
    assert refined.measurement.period_s == pytest.approx(RESNET50.default_time_s, rel=0.02)
    assert not announced(outcome, events.TrialWithdrawn), "it costs itself, not the trials"
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, ENERGY, outcome.grid, outcome.final_cap_w, 260.0) < 1.0


def warming_up(seconds: float, factor: float, seed: int) -> Outcome:
    """A job that gets to its speed slowly, from so many times its iteration's time."""
    iterations = round(seconds / RESNET50.default_time_s / ((1 + factor) / 2))
    job = SimulatedJob(
        profile=RESNET50, iterations=900, warm_up_iterations=iterations, warm_up_factor=factor, jitter=0.01
    )
    return tune(job, TuneConfig(metric=ENERGY), "model", seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "factor"), [(30.0, 3.5), (60.0, 2.0), (80.0, 3.5), (80.0, 1.6)])
def test_a_job_that_warms_up_slowly_is_not_taken_for_a_machine_that_others_use(seconds, factor) -> None:
    outcome = warming_up(seconds, factor, seed=1)
    assert regret_pct(RESNET50, ENERGY, outcome.grid, outcome.final_cap_w, 260.0) < 1.0
    assert announced(outcome, events.Decided)[0].t_s < seconds + 150.0
    late = [event.trial.measurement for event in outcome.trials if event.t_s > seconds + 60.0]
    assert all(shown.period_rel_stderr < 0.02 for shown in late if shown is not None), "its windows agree by then"


@pytest.mark.slow
def test_where_the_sensor_shows_little_the_limit_found_on_arrival_still_holds_for_half_a_minute_only() -> None:
    """A fifth of the power is seen: two iterations show it to 76 %, and a minute to 1 %."""
    job = SimulatedJob(profile=profiles.load("quadro-rtx-6000/inception3"), iterations=500)
    node, config = SimulatedNode(sensor=LOGGED["laptop"], energy_counter=False), TuneConfig(metric=EDS)
    jobs = {seed: tune(job, config, "model", node=node, seed=seed, stop_when_held=True) for seed in range(28, 34)}
    assert sum(map(at_top_s, jobs.values())) / len(jobs) < 35.0
    rough = announced(jobs[33], events.BaselineMeasured)[0]
    refined = announced(jobs[33], events.BaselineRefined)[0]
    true_j = job.profile.default_time_s * float(job.profile.power_w(260.0))
    assert rough.measurement.energy_per_iteration_j < 0.93 * refined.measurement.energy_per_iteration_j
    error_j = refined.measurement.energy_rel_stderr * true_j
    assert abs(refined.measurement.energy_per_iteration_j - true_j) < 2 * error_j


@pytest.mark.slow
def test_a_rough_baseline_that_a_long_search_looks_at_again_is_not_measured_for_long() -> None:
    job = SimulatedJob(profile=profiles.load("quadro-rtx-6000/vgg19"), iterations=453)
    node = SimulatedNode(sensor=LOGGED["laptop"], energy_counter=False)
    outcome = tune(job, TuneConfig(metric=EDP), "linear", node=node, seed=22, stop_when_held=True)
    refined = announced(outcome, events.BaselineRefined)[0]
    before = [event.state for event in announced(outcome, events.StateEntered) if event.t_s < refined.t_s]
    assert State.CONFIRMING not in before
    assert refined.measurement.duration_s < 30.0
    assert refined.measurement.energy_rel_stderr < 0.05


def test_by_a_rough_baseline_alone_no_search_ends_without_a_cap() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=600)
    outcome = tune(job, TuneConfig(metric=EDP), "fixed", options=[("cap", "100")])
    refined = announced(outcome, events.BaselineRefined)
    decided = outcome.decided
    assert decided.setting is None
    assert len(refined) == 1
    assert refined[0].measurement.iterations >= 8
    assert refined[0].t_s < decided.t_s + 1e-9


@pytest.mark.slow
def test_beside_a_limit_on_slowdown_the_baseline_is_measured_first() -> None:
    config = TuneConfig(metric=Metric(name="energy", max_slowdown=0.1))
    outcome = tune(SimulatedJob(profile=RESNET50, iterations=900), config, "model", stop_when_held=True)
    assert not announced(outcome, events.BaselineRefined)
    first = announced(outcome, events.BaselineMeasured)[0]
    assert not first.rough
    assert first.measurement.iterations >= 8


@pytest.mark.slow
def test_a_strategy_with_trials_of_its_own_length_has_its_baseline_first() -> None:
    outcome = tune(SimulatedJob(profile=RESNET50, iterations=900), TuneConfig(metric=ENERGY), "depo-golden")
    assert not announced(outcome, events.BaselineRefined)
    first = announced(outcome, events.BaselineMeasured)[0].measurement
    assert first.power_rel_stderr < 0.002, "no sample is missing from what was seen while it was waited for"


def test_a_short_window_scatters_no_less_than_a_long_one_beside_it() -> None:
    few = measurement(iterations=4, period_error=0.001, energy_error=0.02)
    many = measurement(iterations=16, period_error=0.004, energy_error=0.004)
    found = scattering_as(few, many)
    assert (found.period_rel_stderr, found.energy_rel_stderr) == (pytest.approx(0.008), 0.02)


# What an earlier run kept.


def remembered_run(metric: Metric) -> WarmStartData:
    curve = curve_of(searched(metric).log.events)
    assert curve is not None
    return WarmStartData(curves=(curve,))


@pytest.mark.slow
def test_the_second_run_holds_the_best_cap_from_its_first_second_and_confirms_it() -> None:
    earlier = remembered_run(ENERGY)
    job = SimulatedJob(profile=RESNET50, iterations=600)
    outcome = tune(job, TuneConfig(metric=ENERGY), "model", seed=5, earlier=earlier)
    first = announced(outcome, events.CapSet)[0]
    assert (first.t_s, first.setting) == (
        pytest.approx(0.0, abs=0.2),
        (earlier.best_w(ENERGY, outcome.grid, (260.0,)),),
    )
    confirming_s = next(event.t_s for event in outcome.log.events if getattr(event, "state", None) is State.CONFIRMING)
    back_s = next(event.t_s for event in outcome.log.events if getattr(event, "setting", None) == (260.0,))
    assert back_s >= confirming_s, "the limit found on arrival holds only where the cap is confirmed"
    assert at_top_s(outcome) < 10.0
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, ENERGY, outcome.grid, outcome.final_cap_w, 260.0) < 0.5


@pytest.mark.slow
def test_a_job_that_is_another_by_now_is_found_out_at_the_remembered_cap() -> None:
    earlier = remembered_run(ENERGY)
    other = profiles.load("quadro-rtx-6000/inception3")
    outcome = tune(SimulatedJob(profile=other, iterations=600), TuneConfig(metric=ENERGY), "model", earlier=earlier)
    (said,) = warnings(outcome)
    assert said.startswith("the job is not as it is remembered: ")
    first = announced(outcome, events.BaselineMeasured)[0]
    assert not first.rough
    assert regret_pct(other, ENERGY, outcome.grid, outcome.final_cap_w, 260.0) < 0.5


def test_nothing_is_held_that_was_not_measured_beside_the_limits_found_now() -> None:
    top, low = measurement(cap_w=260.0), measurement(80.0, 0.55, cap_w=170.0)
    known = [trial_of(top), trial_of(low)]
    assert Remembered.of(170.0, known, (260.0,)) is not None
    for cap_w, found_w in ((170.0, (250.0,)), (165.0, (260.0,)), (None, (260.0,)), (170.0, (260.0, 260.0))):
        assert Remembered.of(cap_w, known, found_w) is None


def test_a_remembered_baseline_moves_with_what_the_cap_shows_now() -> None:
    top, low = measurement(100.0, 0.5, cap_w=260.0), measurement(80.0, 0.55, cap_w=170.0)
    found = Remembered.of(170.0, [trial_of(top), trial_of(low)], (260.0,))
    now = measurement(82.0, 0.561, cap_w=170.0)
    assert found.doubt(now) is None
    assert found.baseline_beside(now).period_s == pytest.approx(0.51)
    assert found.baseline_beside(now).energy_per_iteration_j == pytest.approx(102.5)
    assert found.doubt(measurement(80.0, 0.66, cap_w=170.0)) == "+20 % time"


_EDP = Metric(name="edp")
PROFILE = profiles.load("tesla-v100/resnet50")  # 0.34 s, little more than three updates of the sensor
NODE = SimulatedNode(sensor=PRESETS["rtx-3090"], energy_counter=False)


def tuned(config: TuneConfig, *, end_s: float = 1200.0) -> Outcome:
    progress = PeriodProgress(PRESETS["rtx-3090"].info())
    job = SimulatedJob(profile=PROFILE, jitter=0.01)
    return tune(job, config, "model", node=NODE, seed=1, progress=progress, end_s=end_s, stop_when_held=True)


@pytest.mark.slow
def test_a_period_that_may_be_a_beat_is_proven_by_one_trial_and_tuned_by() -> None:
    outcome = tuned(TuneConfig(metric=_EDP))
    trial, back = announced(outcome, events.CapSet)[:2]
    limit_w = PROFILE.cap_range.default_w
    assert trial.setting[0] < limit_w
    assert back.setting == (limit_w,)
    assert back.t_s - trial.t_s < 30.0
    assert warnings(outcome)[0].startswith("a period of 0.34")
    found = announced(outcome, events.ProgressFound)[0]
    assert found.t_s > back.t_s  # nothing is counted before
    assert outcome.decided.confirmed
    assert regret_pct(PROFILE, _EDP, outcome.grid, outcome.final_cap_w, limit_w) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [TuneConfig(metric=_EDP, observe=True), TuneConfig(metric=replace(_EDP, max_slowdown=0.05))]
)
def test_nothing_is_tried_where_nothing_may_be_set_or_no_time_was_saved_up(config: TuneConfig) -> None:
    outcome = tuned(config, end_s=300.0)
    assert announced(outcome, events.CapSet) == []
    assert "one trial at another cap would decide it" in warnings(outcome)[-1]


@pytest.mark.parametrize("says", [Tried.UNCLEAR, Tried.REFUTED])
def test_a_trial_that_proves_nothing_leaves_the_limit_found_and_no_count(says, monkeypatch) -> None:
    monkeypatch.setattr("autocap.progress.period.period_ratio.tried", lambda *_, **__: (says, 0.7))
    outcome = tuned(TuneConfig(metric=_EDP), end_s=600.0)
    assert [event.setting for event in announced(outcome, events.CapSet)][1:] == [(PROFILE.cap_range.default_w,)]
    assert not announced(outcome, events.ProgressFound)
    assert not outcome.trials
    unlikely = "unlike beats of fast loads, which are not excluded"
    wanted = "it is not the job's own cycle" if says is Tried.REFUTED else unlikely
    assert wanted in warnings(outcome)[-1]
