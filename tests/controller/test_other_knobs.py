"""A knob that is no power limit: whole tunings in virtual time, and what is made of settings without an order.

Devices that take limits in steps: the search goes on among the caps that they take, in every state.
"""

import math
from collections.abc import Sequence

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.budget import SlowdownBudget
from autocap.controller.context import Action, Announce, SetCaps, StepContext
from autocap.controller.doubts import Doubts
from autocap.controller.known_curve import KnownCurve
from autocap.controller.search import Search
from autocap.controller.waiting import FirstLook, Proving
from autocap.events import State
from autocap.events.quote import PRICE, Quote
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.drift import impossible
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import Measurement, SensorInfo, Trial, TrialState
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from autocap.strategies.linear import Linear
from autocap.testing.curves import LEVEL, LEVELS, MODE, MODES, OF_LEVELS, OF_MODES, Curve, measured
from bench.simulation.jobs import new_strategy
from tests.doubles.feeds import measurement, metered, samples, trial_of
from tests.doubles.knob_job import KnobJob

ENERGY = Metric(name="energy")
ECO, CALM, EAGER, WILD, ODD = map(MODE.named, MODE.labels)
FOUR = LEVEL.named("4")


def tuned(curve: Curve, grid: CapGrid, strategy: str, metric: Metric = ENERGY, found: float | None = None) -> KnobJob:
    job = KnobJob(curve, grid, grid[-1] if found is None else found)
    job.run(job.controller(TuneConfig(metric=metric), strategy))
    return job


def trials(job: KnobJob) -> list[Trial]:
    return [event.trial for event in job.heard(events.TrialEnded)]


@pytest.mark.parametrize("strategy", ["linear", "golden", "bayesian", "bandit"])
@pytest.mark.parametrize("found", [LEVEL.named("1"), LEVEL.named("8"), 4.4], ids=["fastest", "slowest", "between"])
def test_the_best_of_levels_is_found_wherever_the_job_arrives(strategy: str, found: float) -> None:
    job = tuned(OF_LEVELS, LEVELS, strategy, found=found)
    assert job.decided.confirmed
    assert job.decided.setting == FOUR
    assert job.set_to[-1] == FOUR


@pytest.mark.parametrize("found", [ODD, CALM, WILD], ids=MODE.text)
@pytest.mark.parametrize("most", [None, 0.2, 0.05])
def test_the_best_of_modes_that_the_limit_on_slowdown_allows_is_kept(found: float, most: float | None) -> None:
    times = {setting: OF_MODES.time_s(setting) / OF_MODES.time_s(found) for setting in MODES}
    allowed = [one for one in MODES if most is None or times[one] <= 1 + most]
    best = min(allowed, key=lambda setting: OF_MODES.cost(ENERGY, setting, found))
    job = tuned(OF_MODES, MODES, "linear", Metric(name="energy", max_slowdown=most), found)
    assert {trial.setting for trial in trials(job)} == set(MODES), "none is left out as another is too slow"
    assert job.decided.setting == (None if best == found else best)
    assert (job.set_to or [found])[-1] == best
    assert not [trial for trial in trials(job) if trial.state is TrialState.FAILED]


def test_what_is_said_of_a_mode_names_it() -> None:
    job = tuned(OF_MODES, MODES, "linear")
    told = [trial.reason for trial in trials(job) if trial.reason is not None]
    assert "worse than eager" in told
    assert tuned(OF_MODES, CapGrid([CALM, ODD], MODE), "linear").decided.reason in {
        "no setting that was tried is allowed and better",
        "the setting found on arrival is already the best",
    }


@pytest.mark.parametrize(("name", "keeps"), [("fixed", EAGER), ("linear", ODD)])
def test_a_strategy_is_given_a_mode_by_its_name(name: str, keeps: float) -> None:
    job, options = KnobJob(OF_MODES, MODES, ODD), [("cap", "eager")] if name == "fixed" else [("step", "4")]
    job.run(job.controller(TuneConfig(metric=ENERGY), name, options))
    assert {trial.setting for trial in trials(job)} == ({EAGER} if name == "fixed" else {ECO, ODD})
    assert job.set_to[-1] == (EAGER if name == "fixed" else ECO)


