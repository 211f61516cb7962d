"""What cannot be is measured again, and what a confirmation contradicts counts no more: whole jobs in virtual time,
whose iterations are miscounted at one cap."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.doubts import Doubt, Doubts
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.metrics import Metric
from autocap.progress import Mark, StepProgress
from autocap.records import Measurement, Sample, Trial, TrialState
from autocap.reports.run_document import run_document
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import Outcome, tune
from tests.doubles.feeds import measurement, trial_of
from tests.doubles.logs import STARTED, announced, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
JOB = SimulatedJob(profile=RESNET50, jitter=0.002)
ENERGY = Metric(name="energy")


class Miscounting(StepProgress):
    """Takes `part` of an iteration for one while a cap holds, the first `visits` times that it does."""

    def __init__(self, kind: str, cap_w: float, part: float, visits: int = 1) -> None:
        super().__init__(kind)
        self._cap_w, self._part, self._visits = cap_w, part, visits
        self._now_w: float | None = None
        self._true = self._said = 0.0

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        before_w, self._now_w = self._now_w, sample.readings[0].requested_w
        self._visits -= before_w == self._cap_w != self._now_w
        wrong = self._now_w == self._cap_w and self._visits > 0
        out = []
        for mark in super().marks(sample):
            self._said += (mark.iterations - self._true) / (self._part if wrong else 1.0)
            self._true = mark.iterations
            out.append(Mark(t_s=mark.t_s, iterations=self._said))
        return tuple(out)


def tuned(progress: StepProgress, *caps_w: float, strategy: str = "linear", metric: Metric = ENERGY) -> Outcome:
    config = TuneConfig(metric=metric, caps_w=caps_w or None)
    return tune(JOB, config, strategy, progress=progress, stop_when_held=True)


def told(outcome: Outcome, cap_w: float) -> list[Trial]:
    return [event.trial for event in outcome.trials if event.trial.setting == cap_w]


def summary_of(outcome: Outcome) -> Summary:
    return summarise([STARTED, *outcome.log.events])


def worst_claim(outcome: Outcome) -> float:
    """By how much the best energy that a report claims is below what any cap truly needs."""
    summary = summary_of(outcome)
    true = min(RESNET50.energy_j(cap_w) for cap_w in outcome.grid) / RESNET50.energy_j(260.0)
    claims = [one.cost for one in summary.best_by_metric if one.metric == "energy"]
    return max(true - claim for claim in [*claims, *(point.energy for point in summary.pareto)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["steps", "period"])
@pytest.mark.parametrize("part", [2 / 3, 1 / 2])
def test_a_part_of_an_iteration_taken_for_one_is_measured_again_and_does_not_count(kind: str, part: float) -> None:
    outcome = tuned(Miscounting(kind, 240.0, part), 160.0, 200.0, 240.0)
    (trial,) = told(outcome, 240.0)
    if kind == "period":
        assert trial.state is TrialState.FAILED
        assert trial.reason.startswith("two measurements in a row disagree: +")
    else:
        assert trial.measurement is not None, "one that is off costs itself where iterations are counted"
        assert trial.measurement.period_s == pytest.approx(RESNET50.time_s(240.0), rel=0.02)
    assert re.match(
        r"an iteration at 240 W takes 0\.[56]\d times as long as at 260 W, which no card does; that is measured again",
        warnings(outcome)[0],
    )
    assert outcome.final_cap_w == 160.0
    assert worst_claim(outcome) < 0.01


@pytest.mark.slow
def test_a_multiple_taken_for_an_iteration_is_measured_again_where_iterations_are_inferred() -> None:
    outcome = tuned(Miscounting("period", 180.0, 2.0), 160.0, 180.0, 240.0)
    assert "a multiple of an iteration may have been taken for one" in warnings(outcome)[0]
    assert told(outcome, 180.0)[0].state is TrialState.FAILED
    assert outcome.final_cap_w == 160.0


@pytest.mark.slow
def test_of_two_trials_that_cannot_both_be_right_the_one_that_was_measured_once_goes() -> None:
    outcome = tuned(Miscounting("steps", 200.0, 1.5), 160.0, 200.0)
    (gone,) = announced(outcome, events.TrialWithdrawn)
    assert (gone.setting, gone.reason) == (200.0, "beside 160 W, measured twice, it cannot be right")
    assert outcome.final_cap_w == 160.0
    assert told(outcome, 160.0)[0].state is TrialState.COMPLETE
    assert next(one.state for one in summary_of(outcome).trials if one.setting == (200.0,)) is TrialState.FAILED


def test_what_is_miscounted_every_time_is_not_believed_where_iterations_are_inferred() -> None:
    outcome = tuned(Miscounting("period", 240.0, 2 / 3, visits=99), 160.0, 200.0, 240.0)
    (trial,) = told(outcome, 240.0)
    assert trial.reason == "measured twice, it cannot be right beside 260 W: iterations are miscounted"
    assert outcome.final_cap_w == 160.0
    assert worst_claim(outcome) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["linear", "golden"])
def test_a_trial_that_its_confirmation_contradicts_is_no_result_and_the_search_goes_on(strategy: str) -> None:
    # Two thirds of the 1.8 times that an iteration takes at 100 W look like a fast and frugal cap.
    outcome = tuned(Miscounting("period", 100.0, 2 / 3), 100.0, 160.0, 220.0, strategy=strategy)
    (gone,) = announced(outcome, events.TrialWithdrawn)
    assert gone.setting == 100.0
    assert gone.reason.startswith("measured again, it showed +5")
    again = told(outcome, 100.0)[-1].measurement
    assert again.period_s == pytest.approx(RESNET50.time_s(100.0), rel=0.02)
    assert outcome.final_cap_w == 160.0
    assert worst_claim(outcome) < 0.01


@pytest.mark.slow
def test_the_report_says_in_a_sentence_what_does_not_count() -> None:
    outcome = tuned(Miscounting("period", 100.0, 2 / 3), 100.0, 130.0, 160.0, 220.0)
    log = [STARTED, *outcome.log.events]
    summary = summarise(log)
    text = lines(run_document(summary, log))
    (said,) = [line for line in text if line.startswith("what was measured at 100 W does not count: ")]
    assert said.endswith("per iteration")
    first, last = [one for one in summary.trials if one.setting == (100.0,)]
    assert (first.state, first.cost, first.measurement) == (TrialState.FAILED, None, None)
    assert first.reason == f"does not count: {announced(outcome, events.TrialWithdrawn)[0].reason}"
    assert last.time_pct == pytest.approx(80.6, abs=2.0)


@pytest.mark.slow
def test_a_search_in_which_nothing_is_wrong_measures_nothing_twice() -> None:
    for strategy in ("golden", "model"):
        outcome = tuned(StepProgress("period"), strategy=strategy)
        assert not [text for text in warnings(outcome) if "measured again" in text]
        assert not announced(outcome, events.TrialWithdrawn)


# What is held against what.


class Silent:
    def ask(self) -> float | None:
        return None

    def tell(self, trial: Trial) -> None:
        pass

    def recommend(self) -> float | None:
        return None


class Noting(Silent):
    def __init__(self) -> None:
        self.told: list[Trial] = []

    def tell(self, trial: Trial) -> None:
        self.told.append(trial)


def test_without_a_trial_that_was_wrong_what_it_cut_short_counts_for_a_new_strategy() -> None:
    built: list[Noting] = []

    def new_strategy(baseline: Measurement, before: Sequence[Trial], caps: CapGrid, metric: Metric) -> Noting:
        built.append(Noting())
        return built[-1]

    grid = CapGrid(settings=(160.0, 200.0, 220.0, 240.0))
    search = Search(new_strategy, grid, ENERGY, measurement(cap_w=260.0), 3.0)
    wrong, cut_short = trial_of(measurement(50.0, 0.5, cap_w=240.0)), trial_of(measurement(85.0, 0.52, cap_w=200.0))
    search.tell(replace(wrong, cost=0.5))
    why = search.hopeless(cut_short.measurement, search.cost(cut_short.measurement))
    search.tell(replace(cut_short, state=TrialState.PRUNED, reason=why))
    search.tell(Trial(setting=160.0, state=TrialState.FAILED, reason="a gap"))
    assert search.ask() is None
    search.withdraw(240.0)
    assert search.ask() is None
    assert [(trial.setting, trial.state) for trial in built[-1].told] == [
        (200.0, TrialState.COMPLETE),
        (160.0, TrialState.FAILED),
    ]
    assert not search.measured(240.0)
    assert len(built) == 2


def doubts(*known: Measurement) -> Doubts:
    grid = CapGrid(settings=tuple(float(cap_w) for cap_w in range(100, 265, 5)))
    search = Search(lambda baseline, before, caps, metric: Silent(), grid, ENERGY, measurement(cap_w=260.0), 3.0)
    for one in known:
        search.tell(trial_of(one))
    return Doubts(search)


@pytest.mark.parametrize(
    ("period_s", "energy_j", "error", "doubtful"),
    [
        (0.49, 90.0, 0.005, False),  # 2 % faster is noise
        (0.47, 90.0, 0.005, True),
        (0.47, 90.0, 0.03, False),  # but not where as much is the error
        (1.00, 100.0, 0.005, False),  # half the power, so half as fast
        (1.00, 190.0, 0.005, True),  # twice the time and energy
        (0.62, 120.0, 0.005, False),  # 1.24 is no multiple
        (0.75, 140.0, 0.005, True),
        (1.60, 160.0, 0.005, True),  # a cap of 200 of 260 W, and 3.2 times as long
    ],
)
def test_what_is_doubtful_beside_the_baseline(period_s: float, energy_j: float, error: float, doubtful: bool) -> None:
    found = measurement(energy_j, period_s, cap_w=200.0, period_error=error)
    assert (doubts().raised(trial_of(found), inferred=True) is not None) is doubtful


def test_a_count_is_not_suspected_of_multiples() -> None:
    found = trial_of(measurement(190.0, 1.0, cap_w=200.0))
    assert doubts().raised(found, inferred=False) is None


def test_a_higher_cap_that_is_slower_than_a_lower_one_is_doubtful() -> None:
    found = trial_of(measurement(90.0, 0.6, cap_w=220.0))
    raised = doubts(measurement(80.0, 0.55, cap_w=180.0)).raised(found, inferred=False)
    assert raised == Doubt(why="an iteration at 220 W takes 1.09 times as long as at 180 W, which no card does")


def test_of_another_job_than_a_baseline_are_trials_that_cannot_be_beside_it_and_all_where_a_cap_changed() -> None:
    slow, fast, kept = (measurement(80.0, period_s, cap_w=cap_w) for period_s, cap_w in
                        ((0.75, 140.0), (0.45, 120.0), (0.55, 130.0)))  # fmt: skip
    known, baseline = doubts(slow, fast, kept), measurement(100.0, 0.5)
    assert [one.setting for one in known.of_another(baseline, None)] == [120.0]
    assert [one.setting for one in known.of_another(baseline, kept)] == [120.0]
    told = {one.setting: one.why for one in known.of_another(baseline, replace(slow, period_s=0.54))}
    assert told == dict.fromkeys((140.0, 120.0, 130.0), "-28 % time per iteration at 140 W")


def test_what_was_cut_short_before_other_work_was_seen_does_not_count_once_it_is() -> None:
    known, long = doubts(), measurement(90.0, 0.55, cap_w=150.0)
    for cap_w, state in ((180.0, TrialState.PRUNED), (150.0, TrialState.COMPLETE)):
        known._search.tell(replace(trial_of(replace(long, setting=(cap_w,), duration_s=8.0)), state=state))
    assert known.cut_short(1.0, quiet=True) == []
    assert [one.setting for one in known.cut_short(20.0, quiet=False)] == [180.0]
    assert known.cut_short(20.0, quiet=False) == [], "from then on no window is as short"


def test_a_second_measurement_in_agreement_clears_the_doubt() -> None:
    found = trial_of(measurement(90.0, 0.45, cap_w=220.0))
    found_again = trial_of(measurement(91.0, 0.455, cap_w=220.0))
    doubt = doubts()
    assert doubt.raised(found, inferred=False) is not None
    assert doubt.raised(found_again, inferred=False) is None
    assert doubt.settled(found_again, inferred=False) == (found_again, [])
