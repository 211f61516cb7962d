"""An earlier run is begun from only where it tells about this one."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.model.profiles import load
from autocap.devices.simulated.device import SimulatedDevice, SimulatedJob
from autocap.errors import RunDirectoryError, WarmStartRefused
from autocap.events import (
    BaselineMeasured,
    DeviceFound,
    Event,
    MetricInfo,
    NodeMetered,
    RunStarted,
    TrialEnded,
    TrialWithdrawn,
)
from autocap.records import Trial, TrialState
from autocap.runlog.directory import RunDirectory
from autocap.session.warm_start import EarlierRun, earlier_run
from tests.doubles.feeds import measurement

COMMAND = ("python", "train.py")
DEVICE = SimulatedDevice(VirtualClock(), SimulatedJob(profile=load("tesla-v100/resnet50")))
STARTED = RunStarted(
    t_s=0.0,
    autocap_version="0.1.0",
    mode="run",
    command=COMMAND,
    pid=42,
    started_at="2026-01-02T03:04:05+00:00",
    metric=MetricInfo(name="eds", k=2.0),
    strategy="golden",
    strategy_options=(),
    observe=False,
)
FOUND = DeviceFound(t_s=0.1, kind="simulated", emulated=True, gpus=DEVICE.gpus, original_w=(300.0,), driver="550.54.15")
BASELINE = BaselineMeasured(t_s=20.0, measurement=measurement(cap_w=300.0))
COMPLETE = Trial(
    cap_w=200.0, state=TrialState.COMPLETE, cost=0.9, cost_stderr=0.01, measurement=measurement(cap_w=200.0)
)
PRUNED = replace(COMPLETE, cap_w=100.0, state=TrialState.PRUNED)
FAILED = Trial(cap_w=150.0, state=TrialState.FAILED, reason="the job ended")


def written(directory: Path, events: Sequence[Event]) -> Path:
    with RunDirectory.create(directory / "run", False, datetime.now(UTC)) as run:
        for event in events:
            run.append(event)
    return directory / "run"


def earlier(directory: Path) -> EarlierRun:
    trials = [TrialEnded(t_s=30.0, trial=trial) for trial in (COMPLETE, PRUNED, FAILED)]
    return earlier_run(written(directory, [STARTED, FOUND, BASELINE, *trials]))


def test_a_run_that_counted_another_part_of_the_machine_is_refused(tmp_path: Path) -> None:
    metered = NodeMetered(t_s=0.1, source="ipmi", whole=True, refresh_s=1.0, idle_w=None, standard_idle_w=None)
    of_node = earlier_run(written(tmp_path / "node", [STARTED, FOUND, metered, BASELINE]))
    of_node.require_node("ipmi")
    with pytest.raises(WarmStartRefused, match="the source of the node's power was 'ipmi' and is now 'None'"):
        of_node.require_node(None)
    with pytest.raises(WarmStartRefused, match="was 'None' and is now '300 W'"):
        earlier(tmp_path).require_node("300 W")


def test_what_was_measured_to_the_end_is_the_history_the_baseline_first(tmp_path: Path) -> None:
    run = earlier(tmp_path)
    assert [(trial.cap_w, trial.state) for trial in run.history] == [
        (300.0, TrialState.COMPLETE),
        (200.0, TrialState.COMPLETE),
    ]
    assert run.history[0].measurement == BASELINE.measurement
    assert (run.command, run.gpus, run.driver) == (COMMAND, (DEVICE.gpus[0].name,), "550.54.15")


def test_what_was_withdrawn_is_no_history(tmp_path: Path) -> None:
    ended, gone = TrialEnded(t_s=30.0, trial=COMPLETE), TrialWithdrawn(t_s=40.0, cap_w=200.0, since_s=20.0, reason="no")
    run = earlier_run(written(tmp_path, [STARTED, FOUND, BASELINE, ended, gone]))
    assert [trial.cap_w for trial in run.history] == [300.0]
    later = replace(gone, since_s=31.0)  # of another search, after this trial
    run = earlier_run(written(tmp_path / "later", [STARTED, FOUND, BASELINE, ended, later]))
    assert [trial.cap_w for trial in run.history] == [300.0, 200.0]


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
        earlier_run(path)


def test_a_directory_without_a_run_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError):
        earlier_run(tmp_path / "nothing")
