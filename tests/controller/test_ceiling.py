"""A ceiling that others set, as the manager of a budget does, in every state of the controller; whole jobs in virtual
time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import Announce, SetCaps
from autocap.controller.known import MOVED
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.events import State
from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import Episode, SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import Outcome, tune
from tests.controller.test_controller import deaf
from tests.controller.test_doubts import Silent
from tests.doubles.feeds import measurement, samples, trial_of
from tests.doubles.logs import announced, caps_set, held_at, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
FOUND_W = 260.0
EDP = Metric(name="edp")
Grants = Sequence[tuple[float, float | None]]


def under(grants: Grants, metric: Metric = EDP, *, end_s: float = 300.0, strategy: str = "model") -> Outcome:
    return tune(SimulatedJob(profile=RESNET50), TuneConfig(metric=metric), strategy, grants=grants, end_s=end_s)


def ceiling_at(grants: Grants, t_s: float) -> float:
    """In force, watts; the limit found on arrival where there is none."""
    known = [FOUND_W if watts is None else watts for from_s, watts in grants if from_s <= t_s]
    return known[-1] if known else FOUND_W


# What happens at about these times without a ceiling: waiting until 1.5 s, trials until 75 s, confirming until 85 s.
DROPS: list[Grants] = [
    [(0.0, 160.0)],
    [(1.0, 150.0)],
    [(10.0, 150.0), (30.0, 120.0)],
    [(46.0, 130.0), (60.0, 110.0), (61.0, 255.0)],
    [(76.0, 140.0)],
    [(79.0, 154.0), (80.0, 150.0)],
    [(120.0, 140.0), (121.0, 120.0), (140.0, None)],
    [(5.0 * number, 100.0 + 37.0 * number % 150) for number in range(40)],
]
WITHIN_10_PCT = Metric(name="energy", max_slowdown=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("grants", DROPS)
@pytest.mark.parametrize(("strategy", "metric"), [("model", EDP), ("golden", WITHIN_10_PCT)])
def test_no_cap_is_set_above_the_ceiling_and_a_lower_one_is_met_with_the_next_sample(grants, metric, strategy) -> None:
    outcome = under(grants, metric, strategy=strategy, end_s=max(120.0, grants[-1][0] + 30.0))
    for event in outcome.log.events:
        if isinstance(event, events.CapSet):
            assert event.setting[0] <= ceiling_at(grants, event.t_s)
        if isinstance(event, events.TrialStarted):
            assert event.setting <= ceiling_at(grants, event.t_s)
    for from_s, watts in grants:
        assert held_at(outcome, from_s + 1.0) <= (watts or FOUND_W)
    assert not [text for text in warnings(outcome) if "ended" in text]


@pytest.mark.slow
def test_a_fixed_cap_above_the_ceiling_is_tried_as_far_as_there_is_room_and_as_asked_for_once_there_is() -> None:
    config, grants = TuneConfig(metric=EDP), [(0.0, 150.0), (60.0, 200.0), (120.0, None)]
    job = SimulatedJob(profile=RESNET50)
    outcome = tune(job, config, "fixed", options=[("cap", "170")], grants=grants, end_s=300.0)
    assert [event.trial.setting for event in outcome.trials] == [150.0, 170.0]
    assert outcome.final_cap_w == 170.0
    assert not [text for text in warnings(outcome) if "ended" in text or "strategy" in text]


@pytest.mark.slow
def test_what_is_held_moves_along_the_curve_without_another_search_and_back() -> None:
    grants = [(150.0, 140.0), (200.0, 110.0), (250.0, 200.0)]
    outcome = under(grants, end_s=255.0)
    best_w = outcome.final_cap_w
    assert 145 <= best_w <= 170
    assert [held_at(outcome, t_s) for t_s in (149.0, 151.0, 201.0, 251.0)] == [best_w, 140.0, 110.0, best_w]
    assert states(outcome)[-2:] == [State.HOLDING, State.DONE]
    assert states(outcome).count(State.HOLDING) == 1
    assert not [event for event in announced(outcome, events.TrialStarted) if event.t_s > 150]


@pytest.mark.slow
def test_what_is_held_below_is_measured_meanwhile_and_tells_the_slowdown() -> None:
    outcome = under([(150.0, 110.0)])
    (event,) = announced(outcome, events.HeldMeasured)
    assert event.measurement.setting == (110.0,)
    assert event.measurement.period_s == pytest.approx(RESNET50.time_s(110.0), rel=0.01)


@pytest.mark.slow
def test_a_metric_that_wants_less_than_the_ceiling_stays_where_it_is_best() -> None:
    free, bound = (under(grants, Metric(name="energy"), end_s=200.0) for grants in ([], [(150.0, 200.0)]))
    assert bound.final_cap_w == free.final_cap_w < 200
    assert caps_set(bound) == caps_set(free)


@pytest.mark.slow
def test_a_trial_above_a_new_ceiling_ends_and_the_search_goes_on_below() -> None:
    outcome = under([(10.0, 150.0)], end_s=150.0)
    cut, *trials = outcome.trials
    assert cut.trial.setting > 150
    assert (cut.trial.state, cut.trial.reason) == (TrialState.PRUNED, "the budget gives other watts now")
    assert trials[0].trial.setting == 150  # the ceiling, which stands for the baseline
    assert all(event.trial.setting <= 150 for event in trials)
    assert not outcome.decided.confirmed  # its baseline's limit may not hold
    assert outcome.decided.reason == "the best up to 150 W by the curve; the baseline is that of 260 W"
    assert held_at(outcome, 149.0) == 150.0
    assert states(outcome).count(State.BASELINE) == 1


@pytest.mark.slow
def test_a_trial_of_a_ceiling_that_rises_ends_as_it_costs_time_from_then_on() -> None:
    outcome = under([(10.0, 110.0), (20.0, 200.0)], end_s=30.0)
    first, lower, *_ = (event.trial for event in outcome.trials)
    assert first.setting > 110 == lower.setting
    assert (lower.state, lower.reason) == (TrialState.PRUNED, "the budget gives other watts now")
    assert held_at(outcome, 21.0) > 110


@pytest.mark.slow
def test_a_search_that_ended_by_its_curve_is_confirmed_once_there_is_room() -> None:
    outcome = under([(10.0, 150.0), (150.0, None)], end_s=250.0)
    decided = announced(outcome, events.Decided)
    assert [event.confirmed for event in decided] == [False, True]
    assert 145 <= outcome.final_cap_w <= 170
    assert states(outcome).count(State.BASELINE) == 1  # kept from before


@pytest.mark.slow
def test_a_baseline_under_the_ceiling_is_that_of_the_ceiling_until_there_is_room() -> None:
    outcome = under([(0.0, 160.0), (200.0, 200.0), (260.0, None)], end_s=400.0)
    baselines = announced(outcome, events.BaselineMeasured)
    assert {event.measurement.setting for event in baselines if event.t_s < 260} == {(160.0,)}
    assert {event.measurement.setting for event in baselines if event.t_s > 260} == {(FOUND_W,)}
    assert held_at(outcome, 199.0) == 160.0
    assert held_at(outcome, 201.0) == 200.0  # the best that was known was the highest that could be tried
    said = "tuning anew: the limit found on arrival may hold again, and its baseline was never measured"
    assert warnings(outcome) == [said]
    assert outcome.final_cap_w < 200


@pytest.mark.slow
def test_caps_per_gpu_are_lowered_together_and_come_back() -> None:
    node = SimulatedNode(gpus=2, efficiency_spread=0.05)
    config = TuneConfig(metric=Metric(name="energy"), per_gpu=True)
    job = SimulatedJob(profile=RESNET50, jitter=0.002)
    outcome = tune(job, config, "model", node=node, grants=[(700.0, 112.0), (720.0, None)], end_s=760.0, seed=3)
    at = {event.t_s: event.setting for event in announced(outcome, events.CapSet)}
    decided = announced(outcome, events.PerGpuDecided)[0]
    assert decided.kept
    lowered = next(caps_w for t_s, caps_w in at.items() if 700 <= t_s < 720)
    assert lowered == tuple(min(cap_w, 112.0) for cap_w in decided.setting)
    assert list(at.values())[-1] == decided.setting


@pytest.mark.slow
def test_with_a_limit_on_slowdown_the_highest_cap_holds_where_none_below_the_ceiling_is_within_it() -> None:
    outcome = under([(200.0, 130.0)], Metric(name="energy", max_slowdown=0.05), end_s=205.0)
    assert held_at(outcome, 199.0) > 130
    assert held_at(outcome, 201.0) == 130.0


@pytest.mark.slow
def test_a_long_pause_of_the_job_lifts_its_limits_no_higher_than_the_ceiling() -> None:
    job = SimulatedJob(profile=RESNET50, episodes=(Episode(every=60, duration_s=40.0, once=True),))
    outcome = tune(job, TuneConfig(metric=EDP), "model", grants=[(5.0, 150.0), (50.0, 140.0)], end_s=200.0)
    assert max(one.setting[0] for one in announced(outcome, events.CapSet) if one.t_s >= 5) <= 150
    assert max(one.setting[0] for one in announced(outcome, events.CapSet) if one.t_s >= 50) <= 140
    assert State.PAUSED in states(outcome)


def test_who_only_observes_sets_nothing_under_a_ceiling_either() -> None:
    config = TuneConfig(metric=EDP, observe=True)
    outcome = tune(SimulatedJob(profile=RESNET50), config, "model", grants=[(0.0, 200.0), (90.0, 150.0)], end_s=120.0)
    assert caps_set(outcome) == []
    assert [event.ceiling_w for event in announced(outcome, events.Granted)] == [200.0, 150.0]


def test_the_cap_comes_before_what_is_told_of_it() -> None:
    under_test = deaf()
    first = under_test.grant(0.0, 200.0)
    assert first[0] == SetCaps(settings=(200.0,))
    assert first[1:] == [Announce(event=events.Granted(t_s=0.0, ceiling_w=200.0))]
    assert under_test.settings == (200.0,)
    assert under_test.grant(1.0, None)[0] == SetCaps(settings=(FOUND_W,))


def test_where_nothing_is_tuned_any_more_the_ceiling_holds_all_the_same() -> None:
    under_test = deaf()
    for sample in samples(seconds=2.0, period_s=0.25):
        under_test.feed(sample)
    under_test.stop(2.0, "a signal asked for the end")
    assert under_test.grant(3.0, 180.0)[0] == SetCaps(settings=(180.0,))
    assert under_test.grant(4.0, 300.0)[0] == SetCaps(settings=(FOUND_W,))
    assert under_test.state is State.DONE


@pytest.mark.parametrize("watts", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_ceiling_is_refused(watts: float) -> None:
    with pytest.raises(ValueError, match=r"a ceiling is .* W; it must be finite and above 0 W, or none"):
        deaf().grant(0.0, watts)


class Told(Silent):
    """Keeps what it is built with and told of."""

    def __init__(self, before: Sequence[Trial], caps: CapGrid) -> None:
        self.caps, self.before, self.told = caps, [trial.setting for trial in before], list[float]()

    def tell(self, trial: Trial) -> None:
        self.told.append(trial.setting)


def test_a_strategy_is_told_only_of_the_caps_that_it_may_ask_for_and_has_the_others_as_history() -> None:
    built = list[Told]()

    def new_strategy(baseline: Measurement, before: Sequence[Trial], caps: CapGrid, metric: Metric) -> Told:
        built.append(Told(before, caps))
        return built[-1]

    def last() -> tuple[CapGrid, list[float], list[float]]:
        assert search.ask() is None
        return built[-1].caps, built[-1].before, built[-1].told

    grid = CapGrid((120.0, 160.0, 200.0, 240.0))
    search = Search(new_strategy, grid, EDP, measurement(cap_w=FOUND_W), 3.0)
    search.tell(trial_of(measurement(90.0, 0.51, cap_w=240.0)))
    search.tell(trial_of(measurement(80.0, 0.55, cap_w=160.0)))
    search.restrict(210.0)
    assert search.ask() == 210.0  # too little is known of what stands for the baseline now
    search.tell(trial_of(measurement(85.0, 0.53, cap_w=210.0)))
    assert last() == (CapGrid((120.0, 160.0, 200.0, 210.0)), [FOUND_W, 240.0], [160.0, 210.0])
    search.restrict(212.0)  # a watt or two
    assert last()[0][-1] == 210.0
    search.restrict(90.0)
    assert search.ask() == 90.0
    search.restrict(1000.0)
    assert last() == (CapGrid((120.0, 160.0, 200.0, 210.0, 240.0)), [], [240.0, 160.0, 210.0])
    assert [trial.setting for trial in search.history] == [240.0, 160.0, 210.0]


class Confident(Silent):
    """Recommends what it was told of last."""

    def tell(self, trial: Trial) -> None:
        self._last_w = trial.setting

    def recommend(self) -> float | None:
        return self._last_w


def test_a_trial_that_a_ceiling_has_cut_short_may_be_recommended_once_that_is_gone() -> None:
    search = Search(lambda *_: Confident(), CapGrid((160.0, 200.0)), EDP, measurement(cap_w=FOUND_W), 3.0)
    search.restrict(180.0)
    search.tell(replace(trial_of(measurement(80.0, 0.55, cap_w=200.0)), state=TrialState.PRUNED, reason=MOVED))
    search.restrict(1000.0)
    assert search.recommend() == 200.0


@pytest.mark.slow
def test_a_search_caught_by_a_falling_ceiling_does_not_walk_down_the_grid() -> None:
    """Each cap is worse than the baseline, which may not hold any more, and the best one is the ceiling itself."""
    job, config = SimulatedJob(profile=profiles.load("quadro-rtx-6000/inception3")), TuneConfig(metric=EDP)
    outcome = tune(job, config, "model", grants=[(10.0, 125.0)], end_s=130.0)
    tried = [event.setting for event in announced(outcome, events.TrialStarted) if event.t_s >= 10]
    assert tried[0] == 125.0
    assert len(tried) <= 3
    assert held_at(outcome, 70.0) == held_at(outcome, 129.0) == 125.0


@pytest.mark.slow
def test_where_a_ceiling_rises_what_is_best_below_the_new_one_is_held() -> None:
    outcome = under([(10.0, 120.0), (120.0, 220.0)], end_s=300.0)
    assert held_at(outcome, 110.0) == 120.0
    assert 145 <= held_at(outcome, 299.0) <= 170
    assert not [text for text in warnings(outcome) if "ended" in text]


@pytest.mark.slow
def test_where_the_ceiling_is_slower_than_allowed_it_is_held_and_nothing_below_is_tried() -> None:
    outcome = under([(60.0, 110.0)], Metric(name="energy", max_slowdown=0.05), end_s=150.0)
    assert held_at(outcome, 149.0) == 110.0
    assert states(outcome)[-2] is State.HOLDING
    assert min(one.setting for one in announced(outcome, events.TrialStarted)) >= 110.0


@pytest.mark.slow
def test_a_trial_that_waits_for_savings_gives_way_to_one_of_the_caps_that_a_risen_ceiling_allows() -> None:
    limited, (low_w, rises_s) = Metric(name="energy", max_slowdown=0.05), (150.0, 50.0)
    outcome = under([(0.0, low_w), (rises_s, 200.0)], limited, strategy="golden", end_s=rises_s + 2.0)
    begun = announced(outcome, events.TrialStarted)
    assert held_at(outcome, rises_s - 1.0) == low_w > begun[-2].setting, "it waits at the ceiling"
    assert begun[-1].t_s >= rises_s
    assert low_w < begun[-1].setting <= 200.0
