"""An earlier run is begun from only where it tells about this one, and only at a cap that is surely better."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.devices.model.profiles import load
from autocap.errors import RunDirectoryError, WarmStartRefused
from autocap.events import Event, State
from autocap.knobs import POWER_LIMIT
from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.runlog.directory import RunDirectory
from autocap.runlog.memory.store import Curve
from autocap.session.warm_start import WarmStart, WarmStartData, curve_of, warm_start
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from tests.doubles.feeds import measurement, trial_of
from tests.doubles.knob_logs import CLOCK, MODE, record_turned, turned
from tests.doubles.logs import STARTED
from tests.doubles.told import told

COMMAND = ("python", "train.py")
DEVICE = SimulatedDevice(VirtualClock(), SimulatedJob(profile=load("tesla-v100/resnet50")))
FOUND = events.DeviceFound(
    t_s=0.1, kind="simulated", emulated=True, gpus=DEVICE.gpus, original=(300.0,), driver="550.54.15"
)
BASELINE = events.BaselineMeasured(t_s=20.0, measurement=measurement(cap_w=300.0))
COMPLETE = trial_of(measurement(cap_w=200.0), 0.9)
PRUNED = replace(COMPLETE, setting=100.0, state=TrialState.PRUNED)
FAILED = Trial(setting=150.0, state=TrialState.FAILED, reason="the job ended")


EDS, ENERGY = Metric(name="eds", k=2.0), Metric(name="energy")


def written(directory: Path, log: Sequence[Event]) -> Path:
    with RunDirectory.create(directory / "run", False, datetime.now(UTC)) as run:
        for event in log:
            run.append(event)
    return directory / "run"


def earlier(directory: Path) -> WarmStart:
    trials = [events.TrialEnded(t_s=30.0, trial=trial) for trial in (COMPLETE, PRUNED, FAILED)]
    return warm_start(written(directory, [STARTED, FOUND, BASELINE, *trials]))


def test_a_run_that_counted_another_part_of_the_machine_is_refused(tmp_path: Path) -> None:
    metered = events.NodeMetered(t_s=0.1, source="ipmi", whole=True, refresh_s=1.0, idle_w=None, standard_idle_w=None)
    of_node = warm_start(written(tmp_path / "node", [STARTED, FOUND, metered, BASELINE]))
    of_node.require_node("ipmi")
    with pytest.raises(WarmStartRefused, match="the source of the node's power was 'ipmi' and is now 'None'"):
        of_node.require_node(None)
    with pytest.raises(WarmStartRefused, match="was 'None' and is now '300 W'"):
        earlier(tmp_path).require_node("300 W")


def history(run: WarmStart, metric: Metric = EDS, progress: str = "") -> list[Trial]:
    return list(run.earlier.history(metric, progress, BASELINE.measurement.setting))


def test_what_was_measured_to_the_end_is_the_history_the_baseline_first(tmp_path: Path) -> None:
    run = earlier(tmp_path)
    found = history(run)
    assert [trial.setting for trial in found] == [300.0, 200.0]
    assert {trial.state for trial in found} == {TrialState.COMPLETE}
    assert [trial.measurement for trial in found] == [BASELINE.measurement, COMPLETE.measurement]
    assert (run.command, run.gpus, run.driver) == (COMMAND, (DEVICE.gpus[0].name,), "550.54.15")


def test_what_was_withdrawn_is_no_history(tmp_path: Path) -> None:
    ended, gone = (
        events.TrialEnded(t_s=30.0, trial=COMPLETE),
        events.TrialWithdrawn(t_s=40.0, setting=200.0, since_s=20.0, reason="no"),
    )
    run = warm_start(written(tmp_path, [STARTED, FOUND, BASELINE, ended, gone]))
    assert [trial.setting for trial in history(run)] == [300.0]
    later = replace(gone, since_s=31.0)  # of another search, after this trial
    run = warm_start(written(tmp_path / "later", [STARTED, FOUND, BASELINE, ended, later]))
    assert [trial.setting for trial in history(run)] == [300.0, 200.0]


def test_what_was_counted_otherwise_is_no_history_and_said_to_be_none(tmp_path: Path) -> None:
    by_steps = events.ProgressFound(t_s=1.0, kind="steps", confidence="high")
    run = warm_start(written(tmp_path, [STARTED, FOUND, by_steps, BASELINE]))
    assert len(history(run, progress="steps")) == 1
    assert history(run, progress="period") == []
    assert run.counted_otherwise("period") == (
        f"--warm-start {tmp_path / 'run'}: iterations were counted by steps and are now counted by period, so the "
        "search begins from nothing"
    )


def test_another_command_is_refused_with_both_named(tmp_path: Path) -> None:
    run = earlier(tmp_path)
    run.require_command(COMMAND)
    with pytest.raises(WarmStartRefused) as refused:
        run.require_command(("python", "train.py", "--batch-size", "64"))
    assert str(refused.value) == (
        f"--warm-start {tmp_path / 'run'}: the command was 'python train.py' and is now "
        "'python train.py --batch-size 64', so its curve says nothing here; leave the option out"
    )


def test_another_gpu_model_is_refused(tmp_path: Path) -> None:
    run = replace(earlier(tmp_path), gpus=("Quadro RTX 6000",))
    with pytest.raises(WarmStartRefused, match="the GPU model was 'Quadro RTX 6000' and is now 'simulated Tesla V100"):
        run.require_device(DEVICE)


class _WithDriver:
    """A device under some driver."""

    def __init__(self, driver: str) -> None:
        self.gpus, self.driver = DEVICE.gpus, driver


@pytest.mark.parametrize(("driver", "refused"), [("550.90.07", False), ("555.42.02", True)])
def test_a_driver_of_another_branch_is_refused(tmp_path: Path, driver: str, refused: bool) -> None:
    run = earlier(tmp_path)
    device = _WithDriver(driver)
    if not refused:
        run.require_device(device)  # type: ignore[arg-type]
        return
    with pytest.raises(WarmStartRefused, match=r"the driver was '550\.54\.15' and is now '555\.42\.02'"):
        run.require_device(device)  # type: ignore[arg-type]


def test_a_run_that_measured_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [STARTED, FOUND])
    with pytest.raises(WarmStartRefused, match="that run measured no cap to the end"):
        warm_start(path)


def test_a_directory_without_a_run_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError):
        warm_start(tmp_path / "nothing")


# What a log tells of its searches.


def ended(cap_w: float, energy_j: float, period_s: float = 0.5, t_s: float = 30.0) -> events.TrialEnded:
    shown = measurement(energy_j, period_s, cap_w=cap_w)
    return events.TrialEnded(t_s=t_s, trial=replace(COMPLETE, setting=cap_w, measurement=shown))


def entered(state: State) -> events.StateEntered:
    return events.StateEntered(t_s=1.0, state=state)


def kept(cap_w: float, energy_j: float, baseline: Measurement = BASELINE.measurement) -> events.Decided:
    shown = measurement(energy_j, cap_w=cap_w, energy_error=0.001)
    return events.Decided(
        t_s=90.0, setting=cap_w, confirmed=True, reason="better", measurement=shown, baseline=baseline
    )


REFUSED = events.Decided(t_s=90.0, setting=None, confirmed=False, reason="not better")
ANEW: list[Event] = [entered(State.BASELINE), BASELINE, entered(State.SEARCHING)]
SEARCH: list[Event] = [STARTED, *ANEW, ended(200.0, 80.0), ended(150.0, 90.0)]


def curve(*log: Event) -> Curve:
    found = curve_of(log)
    assert found is not None
    return found


def test_a_search_that_kept_a_cap_shows_it_as_it_did_in_its_confirmation() -> None:
    found = curve(*SEARCH, entered(State.CONFIRMING), kept(200.0, 82.0), entered(State.HOLDING))
    assert (found.kept_w, found.holds, found.metric, found.measured_at) == (
        200.0, True, STARTED.metric, STARTED.started_at,
    )  # fmt: skip
    points = [(point.setting, point.measurement.energy_per_iteration_j) for point in found.points]
    assert points == [(150.0, 90.0), (200.0, 82.0)]


def test_what_was_measured_beside_a_later_baseline_counts_as_at_the_first() -> None:
    warmer = events.BaselineMeasured(t_s=50.0, measurement=measurement(110.0, 0.55, cap_w=300.0))
    found = curve(*SEARCH, warmer, ended(175.0, 88.0, 0.66), kept(175.0, 88.0, warmer.measurement))
    assert found.baseline == BASELINE.measurement
    (last,) = [point.measurement for point in found.points if point.setting == 175.0]
    assert last.energy_per_iteration_j == pytest.approx(80.0)


def test_a_cap_that_was_reverted_later_is_not_kept() -> None:
    assert curve(*SEARCH, kept(200.0, 82.0), entered(State.CONFIRMING), REFUSED).kept_w is None


def test_a_curve_of_a_workload_that_changed_does_not_hold_and_a_new_one_takes_its_place() -> None:
    before: list[Event] = [*SEARCH, kept(200.0, 82.0), entered(State.HOLDING)]
    assert curve(*before, entered(State.BASELINE)).holds is False
    unfinished = curve(*before, *ANEW, ended(175.0, 70.0))
    assert (unfinished.holds, {point.setting for point in unfinished.points}) == (False, {150.0, 200.0})
    after = curve(*before, *ANEW, ended(175.0, 70.0), kept(175.0, 70.0))
    assert (after.holds, after.kept_w, [point.setting for point in after.points]) == (True, 175.0, [175.0])


def test_a_pause_while_the_baseline_is_measured_begins_no_search() -> None:
    pause: list[Event] = [entered(State.PAUSED), entered(State.HOLDING)]
    assert curve(*SEARCH, kept(200.0, 82.0), entered(State.HOLDING), *pause).holds
    paused_before = (entered(State.BASELINE), entered(State.PAUSED), *ANEW)
    assert curve(STARTED, *paused_before, ended(200.0, 80.0), kept(200.0, 82.0)).holds


# What of it a run begins at.

GRID = CapGrid.stepped(100.0, 300.0, 5.0)
OF_EDS = curve(*SEARCH, kept(200.0, 82.0))
AT = OF_EDS.baseline.setting


def best_w(*curves: Curve, metric: Metric = EDS, grid: CapGrid = GRID, arrival_w: Sequence[float] = AT) -> float | None:
    return WarmStartData(curves=curves).best_w(metric, grid, arrival_w)


def test_a_run_begins_at_the_cap_that_the_last_one_of_its_metric_kept() -> None:
    lower = replace(OF_EDS, kept_w=150.0)
    assert (best_w(OF_EDS), best_w(OF_EDS, lower)) == (200.0, 150.0)
    assert best_w(OF_EDS, replace(OF_EDS, kept_w=None)) is None
    assert best_w(OF_EDS, grid=CapGrid([150.0, 250.0])) == 150.0  # the one that was kept is none of these


def test_with_another_metric_it_is_the_best_by_that() -> None:
    slow = curve(*SEARCH, ended(120.0, 60.0, 0.8), kept(200.0, 82.0))
    assert best_w(slow, metric=ENERGY) == 120.0
    assert best_w(slow, metric=replace(ENERGY, max_slowdown=0.1)) == 200.0
    assert best_w(replace(slow, kept_w=None), metric=ENERGY) == 120.0


def test_nothing_is_begun_at_that_is_not_surely_better_or_not_known_of_these_limits() -> None:
    hardly = curve(STARTED, *ANEW, ended(200.0, 99.5), kept(200.0, 99.5))
    assert best_w(hardly, metric=ENERGY) is None
    assert best_w(OF_EDS, arrival_w=(250.0,)) is None
    assert best_w(OF_EDS, arrival_w=(300.0, 300.0)) is None
    assert best_w(replace(OF_EDS, holds=False)) is None
    assert best_w() is None


def test_curves_of_several_runs_are_one_history_beside_the_last_baseline() -> None:
    warm = measurement(200.0, 1.0, cap_w=300.0)  # an "iteration" of twice the length
    last = replace(curve(STARTED, *ANEW, ended(150.0, 180.0, 1.0)), baseline=warm, progress="period")
    first = replace(OF_EDS, progress="period")
    found = WarmStartData(curves=(first, last)).history(ENERGY, "period", AT)
    assert [(trial.setting, pytest.approx(trial.cost)) for trial in found] == [
        (300.0, 1.0),
        (200.0, 0.82),
        (150.0, 0.9),
    ]
    assert found[1].measurement.period_s == pytest.approx(1.0)


def test_a_curve_from_other_limits_is_history_only_where_there_is_none_from_these() -> None:
    lower = replace(OF_EDS, baseline=measurement(95.0, 0.5, cap_w=250.0))
    both = WarmStartData(curves=(lower, OF_EDS))
    assert [both.history(EDS, "", (at_w,))[0].setting for at_w in (250.0, 280.0)] == [250.0, 300.0]


def test_a_run_of_another_knob_or_of_one_with_other_values_is_refused(tmp_path: Path) -> None:
    """Its settings are places in another list."""
    record_turned(tmp_path / "run", turned(CLOCK), CLOCK)
    run = warm_start(tmp_path / "run")
    assert run.knob == CLOCK
    run.require_knob(CLOCK)
    for other in (POWER_LIMIT, MODE, replace(CLOCK, values=(*CLOCK.values, 1800.0))):
        with pytest.raises(WarmStartRefused, match="the knob was 'clock' and is now '"):
            run.require_knob(other)
    (curve,) = run.earlier.curves
    assert {point.setting for point in curve.points} <= set(CLOCK.settings)
    record_turned(tmp_path / "power", told(), POWER_LIMIT)
    warm_start(tmp_path / "power").require_knob(POWER_LIMIT)
