"""A cap per GPU in whole simulated jobs: what is held, what is undone, and what is said of it.

Caps per GPU against the common cap: when a verdict stands, and what it says.

The rule for a cap per GPU, on cards whose response is known exactly.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.budget import SlowdownBudget
from autocap.controller.comparison import PerGpuComparison
from autocap.controller.context import Announce, Keep, StepContext
from autocap.controller.per_gpu import Balancing, Caps, Lowering, Response, Shown, response
from autocap.controller.steps import Decided
from autocap.devices.model import profiles
from autocap.events import State
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.measurement.batches import student_factor
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.progress import SpeedProgress, StepProgress
from autocap.records import Cost, Measurement, SensorInfo
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import LimitChange, SimulatedNode
from bench.pergpu import Case, truth
from bench.simulation.jobs import Outcome, tune
from tests.doubles.feeds import Meter, measurement, samples
from tests.doubles.logs import announced, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
PER_GPU = TuneConfig(metric=EDS, per_gpu=True)
QUIET = SimulatedJob(profile=RESNET50, jitter=0.003)
UNLIKE = SimulatedNode(gpus=4, efficiency_spread=0.05)


def play(job: SimulatedJob = QUIET, config: TuneConfig = PER_GPU, node: SimulatedNode = UNLIKE, seed: int = 2,
         end_s: float = 86400.0, strategy: str = "model") -> Outcome:  # fmt: skip
    return tune(job, config, strategy, node=node, seed=seed, stop_when_held=job.iterations is None, end_s=end_s)


@cache
def changed_while_held() -> Outcome:
    """Caps per GPU are held after a third of the job; then the common cap is looked at again, and all changes."""
    return play(replace(QUIET, iterations=2950, change=WorkloadChange(at=2700, time=1.3)))


@pytest.mark.slow
def test_cards_that_differ_save_energy_in_the_same_time() -> None:
    case = Case(metric="eds", seed=2, profile="quadro-rtx-6000/resnet50", gpus=4, spread=0.05, jitter=QUIET.jitter)
    outcome = tune(case.job, PER_GPU, "model", node=case.node, seed=case.seed, stop_when_held=True)
    (end,) = announced(outcome, PerGpuDecided)
    assert end.kept
    assert [event.setting for event in announced(outcome, events.CapSet)][-1] == end.setting
    common, held = truth(case, (outcome.final_cap_w,) * 4), truth(case, end.setting)
    assert held.energy_per_iteration_j < 0.995 * common.energy_per_iteration_j
    assert held.period_s <= 1.003 * common.period_s
    saved = Metric(name="energy").versus(end.measurement, end.common)
    true = held.energy_per_iteration_j / common.energy_per_iteration_j
    assert abs(saved.value - true) < 3 * saved.stderr + 1e-4


@pytest.mark.slow
def test_every_window_at_caps_per_gpu_lies_between_two_at_the_common_cap() -> None:
    outcome = changed_while_held()
    end = announced(outcome, PerGpuDecided)[0]
    common_w = end.common.setting
    assert len(set(common_w)) == 1
    set_ = announced(outcome, events.CapSet)
    caps_w = [event.setting for event in set_ if event.t_s <= end.t_s]
    begun = max(index for index, cap_w in enumerate(caps_w) if cap_w == (260.0,) * 4)
    alternating = caps_w[begun + 1 :]
    assert alternating[0::2] == [common_w] * len(alternating[0::2])
    assert common_w not in alternating[1::2]
    assert next(event.setting for event in set_ if event.t_s > end.t_s) == end.setting


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [{"min_cap_w": 165.0}, {"caps_w": (150.0, 165.0, 180.0)}])
def test_no_cap_leaves_the_bounds_or_the_grid(bounds: dict[str, object]) -> None:
    outcome = play(config=replace(PER_GPU, **bounds))  # type: ignore[arg-type]  # one keyword at a time
    tried_w = {cap_w for one in announced(outcome, PerGpuTried) for cap_w in one.setting}
    assert tried_w <= set(outcome.grid)
    assert max(tried_w, default=0.0) <= outcome.final_cap_w


@pytest.mark.slow
def test_on_cards_that_are_alike_the_common_cap_is_held() -> None:
    outcome = play(node=SimulatedNode(gpus=4))
    (end,) = announced(outcome, PerGpuDecided)
    assert not end.kept
    assert (
        end.setting == [event.setting for event in announced(outcome, events.CapSet)][-1] == (outcome.final_cap_w,) * 4
    )


def test_one_gpu_has_no_cap_of_its_own_and_is_told_so() -> None:
    outcome = play(node=SimulatedNode())
    assert announced(outcome, PerGpuDecided) == []
    assert warnings(outcome) == ["--per-gpu changes nothing for a job on one GPU: its cap is the common one"]


@pytest.mark.slow
def test_without_being_asked_for_no_gpu_gets_a_cap_of_its_own() -> None:
    outcome = play(config=TuneConfig(metric=EDS))
    assert announced(outcome, PerGpuDecided) == []
    assert all(len(set(cap_w)) == 1 for cap_w in [event.setting for event in announced(outcome, events.CapSet)])


@pytest.mark.slow
def test_a_slowdown_limit_holds_for_caps_per_gpu_as_well() -> None:
    limited = replace(PER_GPU, metric=Metric(name="energy", max_slowdown=0.05))
    outcome = play(config=limited)
    (end,) = announced(outcome, PerGpuDecided)
    assert end.kept
    assert limited.metric.allows(end.as_confirmed, outcome.decided.baseline)


class Purse(SlowdownBudget):
    """What the job may still lose lasts for so many looks."""

    def __init__(self, baseline: Measurement, looks: int) -> None:
        super().__init__(0.05, RunningTotals(), baseline, settle_s=0.0, fewest=8)
        self._looks = looks

    def saved_s(self, now_s: float) -> float:
        self._looks -= 1
        return float(self._looks)


@pytest.mark.parametrize("looks", [0, 1, 10])
def test_a_trial_ends_when_the_slowdown_that_is_allowed_so_far_is_used_up(looks: int) -> None:
    base = replace(measurement(350.0 * 0.5, 0.5), setting=(200.0, 200.0))
    sensor = SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5)
    context, progress, meter = StepContext((260.0, 260.0)), StepProgress(), Meter()
    balancing = Balancing(
        config=PER_GPU,
        lowering=Lowering(200.0, 2, CapGrid.stepped(100.0, 260.0, 5.0), Response(draw=0.9, time=0.35)),
        prober=Prober(PER_GPU, sensor),
        context=context,
        budget=Purse(base, looks),
        baseline=base,
        common=base,
    )
    balancing.begin()
    decided = None
    for one in samples(seconds=60.0):
        sample = replace(one, readings=(one.readings[0], replace(one.readings[0], power_w=150.0)))
        one_metered = meter.of(sample, progress.marks(sample))
        context.open(sample.t_s)
        decided = decided or balancing.take(one_metered)
        if decided is not None:
            break
    assert isinstance(decided, Decided)
    assert isinstance(decided.decision, Keep)
    assert decided.decision.settings == (200.0, 200.0)
    (said,) = [action.event for action in context.actions if isinstance(action, Announce)]
    assert isinstance(said, PerGpuDecided)
    assert said.reason == "the slowdown that --max-slowdown allows so far is used up"


@pytest.mark.slow
@pytest.mark.parametrize("end_s", [70.0, 250.0])
def test_a_job_that_ends_meanwhile_keeps_the_common_cap_on_record(end_s: float) -> None:
    outcome = play(end_s=end_s)
    assert all(not end.kept and len(set(end.setting)) == 1 for end in announced(outcome, PerGpuDecided))
    begun = outcome.decided is not None and outcome.decided.setting is not None
    assert len(announced(outcome, PerGpuDecided)) == int(begun)
    uuids = [gpu.uuid for gpu in outcome.device.gpus]
    assert [outcome.device.limits().requested_w(uuid) for uuid in uuids] == [260.0] * 4


@pytest.mark.slow
def test_a_workload_that_changes_meanwhile_is_searched_anew_from_the_common_cap_on() -> None:
    job = replace(QUIET, iterations=600, change=WorkloadChange(at=300, time=1.3))
    outcome = play(job)
    first, *_ = announced(outcome, PerGpuDecided)
    assert not first.kept
    assert first.reason.startswith("at the common cap the job has changed during the search: +")
    assert any(text.startswith("tuning anew: at the common cap") for text in warnings(outcome))
    baselines = [event.t_s for event in announced(outcome, events.BaselineMeasured)]
    assert max(baselines) > first.t_s


def test_caps_per_gpu_are_held_looked_at_again_and_given_up_for_a_changed_workload() -> None:
    outcome = changed_while_held()
    end = announced(outcome, PerGpuDecided)[0]
    assert end.kept
    again = [event for event in announced(outcome, events.Decided) if event.t_s > end.t_s]
    assert again[0].measurement.setting == end.setting
    (anew,) = announced(outcome, events.Warned)
    assert anew.text.startswith("tuning anew: the workload has changed: +")
    after = [event.setting for event in announced(outcome, events.CapSet) if event.t_s >= anew.t_s]
    assert after[0] == (260.0,) * 4


@pytest.mark.slow
def test_a_limit_that_somebody_else_sets_ends_the_search_and_stays() -> None:
    node = replace(UNLIKE, changes=(LimitChange(t_s=100.0, cap_w=210.0, gpu=1),))
    outcome = play(node=node, job=replace(QUIET, iterations=600))
    limits = outcome.device.limits()
    found = [limits.requested_w(gpu.uuid) for gpu in outcome.device.gpus]
    assert found == [260.0, 210.0, 260.0, 260.0]
    assert not any(end.kept for end in announced(outcome, PerGpuDecided))


@pytest.mark.slow
def test_iterations_that_are_only_guessed_at_find_no_caps_per_gpu() -> None:
    outcome = tune(QUIET, PER_GPU, "model", node=UNLIKE, seed=2, progress=SpeedProgress(), stop_when_held=True)
    assert announced(outcome, PerGpuDecided) == []
    assert State.HOLDING in states(outcome)


EDP = Metric(name="edp")


def window(energy_j: float, period_s: float, error: float = 0.0005) -> Measurement:
    return measurement(energy_j, period_s, energy_error=error, period_error=error, corr=0.9)


def compared(tried: Measurement, rounds: int = 3, metric: Metric = EDP) -> PerGpuComparison:
    comparison = PerGpuComparison((200.0,), (180.0,), window(100.0, 0.5), metric)
    for _ in range(rounds):
        assert comparison.inner_next
        comparison.add(tried)
        assert not comparison.inner_next
        comparison.add(window(100.0, 0.5))
    return comparison


@pytest.mark.parametrize(
    ("energy_j", "period_s", "objection"),
    [
        (97.0, 0.5, None),
        (97.0, 0.50015, None),  # 0.03 %: less than is told from noise
        (97.0, 0.5025, "slower than the common cap: +0.50 ± 0.03 % time"),
        (99.98, 0.5, "no energy saved beyond its error: -0.02 ± 0.03 %"),
        (101.0, 0.5, "no energy saved beyond its error: +1.00 ± 0.03 %"),
    ],
)
def test_caps_are_a_gain_only_with_less_energy_in_no_more_time(energy_j, period_s, objection) -> None:
    assert compared(window(energy_j, period_s)).objection() == objection


def test_a_metric_that_time_spoils_is_no_gain_however_little_of_it_is_noise() -> None:
    time_above_all = Metric(name="eds", k=1.001)
    said = compared(window(99.8, 0.50015), metric=time_above_all).objection()
    assert said.startswith("worse than the common cap: eds +0.03")


def test_a_trial_minds_time_alone() -> None:
    assert compared(window(100.5, 0.5), rounds=1).hindrance() is None
    assert compared(window(97.0, 0.505), rounds=1).hindrance() is not None


@pytest.mark.parametrize(("error", "rounds"), [(0.0005, 3), (0.0015, 5), (0.01, 6)])
def test_a_verdict_needs_three_rounds_and_more_where_time_is_noisy_but_six_at_most(error: float, rounds: int) -> None:
    comparison = PerGpuComparison((200.0,), (180.0,), window(100.0, 0.5, error), EDP)
    while not comparison.settled:
        comparison.add(window(97.0, 0.5, error))
        assert not comparison.settled  # the common cap comes last
        comparison.add(window(100.0, 0.5, error))
    assert math.isclose(comparison.inner.iterations, rounds * 100.0)


def test_what_is_said_of_the_time_of_the_confirmation_has_the_errors_of_all_three() -> None:
    then = window(200.0, 1.0, 0.001)
    moved = compared(window(95.0, 0.5), rounds=1).as_at(then)
    assert (moved.energy_per_iteration_j, moved.period_s) == (pytest.approx(190.0), pytest.approx(1.0))
    more = student_factor(14) / student_factor(7)  # of two windows
    three = math.sqrt(0.0005**2 + (0.0005 * more) ** 2 / 2 + 0.001**2)
    assert (moved.period_rel_stderr, moved.energy_rel_stderr) == (pytest.approx(three), pytest.approx(three, rel=1e-3))
    assert moved.time_energy_corr == pytest.approx(0.9, rel=1e-3)


def test_the_part_of_the_gpus_moves_with_the_whole_machine() -> None:
    whole = window(300.0, 0.5).with_gpus(window(100.0, 0.5))
    comparison = PerGpuComparison((200.0,), (180.0,), whole, EDP)
    comparison.add(window(295.0, 0.5).with_gpus(window(95.0, 0.5)))
    comparison.add(whole)
    moved = comparison.as_at(window(330.0, 0.5).with_gpus(window(120.0, 0.5)))
    assert moved.energy_per_iteration_j == pytest.approx(330.0 * 295 / 300)
    assert moved.of_gpus().energy_per_iteration_j == pytest.approx(120.0 * 0.95)


GRID = CapGrid.stepped(100.0, 260.0, 5.0)
NEAR = Response(draw=0.9, time=0.35)
COMMON_W = 180.0
CARDS = (1.0, 0.95, 1.05, 1.02)  # what a watt is worth on each
BEST_W = (175.0, 180.0, 165.0, 170.0)  # 180 · 0.95 / (1.0, 0.95, 1.05, 1.02), on the grid


class Node:
    """Cards that follow the response to the letter. waiting: what a waiting card draws of its draw while it computes;
    gains: of the cards' sensors."""

    def __init__(self, cards: Caps, *, waiting: float = 0.4, gains: Caps = (1.0, 1.0, 1.0, 1.0)) -> None:
        self._cards, self._waiting, self._gains = cards, waiting, gains

    def time(self, caps_w: Caps) -> float:
        """Over that at the common cap."""
        return max(self._times(caps_w)) / max(self._times((COMMON_W,) * len(caps_w)))

    def shows(self, caps_w: Caps) -> Shown:
        times, time = self._times(caps_w), self.time(caps_w)
        busy = [one / max(times) for one in times]
        draws_w = tuple(
            gain * cap_w**NEAR.draw * (share + self._waiting * (1 - share))
            for gain, cap_w, share in zip(self._gains, caps_w, busy, strict=True)
        )
        return Shown(settings=caps_w, draws_w=draws_w, time=Cost(value=time, stderr=1e-4), accepted=time < 1.001)

    def _times(self, caps_w: Caps) -> list[float]:
        return [(cap_w * card) ** -NEAR.time for cap_w, card in zip(caps_w, self._cards, strict=True)]


