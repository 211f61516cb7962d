"""What an earlier run gives to a search: its trials, if it ran the same command on the same kind of device.

The trials reach the strategy as history. It verifies them against its own first trial, and starts over where they no
longer hold.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from autocap.devices.base import Device
from autocap.errors import WarmStartRefused
from autocap.events import BaselineMeasured, DeviceFound, NodeMetered, RunStarted, TrialEnded
from autocap.events.settled import settled
from autocap.records import Trial, TrialState
from autocap.runlog.event_log import read_events

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run to begin from. gpus: their models, in order. driver: its version, `None` where there is none or it was not
    recorded. history: every trial that was measured, the baseline's as one of them, oldest first.
    node: the source of the machine's power, `None` where energy was the devices' own.
    """

    path: Path
    command: tuple[str, ...]
    gpus: tuple[str, ...]
    driver: str | None
    history: tuple[Trial, ...]
    node: str | None = None

    def require_command(self, command: tuple[str, ...]) -> None:
        """Raises WarmStartRefused where that is another command than the earlier run's."""
        if command != self.command:
            self._refuse("command", " ".join(self.command), " ".join(command))

    def require_device(self, device: Device) -> None:
        """Raises WarmStartRefused where the devices are of another model, or the driver of another branch."""
        gpus = tuple(gpu.name for gpu in device.gpus)
        if gpus != self.gpus:
            self._refuse("GPU model", ", ".join(self.gpus), ", ".join(gpus))
        if _branch(device.driver) != _branch(self.driver):
            self._refuse("driver", str(self.driver), str(device.driver))

    def require_node(self, node: str | None) -> None:
        """Raises WarmStartRefused where energy was that of another part of the machine, or another meter read it."""
        if node != self.node:
            self._refuse("source of the node's power", str(self.node), str(node))

    def _refuse(self, what: str, then: str, now: str) -> None:
        raise WarmStartRefused(
            f"--warm-start {self.path}: the {what} was '{then}' and is now '{now}', so its curve says nothing here; "
            "leave the option out"
        )


def earlier_run(path: Path) -> EarlierRun:
    """The run that a directory holds. Raises RunDirectoryError where there is none, WarmStartRefused where it
    measured nothing."""
    events = read_events(path, log.debug)
    command: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    node: str | None = None
    history: list[Trial] = []
    for event in settled(events):
        match event:
            case RunStarted():
                command = event.command
            case DeviceFound():
                gpus, driver = tuple(gpu.name for gpu in event.gpus), event.driver
            case NodeMetered():
                node = event.source
            case BaselineMeasured(measurement=baseline) if baseline.valid:
                cap_w = min(baseline.cap_w)
                history.append(
                    Trial(cap_w=cap_w, state=TrialState.COMPLETE, cost=1.0, cost_stderr=0.0, measurement=baseline)
                )
            case TrialEnded(trial=trial) if trial.state is TrialState.COMPLETE:
                history.append(trial)
    if not history:
        raise WarmStartRefused(f"--warm-start {path}: that run measured no cap to the end; leave the option out")
    return EarlierRun(path=path, command=command, gpus=gpus, driver=driver, history=tuple(history), node=node)


def _branch(driver: str | None) -> str | None:
    """What two driver versions must share: "550" of "550.54.15"."""
    return None if driver is None else driver.split(".", maxsplit=1)[0]
