"""A cap per GPU in whole simulated jobs: what is held, what is undone, and what is said of it."""

from dataclasses import replace
from functools import cache

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.budget import SlowdownBudget
from autocap.controller.context import Announce, Keep, StepContext
from autocap.controller.per_gpu import Balancing, Lowering, Response
from autocap.controller.steps import Decided
from autocap.devices.model import profiles
from autocap.devices.simulated.job import SimulatedJob, WorkloadChange
from autocap.devices.simulated.node import LimitChange, SimulatedNode
from autocap.events import State
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.progress import SpeedProgress, StepProgress
from autocap.records import Measurement, SensorInfo
from autocap.strategies.grid import CapGrid
from bench.pergpu import Case, truth
from bench.simulation.jobs import Outcome, tune
from tests.doubles.feeds import Meter, measurement, samples
from tests.doubles.outcomes import announced, states, warnings

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


@pytest.mark.parametrize("bounds", [{"min_cap_w": 165.0}, {"caps_w": (150.0, 165.0, 180.0)}])
def test_no_cap_leaves_the_bounds_or_the_grid(bounds: dict[str, object]) -> None:
    outcome = play(config=replace(PER_GPU, **bounds))  # type: ignore[arg-type]  # one keyword at a time
    tried_w = {cap_w for one in announced(outcome, PerGpuTried) for cap_w in one.setting}
    assert tried_w <= set(outcome.grid)
    assert max(tried_w, default=0.0) <= outcome.final_cap_w


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


def test_without_being_asked_for_no_gpu_gets_a_cap_of_its_own() -> None:
    outcome = play(config=TuneConfig(metric=EDS))
    assert announced(outcome, PerGpuDecided) == []
    assert all(len(set(cap_w)) == 1 for cap_w in [event.setting for event in announced(outcome, events.CapSet)])


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


@pytest.mark.parametrize("end_s", [70.0, 250.0])
def test_a_job_that_ends_meanwhile_keeps_the_common_cap_on_record(end_s: float) -> None:
    outcome = play(end_s=end_s)
    assert all(not end.kept and len(set(end.setting)) == 1 for end in announced(outcome, PerGpuDecided))
    begun = outcome.decided is not None and outcome.decided.setting is not None
    assert len(announced(outcome, PerGpuDecided)) == int(begun)
    uuids = [gpu.uuid for gpu in outcome.device.gpus]
    assert [outcome.device.limits().requested_w(uuid) for uuid in uuids] == [260.0] * 4


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


def test_a_limit_that_somebody_else_sets_ends_the_search_and_stays() -> None:
    node = replace(UNLIKE, changes=(LimitChange(t_s=100.0, cap_w=210.0, gpu=1),))
    outcome = play(node=node, job=replace(QUIET, iterations=600))
    limits = outcome.device.limits()
    found = [limits.requested_w(gpu.uuid) for gpu in outcome.device.gpus]
    assert found == [260.0, 210.0, 260.0, 260.0]
    assert not any(end.kept for end in announced(outcome, PerGpuDecided))


def test_iterations_that_are_only_guessed_at_find_no_caps_per_gpu() -> None:
    outcome = tune(QUIET, PER_GPU, "model", node=UNLIKE, seed=2, progress=SpeedProgress(), stop_when_held=True)
    assert announced(outcome, PerGpuDecided) == []
    assert State.HOLDING in states(outcome)