def planned(node: Node) -> tuple[Lowering, list[Caps]]:
    """All trials on a node, and the plan afterwards."""
    plan, tried = Lowering(COMMON_W, len(CARDS), GRID, NEAR), list[Caps]()
    plan.learn(node.shows(plan.common_w))
    while (caps_w := plan.ask()) is not None:
        tried.append(caps_w)
        plan.learn(node.shows(caps_w))
    return plan, tried


@pytest.mark.parametrize("waiting", [0.3, 0.45, 0.6])
def test_every_card_but_the_slowest_goes_to_where_it_would_be_the_slowest(waiting: float) -> None:
    plan, tried = planned(Node(CARDS, waiting=waiting))
    assert plan.best == BEST_W
    assert len(tried) <= 4


def test_nothing_is_tried_on_cards_that_are_alike() -> None:
    plan, tried = planned(Node((1.0, 1.0, 1.0, 1.0)))
    assert tried == []
    assert not plan.lowered


def test_cards_that_wait_without_drawing_less_are_left_alone() -> None:
    plan, tried = planned(Node(CARDS, waiting=1.0))
    assert tried == []
    assert plan.best == plan.common_w


@pytest.mark.parametrize("seed", range(6))
def test_sensors_that_mislead_cost_savings_but_never_time(seed: int) -> None:
    gains = tuple((1 + 0.02 * np.random.default_rng(seed).standard_normal(4)).tolist())
    node = Node(CARDS, gains=gains)
    plan, tried = planned(node)
    assert node.time(plan.best) < 1.001
    assert len(tried) <= 8
    assert len(set(tried)) == len(tried)
    for caps_w in tried:
        assert set(caps_w) <= set(GRID)
        assert max(caps_w) <= COMMON_W


