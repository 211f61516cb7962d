"""What a run came to, checked by hand on small examples."""

import math
from dataclasses import replace

import pytest

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event, IdleEstimated, NodeMetered, State
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo, Measurement, Prediction, Trial, TrialState
from autocap.reports.summary.gains import METRICS
from autocap.reports.summary.record import ProgressSummary, StateSpan, Summary
from autocap.reports.summary.summarise import node_summary, standardised, summarise
from tests.doubles import logs
from tests.doubles.feeds import measurement, prediction, trial_of


def window(cap_w: float, energy_j: float, period_s: float, *, error: float = 0.01, valid: bool = True) -> Measurement:
    """Of ten seconds."""
    errors = {"energy_error": error, "period_error": error}
    found = measurement(energy_j, period_s, cap_w=cap_w, iterations=10.0 / period_s, **errors)
    return replace(found, power_rel_stderr=error, valid=valid)


def complete(found: Measurement) -> events.TrialEnded:
    return events.TrialEnded(t_s=30.0, trial=trial_of(found, 0.9))


GPU = GpuInfo(index=0, uuid="GPU-1", name="Test", cap_range=CapRange(min_w=100.0, max_w=260.0, default_w=250.0))
BASELINE = window(260.0, 100.0, 1.0)
MEASURED = events.BaselineMeasured(t_s=20.0, measurement=BASELINE)
STARTED = replace(
    logs.STARTED,
    pid=42,
    started_at="2025-01-02T03:04:05+00:00",
    metric=events.MetricInfo(name="energy"),
    strategy="linear",
    strategy_options=(events.OptionValue(name="points", value=5),),
)
FOUND = events.DeviceFound(t_s=0.1, kind="emulated", emulated=True, gpus=(GPU,), original=(260.0,))
# The search took 100 iterations at 110 J and 1.1 s, beyond the baseline's 100 J and 1 s.
TALLY = events.Tally(
    t_s=600.0,
    since_s=10.0,
    elapsed_s=590.0,
    energy_j=45_000.0,
    iterations=500.0,
    counted_s=590.0,
    counted_j=45_000.0,
    exploration_s=110.0,
    exploration_energy_j=11_000.0,
    exploration_iterations=100.0,
)
KEPT = events.Decided(
    t_s=150.0,
    setting=200.0,
    confirmed=True,
    reason="better",
    measurement=window(200.0, 80.0, 1.05),
    baseline=BASELINE,
)
WHOLE: list[Event] = [
    STARTED,
    events.StateEntered(t_s=0.0, state=State.WAITING),
    FOUND,
    events.ProgressFound(t_s=2.0, kind="steps", confidence="high"),
    events.StateEntered(t_s=10.0, state=State.BASELINE),
    MEASURED,
    events.StateEntered(t_s=20.0, state=State.SEARCHING),
    complete(window(200.0, 80.0, 1.05)),
    events.TrialEnded(t_s=40.0, trial=Trial(setting=100.0, state=TrialState.FAILED, reason="no step")),
    events.Warned(t_s=50.0, text="careful"),
    events.StateEntered(t_s=100.0, state=State.CONFIRMING),
    KEPT,
    events.StateEntered(t_s=150.0, state=State.HOLDING),
    TALLY,
    events.LimitRestored(t_s=601.0, uuid="GPU-1", final=260.0, restored=True),
    events.RunEnded(t_s=602.0, ended_because="the command ended", exit_status=0),
]


def with_metric(name: str, *log: Event, k: float | None = None) -> Summary:
    return summarise([replace(STARTED, metric=events.MetricInfo(name=name, k=k)), FOUND, *log])


def test_what_was_said_at_the_start_is_passed_on() -> None:
    summary = summarise(WHOLE)
    assert (summary.mode, summary.command, summary.pid) == ("run", ("python", "train.py"), 42)
    assert summary.strategy.options == (events.OptionValue(name="points", value=5),)
    assert summary.progress == ProgressSummary(kind="steps", confidence="high")
    assert (summary.warnings, summary.ended_because) == (("careful",), "the command ended")


def test_a_device_is_described_with_the_limits_before_and_after() -> None:
    device = summarise(WHOLE).device
    assert device.emulated
    gpu = device.gpus[0]
    assert (gpu.cap_min_w, gpu.cap_max_w, gpu.cap_default_w) == (100.0, 260.0, 250.0)
    assert (gpu.cap_original_w, gpu.cap_final_w, gpu.restored) == (260.0, 260.0, True)


