"""The state machine on the simulated device, in virtual time."""

from collections.abc import Mapping, Sequence

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import Announce, SetCaps
from autocap.controller.controller import Controller
from autocap.devices.model import profiles
from autocap.events import State
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import SensorInfo, TrialState
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import regret_pct, tune
from tests.doubles.feeds import samples
from tests.doubles.logs import announced, caps_set, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)


@pytest.mark.slow
def test_a_job_is_tuned_from_waiting_to_its_end() -> None:
    outcome = tune(SimulatedJob(profile=RESNET50, iterations=600), TuneConfig(metric=EDS), "golden")
    before_it_holds = [State.WAITING, State.BASELINE, State.SEARCHING, State.CONFIRMING]
    assert states(outcome) == [*before_it_holds, State.HOLDING, State.DONE]
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, 260.0) < 1.0
    assert caps_set(outcome)[-1] == outcome.final_cap_w


@pytest.mark.slow
def test_the_baseline_and_the_trials_are_what_the_profile_says() -> None:
    outcome = tune(SimulatedJob(profile=RESNET50), TuneConfig(metric=EDS), "golden", stop_when_held=True)
    measured = [event.measurement for event in announced(outcome, events.BaselineMeasured)]
    measured += [event.trial.measurement for event in outcome.trials if event.trial.measurement is not None]
    assert len(measured) > 5
    for found in measured:
        cap_w = found.setting[0]
        assert abs(found.period_s / RESNET50.time_s(cap_w) - 1) < 4 * found.period_rel_stderr + 0.003
        assert abs(found.energy_per_iteration_j / RESNET50.energy_j(cap_w) - 1) < 4 * found.energy_rel_stderr + 0.01


def test_a_job_without_a_saving_gets_its_limit_back_and_the_report_says_why() -> None:
    outcome = tune(
        SimulatedJob(profile=RESNET50), TuneConfig(metric=Metric(name="ed2p"), min_cap_w=100.0, caps_w=(100.0, 105.0)),
        "linear", stop_when_held=True,
    )  # fmt: skip
    assert outcome.decided.setting is None
    assert {event.trial.state for event in outcome.trials} == {TrialState.PRUNED}
    assert outcome.decided.reason == "no cap that was tried is allowed and better"
    assert not caps_set(outcome) or caps_set(outcome)[-1] == 260.0


@pytest.mark.slow
def test_a_limit_below_the_default_is_the_baseline_and_the_top_of_the_search() -> None:
    job, node = SimulatedJob(profile=RESNET50), SimulatedNode(limit_w=220.0)
    outcome = tune(job, TuneConfig(metric=EDS), "golden", node=node, stop_when_held=True)
    baseline = announced(outcome, events.BaselineMeasured)[0]
    assert baseline.measurement.setting == (220.0,)
    assert max(caps_set(outcome)) <= 220.0


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "seed"), [("golden", 0), ("golden", 1), ("golden", 2), ("linear", 0)])
def test_a_kept_cap_respects_the_slowdown_limit(strategy: str, seed: int) -> None:
    metric = Metric(name="energy", max_slowdown=0.05)
    job = SimulatedJob(profile=RESNET50)
    outcome = tune(job, TuneConfig(metric=metric), strategy, seed=seed, stop_when_held=True)
    assert outcome.decided.confirmed
    assert RESNET50.slowdown(outcome.final_cap_w) <= 1.05
    assert outcome.final_cap_w < 260.0
    too_slow = [event.trial for event in outcome.trials if event.trial.setting < 160.0]
    assert all(trial.state is TrialState.PRUNED for trial in too_slow)


@pytest.mark.slow
def test_one_common_cap_serves_all_gpus_of_a_job() -> None:
    job, node = SimulatedJob(profile=RESNET50), SimulatedNode(gpus=4)
    outcome = tune(job, TuneConfig(metric=EDS), "golden", node=node, stop_when_held=True)
    baseline = announced(outcome, events.BaselineMeasured)[0]
    assert baseline.measurement.energy_per_iteration_j == pytest.approx(4 * RESNET50.energy_j(260.0), rel=0.02)
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, 260.0) < 1.0
    assert all(len(set(event.setting)) == 1 for event in outcome.log.events if isinstance(event, events.CapSet))


def test_a_refused_limit_ends_the_tuning_and_not_the_job() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=200)
    outcome = tune(job, TuneConfig(metric=EDS), "golden", node=SimulatedNode(may_set=False))
    assert outcome.device.job_ended
    assert states(outcome)[-1] is State.DONE
    assert len(warnings(outcome)) == 1  # nothing was changed, so nothing is put back
    assert warnings(outcome)[0].startswith("tuning ended, the job goes on: ")
    assert outcome.device.limits().requested_w(outcome.device.gpus[0].uuid) == 260.0


def test_a_job_without_steps_is_left_alone_after_the_wait() -> None:
    job = SimulatedJob(profile=RESNET50, start_s=500.0)
    outcome = tune(job, TuneConfig(metric=EDS, wait_s=30.0), "golden", end_s=60.0)
    assert states(outcome) == [State.WAITING, State.DONE]
    assert warnings(outcome) == [
        "no optimiser step was seen within 30 s, so nothing is tuned; pass a larger --wait if the job starts slowly, "
        "or call autocap.step() once an iteration"
    ]
    assert caps_set(outcome) == []