def test_a_ceiling_in_watts_moves_no_other_knob() -> None:
    job = KnobJob(OF_MODES, MODES, ODD)
    controller = job.controller(TuneConfig(metric=ENERGY), "linear")
    for ceiling_w in (2.0, None):
        job.take(controller.grant(0.0, ceiling_w))
        assert job.set_to == []
    assert controller.settings == (ODD,)
    job.take(controller.grant(0.0, 2.0))
    job.run(controller)
    assert job.decided.setting == EAGER
    job.take(controller.grant(2000.0, 1.0))
    assert controller.settings == (EAGER,)


@pytest.mark.slow
def test_a_mode_follows_a_price() -> None:
    """Where energy is dear the one that saves it is held, where it costs next to nothing the fastest."""
    job = KnobJob(OF_MODES, MODES, ODD)
    controller = job.controller(TuneConfig(metric=Metric(name="cost", hour_price=0.02, moving=True)), "linear")
    for from_s, price, best in [(0.0, 0.3, EAGER), (1200.0, 0.001, WILD), (2400.0, 0.3, EAGER)]:
        quote = Quote(kind=PRICE, values=((from_s, price),), until_s=from_s + 1200.0)
        job.take(controller.quote(from_s, PRICE, quote))
        job.run(controller, from_s + 1200.0)
        assert controller.settings == (best,)


def searching(grid: CapGrid, curve: Curve, metric: Metric = ENERGY) -> Search:
    return Search(new_strategy(Linear, grid), grid, metric, measured(curve, grid[-1], stated=0.002), 3.0)


def told(search: Search, curve: Curve, settings: Sequence[float]) -> None:
    for setting in settings:
        found = measured(curve, setting, stated=0.002)
        search.tell(trial_of(found, search.cost(found).value, search.cost(found).stderr))


def test_the_runner_up_of_modes_need_not_lie_above_those_refused() -> None:
    settings = {False: (ECO, CALM, EAGER), True: (LEVELS[3], LEVELS[4], LEVELS[5])}
    for ordered, grid, curve in [(False, MODES, OF_MODES), (True, LEVELS, OF_LEVELS)]:
        search = searching(grid, curve)
        told(search, curve, settings[ordered])
        refused = {settings[ordered][2]}
        assert search.runner_up(refused) == (None if ordered else ECO)
        assert search.runner_up(set(settings[ordered])) is None


def test_under_a_limit_on_slowdown_no_mode_is_given_up_for_what_another_costs() -> None:
    """Any of them may yet turn out to be too slow; of levels only the slower ones may."""
    metric = Metric(name="energy", max_slowdown=0.5)
    modes, levels = searching(MODES, OF_MODES, metric), searching(LEVELS, OF_LEVELS, metric)
    told(modes, OF_MODES, [EAGER])
    told(levels, OF_LEVELS, [FOUR])
    for search, curve, setting, why in [
        (modes, OF_MODES, ECO, None), (modes, OF_MODES, ODD, None),
        (levels, OF_LEVELS, LEVEL.named("6"), "worse than 4"), (levels, OF_LEVELS, LEVEL.named("2"), None),
    ]:  # fmt: skip
        found = measured(curve, setting, stated=0.002)
        assert search.hopeless(found, search.cost(found)) == why


def at(setting: float, period_s: float, energy_j: float = 100.0) -> Measurement:
    return measurement(energy_j, period_s, cap_w=setting)


def test_of_modes_a_curve_knows_what_was_measured_and_nothing_beside_it() -> None:
    shown = [at(ECO, 0.65, 91.0), at(EAGER, 0.54, 70.0)]
    curve = KnownCurve.of(at(ODD, 0.5), shown, (), ENERGY, held=[at(EAGER, 0.54, 70.0)], knob=MODE)
    assert curve.expected(EAGER).energy_per_iteration_j == pytest.approx(70.0)
    assert curve.own_error(EAGER) < curve.own_error(ECO), "what was held counts as well"
    unknown = curve.expected(CALM)
    assert (unknown.period_s, unknown.period_rel_stderr) == (0.5, 0.2)
    assert curve.best_w(ODD, ENERGY) == EAGER


def test_of_levels_what_lies_between_two_is_known_and_what_lies_beyond_is_not() -> None:
    curve = KnownCurve.of(at(6.0, 0.5), [at(2.0, 0.7)], (), ENERGY, knob=LEVEL)
    assert curve.expected(4.0).period_s == pytest.approx(math.sqrt(0.5 * 0.7))
    assert [curve.expected(one).period_rel_stderr for one in (1.0, 8.0)] == [0.2, 0.2]


