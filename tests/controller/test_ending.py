"""A job that ends in the middle of a search: what is kept, and what is said."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from autocap import events
from autocap.config import QUICK_TARGET_STDERR, QUICK_TRIAL_SECONDS, TuneConfig
from autocap.controller.ending import Best
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.events import MetricInfo, State
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import Measurement
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from autocap.runlog.memory.store import Curve
from autocap.session.warm_start import WarmStartData, curve_of
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from bench.simulation.jobs import Outcome, exact, tune
from tests.controller.test_exploration import Second
from tests.doubles.feeds import measurement, trial_of
from tests.doubles.logs import announced, in_full, states

EDS = TuneConfig(metric=Metric(name="eds", k=2.0))
RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
ENERGY = Metric(name="energy")
SHORT = 60  # iterations: the search is in its confirmation when they are done


def before(iterations: float) -> WarmStartData:
    """An earlier run of the job that has measured no cap."""
    at_top = measurement(period_s=RESNET50.default_time_s)
    info = MetricInfo.of(ENERGY)
    curve = Curve(
        measured_at="2026-01-01T00:00:00+00:00",
        metric=info,
        progress="steps",
        baseline=at_top,
        points=(),
        cut_short=True,
        job_iterations=iterations,
    )
    return WarmStartData(curves=(curve,))


def ran(iterations: int, earlier: WarmStartData | None = None, **settings: object) -> Outcome:
    job = SimulatedJob(profile=RESNET50, iterations=iterations)
    config = TuneConfig(metric=ENERGY, **settings)  # type: ignore[arg-type]  # passed on as they are
    return tune(job, config, "model", earlier=earlier or WarmStartData())


def test_a_job_that_ends_before_its_search_is_told_how_much_was_lacking_the_best_so_far_and_what_would_do() -> None:
    outcome = ran(SHORT)
    (decided,) = announced(outcome, events.Decided)
    assert (decided.setting, decided.confirmed, decided.cut_short) == (None, False, True)
    assert decided.reason == (
        "the job ended about 10 s before the search would have; the best so far was 125 W (energy -33 ± 1 %), not "
        "confirmed; --quick or a job of 1 minute would do"
    )


def test_who_is_quick_already_is_only_told_of_a_longer_job() -> None:
    (decided,) = announced(ran(30, trial_s=QUICK_TRIAL_SECONDS, target_stderr=QUICK_TARGET_STDERR), events.Decided)
    assert "--quick" not in decided.reason
    assert decided.reason.endswith("not confirmed; a job of 2 minutes would do")


def test_a_job_that_ends_before_anything_was_measured_is_told_so() -> None:
    (decided,) = announced(ran(2), events.Decided)
    assert decided.reason.startswith("the job ended before its baseline was measured; --quick or a job of some")


def test_where_nothing_is_counted_the_reason_and_the_remedy_are_said() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=60)
    outcome = tune(job, TuneConfig(metric=ENERGY), "model", progress=StepProgress(), counter=lambda *_: lambda: None)
    (decided,) = announced(outcome, events.Decided)
    assert decided.reason == (
        "the job ended after 30 s without a count of its iterations: no optimiser step was seen; call autocap.step() "
        "once an iteration"
    )


def test_who_only_observes_is_told_of_no_search() -> None:
    assert announced(ran(SHORT, observe=True), events.Decided) == []


def test_near_the_end_that_is_remembered_the_best_cap_is_kept_unconfirmed() -> None:
    outcome = ran(SHORT, before(SHORT))
    (decided,) = announced(outcome, events.Decided)
    assert (decided.setting, decided.confirmed, decided.cut_short) == (outcome.final_cap_w, False, True)
    assert outcome.final_cap_w < 150
    assert "is the best so far, and the job ends in about" in decided.reason
    assert states(outcome)[-2:] == [State.HOLDING, State.DONE]


def test_a_cap_that_is_not_better_by_three_errors_is_not_kept_unconfirmed() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=SHORT, jitter=0.2)
    (decided,) = announced(tune(job, EDS, "model", earlier=before(SHORT)), events.Decided)
    assert (decided.setting, decided.cut_short) == (None, True)
    assert re.search(r"so far (was|than) [12]\d\d W \(eds [+-]\d+ ± \d+ %\), not confirmed", decided.reason)


@pytest.mark.slow
def test_where_the_end_is_known_trials_leave_time_for_a_confirmation() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=240, jitter=0.1)
    known, unknown = (tune(job, EDS, "model", earlier=earlier) for earlier in (before(240), WarmStartData()))
    assert [one.confirmed for one in announced(known, events.Decided)] == [True]
    assert [one.confirmed for one in announced(unknown, events.Decided)] == [False]


@pytest.mark.slow
def test_a_job_of_two_minutes_whose_steps_scatter_has_a_best_cap_with_an_error_that_holds() -> None:
    """No window of it is ever exact, and each of the first ones would last a minute."""
    eds = Metric(name="eds", k=2.0)
    job = SimulatedJob(profile=RESNET50, iterations=240, jitter=0.3)
    outcome = tune(job, TuneConfig(metric=eds), "model", seed=3)
    (decided,) = announced(outcome, events.Decided)
    found = re.search(r"so far (?:was|than) (\d+) W \(eds ([+-]\d+) ± (\d+) %\), not confirmed", decided.reason)
    assert found
    assert len(outcome.trials) >= 6
    cap_w, said, error = map(float, found.groups())
    true = 100 * (eds.cost(exact(RESNET50, cap_w), exact(RESNET50, 260.0)).value - 1)
    assert abs(said - true) < 2 * error


@pytest.mark.slow
def test_a_search_that_the_job_left_behind_has_its_best_cap_named() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=1500, change=WorkloadChange(at=120, time=1.4))
    (decided,) = announced(tune(job, EDS, "linear", end_s=82.0), events.Decided)
    assert re.search(r"as it had changed; before that the best so far was \d+ W \(eds -\d+ ± \d+ %\)", decided.reason)


@pytest.mark.slow
def test_a_job_that_outlives_what_is_remembered_has_its_cap_confirmed_after_all() -> None:
    outcome = ran(600, before(SHORT))
    first, second = announced(outcome, events.Decided)[:2]
    assert (first.confirmed, second.confirmed) == (False, True)
    assert second.t_s < 150


@pytest.mark.slow
def test_a_job_that_is_longer_than_it_was_from_the_beginning_is_searched_as_any() -> None:
    (decided, *_) = announced(ran(600, before(5)), events.Decided)
    assert decided.confirmed


@pytest.mark.slow
def test_reports_of_an_unconfirmed_cap_say_so_and_of_none_say_why() -> None:
    kept, none = (in_full(ran(SHORT, before(SHORT)), ENERGY), in_full(ran(SHORT), ENERGY))
    text = "\n".join(lines(run_document(summarise(kept), kept)))
    assert "kept, not confirmed" in text
    assert "W, not confirmed: energy" in text
    assert "kept, confirmed" not in text
    text = "\n".join(lines(run_document(summarise(none), none)))
    assert "the job ended about 10 s before the search would have" in text
    assert "--quick or a job of 1 minute would do (`autocap help no-cap-kept` goes through the reasons)" in text


def test_what_a_cut_short_search_has_shown_is_begun_from_at_its_best_cap() -> None:
    log = in_full(ran(SHORT), ENERGY)
    curve = curve_of(log)
    assert curve.cut_short
    assert curve.kept_w is None
    grid = ran(2).grid
    assert WarmStartData(curves=(curve,)).best_w(ENERGY, grid, (260.0,)) == 125.0
    decided = replace(curve, cut_short=False)
    assert WarmStartData(curves=(decided,)).best_w(ENERGY, grid, (260.0,)) is None


@pytest.mark.parametrize("iterations", [20, 40, 60, 80])
def test_whenever_the_end_that_is_remembered_comes_a_cap_that_is_kept_is_truly_better(iterations: int) -> None:
    outcome = ran(iterations, before(iterations))
    (decided,) = announced(outcome, events.Decided)
    if outcome.final_cap_w < 260:
        base_j = RESNET50.default_time_s * float(RESNET50.power_w(260.0))
        assert decided.measurement.energy_per_iteration_j < base_j


def test_iterations_that_were_counted_otherwise_say_nothing_of_the_end() -> None:
    (curve,) = before(SHORT).curves
    otherwise = WarmStartData(curves=(replace(curve, progress="period"),))
    assert (otherwise.job_iterations("period"), otherwise.job_iterations("steps")) == (SHORT, None)
    (decided,) = announced(ran(SHORT, otherwise), events.Decided)
    assert decided.setting is None


def searching(baseline: Measurement) -> Search:
    grid = CapGrid(settings=(150.0, 200.0))
    return Search(lambda baseline, before, caps, metric: Second(baseline=baseline), grid, ENERGY, baseline, 3.0)


def tell(search: Search, cost: float, period_s: float = 0.55) -> None:
    """A trial of 150 W that saves three tenths."""
    search.tell(trial_of(measurement(70.0, period_s, cap_w=150.0), cost))


def best_of(search: Search) -> Best | None:
    return Best.of(SimpleNamespace(search=search, trial_so_far=None))  # type: ignore[arg-type]  # all that it asks for


def test_the_best_so_far_has_the_error_of_the_baseline_that_it_was_measured_beside() -> None:
    """Other work has come since the first one, which was known to 1 %: 150 W was measured beside one known to 20 %."""
    first, last = (measurement(period_error=error, energy_error=error) for error in (0.01, 0.20))
    search = searching(first)
    search.rebase(last)
    tell(search, 0.7)
    best = best_of(search)
    assert best.cost.stderr == pytest.approx(0.7 * 0.2, rel=0.01)
    assert not best.is_clear(search)


def test_what_machines_wander_by_is_an_error_of_earlier_trials_as_well() -> None:
    search = searching(measurement())
    tell(search, 0.7)
    search.widen(0.3, 0.2)
    (told,) = search.history
    assert (told.measurement.period_rel_stderr, told.measurement.energy_rel_stderr) == (0.3, 0.2)
    assert best_of(search).cost.stderr > 0.13


@pytest.mark.parametrize(("period_s", "best_w"), [(0.5, 150.0), (0.3, None), (9.0, None)])
def test_a_cap_with_a_time_that_no_card_has_beside_the_baseline_is_not_the_best(period_s, best_w) -> None:
    """As where other work slowed the job while the baseline was measured, or while the cap was tried."""
    search = searching(measurement(period_s=0.5))
    tell(search, 0.6, period_s)
    best = best_of(search)
    assert (best and best.setting) == best_w