def test_states_last_until_the_next_one_and_the_end() -> None:
    assert summarise(WHOLE).states == (
        StateSpan(name="WAITING", start_s=0.0, end_s=10.0),
        StateSpan(name="BASELINE", start_s=10.0, end_s=20.0),
        StateSpan(name="SEARCHING", start_s=20.0, end_s=100.0),
        StateSpan(name="CONFIRMING", start_s=100.0, end_s=150.0),
        StateSpan(name="HOLDING", start_s=150.0, end_s=602.0),
    )


def test_gains_compare_the_interleaved_windows_with_both_errors() -> None:
    versus = summarise(WHOLE).versus_baseline
    assert versus.energy_pct == pytest.approx(-20.0)
    assert versus.energy_stderr_pct == pytest.approx(80.0 * 0.01 * math.sqrt(2))
    assert versus.time_pct == pytest.approx(5.0)
    assert versus.time_stderr_pct == pytest.approx(105.0 * 0.01 * math.sqrt(2))
    assert versus.metric_pct == pytest.approx(-20.0)


def test_net_numbers_include_the_search() -> None:
    versus = summarise(WHOLE).versus_baseline
    assert versus.net_energy_j == pytest.approx(45_000 - 100 * 500)
    assert versus.net_metric_pct == pytest.approx(-10.0)  # 90 J an iteration in all
    assert versus.net_metric_stderr_pct == pytest.approx(0.9)  # 1 % of the baseline's, on 90 %
    assert versus.break_even_s == pytest.approx(150.0 + 50 * 1.05)  # when the surplus of the search is saved again


def test_edp_breaks_even_where_the_product_of_the_means_does() -> None:
    versus = with_metric("edp", MEASURED, KEPT, TALLY).versus_baseline
    n = (versus.break_even_s - 150.0) / 1.05
    energy, time = (11_000 + 80 * n) / (100 + n) / 100, (110 + 1.05 * n) / (100 + n)
    assert energy * time == pytest.approx(1.0)
    assert n > 50  # the longer iterations count as well


def test_a_search_that_cost_nothing_has_paid_for_itself_at_its_end() -> None:
    cheap = replace(TALLY, exploration_s=100.0, exploration_energy_j=9_000.0)
    versus = summarise([STARTED, KEPT, cheap]).versus_baseline
    assert versus.break_even_s == 150.0


def test_what_is_kept_without_a_gain_never_breaks_even() -> None:
    worse = replace(KEPT, measurement=window(200.0, 100.0, 1.05))
    versus = with_metric("edp", worse, TALLY).versus_baseline
    assert versus.break_even_s is None


def test_without_a_kept_cap_nothing_is_claimed_net() -> None:
    put_back = replace(KEPT, setting=None, confirmed=False, reason="no gain", measurement=window(200.0, 99.0, 1.0))
    summary = with_metric("energy", MEASURED, put_back, TALLY)
    assert summary.chosen is None
    assert (summary.versus_baseline.energy_pct, summary.versus_baseline.break_even_s) == (None, None)
    assert summary.versus_baseline.net_energy_j is None  # it would be what the machine has drifted meanwhile
    assert (summary.versus_baseline.net_metric_pct, summary.versus_baseline.net_metric_stderr_pct) == (None, None)


def test_the_last_decision_counts() -> None:
    later = replace(KEPT, t_s=400.0, setting=180.0, measurement=window(180.0, 75.0, 1.1))
    chosen = summarise([*WHOLE[:-3], later]).chosen
    assert chosen.setting == (180.0,)
    undone = replace(KEPT, t_s=500.0, setting=None, confirmed=False, measurement=None)
    assert summarise([*WHOLE[:-3], later, undone]).chosen is None


def test_the_baseline_shown_is_the_first_and_a_trial_is_judged_by_the_one_before_it() -> None:
    second = window(260.0, 200.0, 2.0)  # a workload twice as heavy
    summary = with_metric(
        "energy",
        MEASURED,
        complete(window(200.0, 80.0, 1.05)),
        events.BaselineMeasured(t_s=50.0, measurement=second),
        complete(window(180.0, 140.0, 2.2)),
    )
    assert summary.baseline == BASELINE
    assert next(point.energy for point in summary.pareto if point.setting == (180.0,)) == pytest.approx(0.70)


