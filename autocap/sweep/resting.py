"""The machine between the runs of a sweep, while it has nothing to do: what it draws at rest, where that counts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from autocap.clock import Clock
from autocap.devices.base import Device, PowerSource
from autocap.errors import DeviceError
from autocap.events import Event, IdleEstimated, Warned
from autocap.events.sweep import PlannedRun
from autocap.measurement.energy import node_power_w
from autocap.measurement.idle import RestPower
from autocap.records import Sample

LOOK_EVERY_S = 0.5


@dataclass(slots=True, kw_only=True)
class Resting:
    """Looks at the node's power between runs. Where its source tells of the rest of the machine alone, each set of GPUs
    has an estimate of its own, with what those draw.
    """

    node: PowerSource
    clock: Clock
    announce: Callable[[Event], None]
    _seen: dict[str | None, RestPower] = field(default_factory=dict)

    def look(self, run: PlannedRun, device: Device | None) -> None:
        """Read the machine, which waits for that run. device: of the run, `None` where only the command makes it."""
        reading = self.node.read()
        for note in self.node.notes():
            self.announce(Warned(t_s=self.clock.now(), text=note))
        watts = reading.power_w
        if not reading.whole:
            try:
                readings = None if device is None else device.read()
            except DeviceError:  # the run that is to come will say so
                readings = None
            if readings is None:
                return
            watts = node_power_w(Sample(t_s=self.clock.now(), readings=readings, node=reading))
        self._rest(run).see(self.clock.now(), watts)

    def end(self, run: PlannedRun) -> None:
        """The run begins now: say what was seen so far."""
        rest = self._rest(run)
        rest.look_away()
        power_w = rest.estimate()
        if power_w is not None:
            self.announce(
                IdleEstimated(t_s=self.clock.now(), power_w=power_w, seen_s=rest.seen_s, gpus=self._counted_with(run))
            )

    def _rest(self, run: PlannedRun) -> RestPower:
        return self._seen.setdefault(self._counted_with(run), RestPower())

    def _counted_with(self, run: PlannedRun) -> str | None:
        return None if self.node.whole else run.gpus