def test_after_a_refusal_the_slowest_card_is_raised_and_none_goes_lower() -> None:
    node, plan = Node(CARDS), Lowering(COMMON_W, len(CARDS), GRID, NEAR)
    plan.learn(node.shows(plan.common_w))
    too_low = (165.0, 180.0, 165.0, 170.0)  # the first card is the slowest now
    plan.learn(node.shows(too_low))
    again = plan.ask()
    assert again[0] > too_low[0]
    assert all(cap_w >= before_w for cap_w, before_w in zip(again, too_low, strict=True))


def test_no_caps_are_tried_beneath_any_that_were_refused() -> None:
    node = Node(CARDS, gains=(0.97, 1.0, 1.0, 1.03))
    plan, tried = planned(node)
    refused = [caps_w for caps_w in tried if node.time(caps_w) >= 1.001]
    assert refused
    for number, caps_w in enumerate(tried):
        before = [other_w for other_w in tried[:number] if other_w in refused]
        assert not any(all(np.less_equal(caps_w, other_w)) for other_w in before)
    assert plan.best not in refused


def test_what_is_refused_when_it_is_looked_at_again_gives_way_to_what_was_accepted_before() -> None:
    plan = Lowering(COMMON_W, 2, GRID, NEAR)
    first, second = (180.0, 175.0), (180.0, 170.0)
    for caps_w in ((180.0, 180.0), first, second):
        plan.learn(Shown(settings=caps_w, draws_w=(100.0, 90.0), time=Cost(value=1.0, stderr=0.001), accepted=True))
    assert plan.best == second
    plan.learn(Shown(settings=second, draws_w=(100.0, 90.0), time=Cost(value=1.004, stderr=0.001), accepted=False))
    assert plan.best == first


def test_the_response_is_that_of_the_trials_near_the_common_cap() -> None:
    near = Response(draw=0.8, time=0.5)
    windows = []
    for cap_w in (140.0, 160.0, 200.0, 260.0):
        period_s = 0.5 * (cap_w / 180) ** -near.time
        window = measurement(energy_j=100 * period_s * (cap_w / 180) ** near.draw, period_s=period_s, cap_w=cap_w)
        windows.append(window)
    windows[-1] = replace(windows[-1], period_s=1.1 * windows[-1].period_s)  # far off, where the line need not hold
    found = response(180.0, windows)
    assert (found.draw, found.time) == (pytest.approx(near.draw, abs=0.01), pytest.approx(near.time, abs=0.05))


def test_one_cap_tells_no_response_and_noise_no_impossible_one() -> None:
    usual = response(180.0, [measurement(cap_w=180.0)])
    assert 0 < usual.time < usual.draw <= 1
    wild = response(180.0, [measurement(period_s=0.4, cap_w=175.0), measurement(period_s=0.6, cap_w=185.0)])
    assert (wild.time, wild.draw) == (0.1, 0.5)