@pytest.mark.parametrize(
    ("knob", "period_s", "why"),
    [
        (LEVEL, 9.0, None),  # places say nothing of how much slower one is
        (POWER_LIMIT, 9.0, "an iteration at 2 W takes 18.00 times as long as at 3 W, which no card does"),
        (LEVEL, 0.4, "an iteration at 7 takes 0.80 times as long as at 6, which no card does"),
        (MODE, 0.4, None),
        (MODE, 9.0, None),
    ],
)
def test_only_an_order_says_what_cannot_be_beside_another(knob: Knob, period_s: float, why: str | None) -> None:
    assert impossible(at(2.0, period_s), at(3.0, 0.5), knob) == why


@pytest.mark.parametrize(("grid", "curve"), [(MODES, OF_MODES), (LEVELS, OF_LEVELS)], ids=["modes", "levels"])
def test_what_is_slower_and_dearer_than_the_next_is_no_multiple_of_an_iteration(grid: CapGrid, curve: Curve) -> None:
    search = searching(grid, curve)
    slow = at(grid[1], 3 * search.first.period_s, 4 * search.first.energy_per_iteration_j)
    assert Doubts(search).raised(trial_of(slow), inferred=True) is None


class Even(RunningTotals):
    """Those of a job that has done so many iterations, each in as long as the baseline's."""

    def tally(self, t_s: float) -> events.Tally:
        return events.Tally(
            t_s=t_s, since_s=0.0, elapsed_s=t_s, energy_j=1.0, iterations=2 * t_s, counted_s=t_s, counted_j=1.0,
            exploration_s=0.0, exploration_energy_j=0.0, exploration_iterations=0.0,
        )  # fmt: skip


def test_what_a_trial_may_lose_is_known_of_a_mode_only_once_it_was_measured() -> None:
    budgets = {
        knob.name: SlowdownBudget(0.05, Even(), at(ODD, 0.5), settle_s=1.0, fewest=8, knob=knob)
        for knob in (MODE, LEVEL)
    }
    unknown_s = budgets["mode"].expected_loss_s(CALM)
    assert unknown_s == budgets["level"].expected_loss_s(CALM) > 0
    for budget in budgets.values():
        budget.learn(trial_of(at(ECO, 1.5)))
    assert budgets["mode"].expected_loss_s(CALM) == unknown_s
    assert budgets["mode"].expected_loss_s(ECO) > unknown_s
    assert budgets["level"].expected_loss_s(CALM) == budgets["level"].expected_loss_s(ECO), "no slower than those below"


@pytest.mark.parametrize("knob", [POWER_LIMIT, MODE], ids=lambda knob: knob.name)
def test_only_a_power_limit_says_what_a_job_that_trains_draws(knob: Knob) -> None:
    look = FirstLook((ODD,), SensorInfo(update_s=0.1, window_s=0.02, settle_s=0.5), 8, knob)
    found = [look.add(one, "steps") for one in metered(samples(power_w=1.0, seconds=10.0), StepProgress())]
    assert any(found) is (knob is MODE)


@pytest.mark.parametrize("grid", [CapGrid([100.0, 260.0]), MODES], ids=["caps", "modes"])
def test_a_period_is_proven_by_a_lower_cap_and_by_no_other_knob(grid: CapGrid) -> None:
    class Unproven(StepProgress):
        unproven_s = 0.3

    context, progress = StepContext((grid[-1],), grid.knob), Unproven()
    sensor = SensorInfo(update_s=0.1, window_s=0.02, settle_s=0.5)
    proving = Proving(TuneConfig(metric=ENERGY), progress, context, sensor, grid)
    for one in metered(samples(seconds=3.0), progress):
        proving.take(one)
    assert context.settings == ((100.0,) if grid.knob is POWER_LIMIT else (ODD,))


def test_a_close_look_stands_for_caps_beside_it_and_for_no_other_place() -> None:
    many = Knob(name="many", values=tuple(map(float, range(400))))
    for grid, first, later, kept in [
        (CapGrid([100.0, 300.0, 302.0, 400.0]), 300.0, 302.0, [302.0]),
        (CapGrid(many.settings, many), 300.0, 302.0, [300.0, 302.0]),
    ]:
        search = Search(new_strategy(Linear, grid), grid, ENERGY, at(grid[-1], 0.5), 3.0)
        for setting in (first, later):
            search.note_closely(at(setting, 0.5))
        assert [max(one.setting) for one in search.known.close] == kept