def test_repeats_of_a_cap_that_agree_count_by_their_errors_as_if_these_belonged_to_one_value() -> None:
    summary = with_metric(
        "energy",
        MEASURED,
        complete(window(200.0, 80.0, 1.05, error=0.01)),
        complete(window(200.0, 81.0, 1.05, error=0.02)),
    )
    best = {one.metric: one for one in summary.best_by_metric}["energy"]
    cost = (0.80 * 4 + 0.81 * 1) / 5
    own = 0.02 / math.sqrt(5)
    assert best.cost == pytest.approx(cost)
    assert best.cost_stderr == pytest.approx(cost * math.hypot(own, BASELINE.energy_rel_stderr))
    assert best.source == "measured"


def test_repeats_that_disagree_are_known_no_better_than_they_scatter_and_neither_has_the_say() -> None:
    """As on a busy machine: 0.855 ± 0.037 and 0.635 ± 0.036 of the baseline's energy."""
    summary = with_metric(
        "energy",
        events.BaselineMeasured(t_s=20.0, measurement=replace(BASELINE, energy_rel_stderr=0.0, period_rel_stderr=0.0)),
        complete(window(200.0, 85.5, 1.00, error=0.05)),
        complete(window(200.0, 63.5, 1.30, error=0.05)),
    )
    best = {one.metric: one for one in summary.best_by_metric}
    assert best["energy"].cost == pytest.approx(0.745), "as many iterations of the one as of the other"
    scatter = (0.855 - 0.635) / 2  # half of what is between them; and the baseline, measured once, scatters as a window
    assert best["energy"].cost_stderr == pytest.approx(scatter * math.sqrt(3), rel=0.05)
    (point,) = [one for one in summary.pareto if one.setting == (200.0,)] or [None]
    assert (point.energy, point.energy_stderr) == (best["energy"].cost, best["energy"].cost_stderr)
    assert best["edp"].cost == pytest.approx(point.energy * point.time), "one function feeds all tables"


def test_a_trials_error_has_the_baselines_in_it_wherever_it_is_stated() -> None:
    rough = replace(BASELINE, period_rel_stderr=0.57, energy_rel_stderr=0.43)
    summary = with_metric(
        "energy", events.BaselineMeasured(t_s=20.0, measurement=rough), complete(window(200.0, 72.5, 1.05))
    )
    best = {one.metric: one for one in summary.best_by_metric}["energy"]
    (point,) = [one for one in summary.pareto if one.setting == (200.0,)]
    assert best.cost_stderr == pytest.approx(0.725 * 0.43, rel=0.01)
    assert (point.energy_stderr, point.time_stderr) == (best.cost_stderr, pytest.approx(1.05 * 0.57, rel=0.01))


def test_every_metric_has_its_own_best_and_the_baseline_takes_part() -> None:
    summary = with_metric(
        "energy",
        MEASURED,
        complete(window(200.0, 80.0, 1.05)),  # eds(2) 0.925, eds(1.5) 0.967, edp 0.84, ed2p 0.882
        complete(window(120.0, 70.0, 1.60)),  # eds(2) 1.150, eds(1.5) 1.300, edp 1.12, ed2p 1.792
    )
    best = {one.metric: one.setting for one in summary.best_by_metric}
    assert best == dict.fromkeys(("edp", "ed2p", "eds_1.5", "eds_2"), (200.0,)) | {"energy": (120.0,)}
    only_slower = with_metric("energy", MEASURED, complete(window(120.0, 95.0, 2.0)))
    assert {one.metric: one.setting[0] for one in only_slower.best_by_metric}["edp"] == 260.0


def test_the_front_holds_what_nothing_beats_in_both_and_leaves_invalid_windows_out() -> None:
    summary = with_metric(
        "energy",
        MEASURED,
        complete(window(200.0, 80.0, 1.05)),
        complete(window(180.0, 85.0, 1.10)),  # beaten by 200 W in both
        complete(window(150.0, 70.0, 1.40)),
        complete(window(120.0, 10.0, 0.10, valid=False)),
    )
    assert [(point.setting[0], round(point.energy, 9), round(point.time, 9)) for point in summary.pareto] == [
        (150.0, 0.70, 1.40),
        (200.0, 0.80, 1.05),
        (260.0, 1.0, 1.0),
    ]


def hoping(*caps: Prediction) -> Summary:
    """A run that measured 200 W and predicted other caps."""
    found = [MEASURED, complete(window(200.0, 80.0, 1.05))]
    return with_metric("energy", *found, events.Predicted(t_s=90.0, caps=caps))