@pytest.mark.parametrize("end_s", [1.0, 8.0, 20.0, 60.0, 100.0, 112.0, 150.0])
def test_a_job_that_ends_in_any_state_leaves_complete_totals(end_s: float) -> None:
    outcome = tune(SimulatedJob(profile=RESNET50), TuneConfig(metric=EDS), "golden", end_s=end_s)
    assert states(outcome)[-1] is State.DONE
    started = sum(isinstance(event, events.TrialStarted) for event in outcome.log.events)
    assert started - len(outcome.trials) in (0, 1)  # the one under way has not failed, and is left out
    assert all(event.trial.state is not TrialState.FAILED for event in outcome.trials)
    tallies = announced(outcome, events.Tally)
    if tallies:
        last = tallies[-1]
        truth = outcome.device.true_iterations(last.since_s, outcome.wall_s)
        assert last.iterations == pytest.approx(truth, abs=2)
        assert last.energy_j == pytest.approx(sum(outcome.device.true_energy_j(last.since_s, outcome.wall_s)), rel=0.03)


def deaf() -> Controller:
    """One whose strategy asks for 150 W and takes no answer."""
    return Controller(
        config=TuneConfig(metric=EDS),
        sensor=SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5),
        original_w=(260.0,),
        grid=CapGrid((150.0, 260.0)),
        progress=StepProgress(),
        new_strategy=lambda baseline, history, caps, metric: Faulty(options={"how": "deaf"}),
    )


def feed_until_it_tries(controller: Controller) -> None:
    for sample in samples(seconds=30.0, period_s=0.25):
        controller.feed(sample)
        if controller.settings == (150.0,):
            return


@pytest.mark.parametrize("how", ["the job ends", "a signal asks for the end"])
def test_a_trial_that_is_cut_short_from_outside_is_no_failed_one(how: str) -> None:
    controller = deaf()
    feed_until_it_tries(controller)
    assert controller.state is State.SEARCHING
    actions = controller.close(31.0) if how == "the job ends" else controller.stop(31.0, how)
    announced = [action.event for action in actions if isinstance(action, Announce)]
    assert not [event for event in announced if isinstance(event, events.TrialEnded)]
    assert [event.state for event in announced if isinstance(event, events.StateEntered)] == [State.DONE]


def test_observing_measures_the_baseline_says_what_it_would_try_and_sets_nothing() -> None:
    outcome = tune(SimulatedJob(profile=RESNET50, iterations=100), TuneConfig(metric=EDS, observe=True), "linear")
    assert State.SEARCHING not in states(outcome)
    would = announced(outcome, events.WouldTry)
    assert [event.settings for event in would] == [(260.0,)]
    assert caps_set(outcome) == []


class Faulty:
    """A stranger's strategy that misbehaves in the way its option says."""

    def __init__(self, *, options: Mapping[str, object], **_: object) -> None:
        self._how = options["how"]

    from autocap.strategies.options import Option

    OPTIONS = (Option(name="how", kind=str, default="raise", meaning="what goes wrong"),)

    def ask(self) -> float | None:
        if self._how == "raise":
            raise RuntimeError("out of ideas")
        return {"off grid": 103.0, "deaf": 150.0}.get(str(self._how))

    def predict(self) -> Sequence[object]:
        return ["more"] if self._how == "no prediction" else []

    def tell(self, trial: object) -> None:
        if self._how == "deaf":
            raise ValueError("told too much")

    def recommend(self) -> float | None:
        return None if self._how == "no prediction" else 150.0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "the strategy failed: RuntimeError: out of ideas; the limit found on arrival is kept"),
        ("off grid", "the strategy failed: it asked for 103.0 W, which is not on its grid; the limit found"),
        ("unmeasured", "the strategy failed: it recommended 150.0 W, which was never measured to the end; the limit"),
        ("deaf", "the strategy failed: ValueError: told too much; the limit found on arrival is kept"),
        ("no prediction", "the strategy failed: it predicted 'more', which is no Prediction of a cap on its grid; the"),
    ],
)
def test_whatever_a_plug_in_does_the_job_goes_on_at_its_own_limit(how: str, message: str) -> None:
    options: Sequence[tuple[str, str]] = [("how", how)]
    job = SimulatedJob(profile=RESNET50, iterations=60)
    outcome = tune(job, TuneConfig(metric=EDS), f"{__name__}:Faulty", options=options)
    assert [text for text in warnings(outcome) if text.startswith(message)]
    assert caps_set(outcome) in ([], [150.0, 260.0])  # put back at once, not only when the job ends
    assert outcome.device.job_ended
    assert outcome.device.limits().requested_w(outcome.device.gpus[0].uuid) == 260.0


def test_caps_that_were_put_back_meanwhile_are_set_again_and_only_those() -> None:
    controller = deaf()
    assert controller.interrupted(0.0) == []
    feed_until_it_tries(controller)
    assert controller.interrupted(30.0) == [SetCaps(settings=(150.0,))]
    controller.stop(31.0, "enough")
    assert controller.interrupted(32.0) == []