FOUND_W = 250.0
WHY = "GPU 0 takes limits in steps: it made 150 W of 170 W, as steps of 25 W would"


def controller(strategy: str, caps_w: Sequence[float], **options: float) -> Controller:
    given, whole = [(name, f"{value:g}") for name, value in options.items()], CapGrid(caps_w)
    return Controller(
        config=TuneConfig(metric=Metric(name="energy"), target_stderr=0.3, trial_s=4.0),
        sensor=SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.0),
        original_w=(FOUND_W,),
        grid=whole,
        progress=StepProgress(),
        new_strategy=new_strategy(registry.find(strategy), whole, options=given),
    )


def steps_of_25(caps_w: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted({25.0 * (cap_w // 25) for cap_w in caps_w if 25.0 * (cap_w // 25) >= min(caps_w)}))


def caps(actions: Sequence[Action]) -> list[float]:
    return [action.settings[0] for action in actions if isinstance(action, SetCaps)]


def said(actions: Sequence[Action]) -> list[str]:
    found = [action.event for action in actions if isinstance(action, Announce)]
    return [event.text for event in found if isinstance(event, events.Warned)]


def test_a_trial_of_a_cap_that_is_not_taken_as_it_is_counts_for_nothing_and_the_search_goes_on_among_steps() -> None:
    made = controller("linear", (130.0, 170.0, 210.0, 250.0))
    before: list[Action] = []
    after: list[Action] = []
    for sample in samples(seconds=60.0):
        actions = made.feed(sample)
        if after:
            after += actions
            continue
        before += actions
        if caps(before)[-1:] == [210.0]:  # under way
            after += made.stepped(sample.t_s, steps_of_25, WHY)
            assert made.state is State.BASELINE
    assert said(after)[0] == f"tuning anew: {WHY}"
    assert caps(after)[0] == FOUND_W
    assert set(caps(after)) == {FOUND_W, 150.0, 200.0}
    trials = [action.event for action in after if isinstance(action, Announce)]
    assert {one.trial.setting for one in trials if isinstance(one, events.TrialEnded)} == {150.0, 200.0, 250.0}


def test_a_cap_that_an_option_names_is_the_step_below_it() -> None:
    made = controller("fixed", (130.0, 170.0, 210.0, 250.0), cap=170.0)
    found = []
    for sample in samples(seconds=60.0):
        found += made.feed(sample)
        if caps(found)[-1:] == [170.0]:
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert caps(found)[:3] == [170.0, FOUND_W, 150.0]


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_before_a_cap_is_asked_for_the_search_is_only_one_among_other_caps(seconds: float) -> None:
    made = controller("linear", (130.0, 170.0, 210.0, 250.0))
    found: list[Action] = []
    for number, sample in enumerate(samples(seconds=60.0)):
        found += made.feed(sample)
        if number == round(20 * seconds):
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert set(caps(found)) == {FOUND_W, 150.0, 200.0}


def test_where_no_cap_is_taken_as_it_is_the_tuning_ends_with_the_reason() -> None:
    made = controller("linear", (160.0, 170.0))
    actions = made.stepped(0.0, steps_of_25, WHY)
    why = f"{WHY}; of the caps from 160 to 170 W that leaves none, so pass other --caps or bounds"
    assert made.ended_because == why
    assert made.ended_because in said(actions)
    assert made.settings == (FOUND_W,)


def test_what_changes_no_cap_that_may_be_asked_for_is_only_said() -> None:
    made = controller("linear", (125.0, 150.0, 200.0))
    assert said(made.stepped(0.0, steps_of_25, WHY)) == [WHY]


def test_steps_that_were_taken_for_others_at_first_leave_out_no_cap_for_good() -> None:
    made = controller("linear", (125.0, 150.0, 175.0, 200.0))
    found: list[Action] = []
    for number, sample in enumerate(samples(seconds=60.0)):
        found += made.feed(sample)
        if number == 3:
            found += made.stepped(sample.t_s, lambda caps_w: tuple(cap_w for cap_w in caps_w if cap_w % 50 == 25), WHY)
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert set(caps(found)) == {FOUND_W, 125.0, 150.0, 175.0, 200.0}