def test_a_predicted_cap_is_the_best_only_where_it_is_better_by_more_than_the_errors() -> None:
    summary = hoping(prediction(140.0, 0.70, 1.25), prediction(190.0, 0.795, 1.05))
    best = {one.metric: one for one in summary.best_by_metric}
    # energy 0.70 against 0.80; edp 0.875 against 0.84
    assert (best["energy"].setting, best["energy"].source) == ((140.0,), "predicted")
    assert (best["energy"].cost, best["energy"].cost_stderr) == (pytest.approx(0.70), pytest.approx(0.007))
    assert (best["edp"].setting, best["edp"].source) == ((200.0,), "measured")
    unsure = hoping(prediction(140.0, 0.70, 1.25, energy_error=0.2, time_error=0.2)).best_by_metric[0]
    assert (unsure.setting, unsure.source) == ((200.0,), "measured")


def test_a_cap_that_was_measured_is_never_shown_as_predicted() -> None:
    summary = hoping(prediction(200.0, 0.10, 0.10), prediction(260.0, 0.10, 0.10))
    assert {one.source for one in (*summary.best_by_metric, *summary.pareto)} == {"measured"}


def test_predictions_extend_the_front_but_beat_nothing_that_was_measured() -> None:
    summary = hoping(
        prediction(140.0, 0.70, 1.25),
        prediction(150.0, 0.90, 1.30),  # beaten by 140 W
        prediction(195.0, 0.797, 1.051),  # says no more than 200 W does
        prediction(210.0, 0.60, 1.00),  # better than 200 W in both, if it is true
    )
    assert [(point.setting[0], point.source) for point in summary.pareto] == [
        (200.0, "measured"),
        (210.0, "predicted"),
        (260.0, "measured"),
    ]
    without = hoping(prediction(140.0, 0.70, 1.25), prediction(150.0, 0.90, 1.30), prediction(195.0, 0.797, 1.051))
    assert [(point.setting[0], point.source) for point in without.pareto] == [
        (140.0, "predicted"),
        (200.0, "measured"),
        (260.0, "measured"),
    ]


def test_a_failed_trial_names_its_cap_for_every_device() -> None:
    two = replace(FOUND, gpus=(GPU, replace(GPU, index=1, uuid="GPU-2")), original=(260.0, None))
    summary = summarise([STARTED, two, events.TrialEnded(t_s=4.0, trial=Trial(setting=150.0, state=TrialState.FAILED))])
    assert (summary.trials[0].setting, summary.trials[0].measurement) == ((150.0, 150.0), None)


def test_a_killed_run_is_summarised_as_far_as_it_came() -> None:
    for length in range(1, len(WHOLE)):
        summary = summarise(WHOLE[:length])
        assert summary.ended_because == "killed or still running"
        assert (summary.baseline is not None) == (length > 5)
        assert (summary.chosen is not None) == (length > 11)
        assert summary.device is None or summary.device.gpus[0].restored == (length > 14)


def test_a_run_without_a_device_or_progress_has_neither() -> None:
    summary = summarise([STARTED, events.RunEnded(t_s=9.0, ended_because="no device", exit_status=0)])
    assert (summary.device, summary.progress, summary.baseline, summary.totals) == (None, None, None, None)
    assert (summary.versus_baseline, summary.best_by_metric, summary.pareto) == (None, (), ())


def test_a_metric_of_a_later_version_is_refused_without_quoting_it() -> None:
    message = "the run's metric is not one that this autocap can use; read it with a newer one"
    with pytest.raises(RunDirectoryError, match=f"^{message}$"):
        with_metric("carbon", MEASURED)


def test_the_metrics_compared_are_those_of_the_contract() -> None:
    assert list(METRICS) == ["energy", "edp", "ed2p", "eds_1.5", "eds_2"]
    assert METRICS["eds_1.5"] == Metric(name="eds", k=1.5)


def test_the_net_error_holds_how_far_the_baselines_of_the_run_drifted() -> None:
    drifted = replace(BASELINE, start_s=100.0, energy_per_iteration_j=1.06 * BASELINE.energy_per_iteration_j)
    kept = replace(KEPT, measurement=window(200.0, 80.0, 1.0), baseline=drifted)
    first, second = (events.BaselineMeasured(t_s=20.0, measurement=one) for one in (BASELINE, drifted))
    still = with_metric("energy", second, kept, TALLY).versus_baseline
    moved = with_metric("energy", first, second, kept, TALLY).versus_baseline
    assert still.net_metric_pct == moved.net_metric_pct
    assert (still.net_metric_stderr_pct or 0.0) < 1.5
    assert (moved.net_metric_stderr_pct or 0.0) > 3.0


@pytest.mark.parametrize(
    "ending", [events.StateEntered(t_s=60.0, state=State.DONE), events.RunEnded(t_s=60.0, ended_because="SIGTERM")]
)
def test_a_search_that_was_cut_short_claims_nothing_net(ending: Event) -> None:
    searching = (MEASURED, TALLY)
    under_way, ended = with_metric("energy", *searching), with_metric("energy", *searching, ending)
    assert under_way.versus_baseline.net_energy_j is not None
    assert (ended.versus_baseline.net_energy_j, ended.versus_baseline.net_metric_pct) == (None, None)


def test_what_was_predicted_from_trials_that_were_withdrawn_goes_with_them() -> None:
    expected = prediction(165.0, 0.66, 0.653, energy_error=0.03, time_error=0.028)
    begun = MEASURED
    told = [begun, complete(window(200.0, 80.0, 1.05)), events.Predicted(t_s=90.0, caps=(expected,))]
    gone = events.TrialWithdrawn(t_s=95.0, setting=200.0, since_s=0.0, reason="the job has changed since")
    assert [one.source for one in with_metric("energy", *told).pareto].count("predicted") == 1
    for log in ([*told, gone], [*told, events.BaselineRefined(t_s=94.0, measurement=BASELINE, trials=()), gone]):
        summary = with_metric("energy", *log)
        assert {one.source for one in (*summary.pareto, *summary.best_by_metric)} == {"measured"}
    again = events.Predicted(t_s=99.0, caps=(expected,))
    assert "predicted" in {one.source for one in with_metric("energy", *told, gone, again).pareto}


def test_a_row_that_cannot_be_beside_its_baseline_is_said_not_to_be_comparable_and_is_in_no_table() -> None:
    """A baseline taken while other work starved the job makes of any lower cap one that is faster."""
    summary = with_metric("energy", MEASURED, complete(window(200.0, 45.0, 0.8)))
    (trial,) = summary.trials
    assert (trial.state, trial.cost, trial.measurement) == (TrialState.FAILED, None, None)
    assert trial.reason.startswith("not comparable with its baseline: an iteration at 200 W takes 0.80 times as long")
    assert {one.setting for one in (*summary.pareto, *summary.best_by_metric)} == {BASELINE.setting}
    rough = replace(BASELINE, period_rel_stderr=0.3)
    unsure = with_metric(
        "energy", events.BaselineMeasured(t_s=20.0, measurement=rough), complete(window(200.0, 45.0, 0.8))
    )
    assert unsure.trials[0].state is TrialState.COMPLETE, "within the error of the baseline it can be"


METERED = NodeMetered(t_s=0.0, source="ipmi", whole=True, refresh_s=1.0, idle_w=None, standard_idle_w=None)
ESTIMATED = IdleEstimated(t_s=5.0, power_w=50.0, seen_s=4.0)


def test_without_a_source_there_is_nothing_to_say() -> None:
    assert node_summary(None, None, measurement(), None) is None


def test_what_the_user_gave_goes_before_what_was_seen() -> None:
    seen = node_summary(METERED, ESTIMATED, measurement(), None)
    given = node_summary(replace(METERED, idle_w=80.0), ESTIMATED, measurement(), None)
    assert (seen.idle_w, seen.idle_source, seen.idle_seen_s, seen.idle_share) == (50.0, "estimated", 4.0, 0.25)
    assert (given.idle_w, given.idle_source, given.idle_seen_s, given.idle_share) == (80.0, "given", None, 0.4)


def test_the_difference_of_idle_powers_is_taken_off_for_the_time_that_an_iteration_took() -> None:
    metered = replace(METERED, idle_w=80.0, standard_idle_w=30.0)
    found = node_summary(metered, None, measurement(100.0, 0.5), measurement(90.0, 0.6, cap_w=200.0))
    assert [one.energy_per_iteration_j for one in found.standard] == [pytest.approx(75.0), pytest.approx(60.0)]


def test_where_nobody_knows_the_idle_power_nothing_is_taken_off() -> None:
    found = node_summary(replace(METERED, standard_idle_w=30.0), None, measurement(), None)
    assert found.standard == ()


@pytest.mark.parametrize(("corr", "stderr_j"), [(0.0, math.hypot(1.0, 0.25)), (1.0, 0.75), (-1.0, 1.25)])
def test_errors_of_time_and_energy_that_go_together_cancel(corr: float, stderr_j: float) -> None:
    found = standardised(measurement(100.0, 0.5, energy_error=0.01, period_error=0.01, corr=corr), 50.0)
    assert found.stderr_j == pytest.approx(stderr_j)
