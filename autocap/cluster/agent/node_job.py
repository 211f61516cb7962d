"""The job's part on this node: its devices, their guardian, its steps and the machine's power, and what is done with
them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocap.clock import Clock
from autocap.cluster.agent.finding import JobHere
from autocap.cluster.protocol import Found
from autocap.cluster.rows import Row
from autocap.devices.base import PowerSource, Tunable
from autocap.errors import DeviceError
from autocap.guardian import Restored
from autocap.progress.counter import IterationCounter
from autocap.session.actuating import Actuation
from autocap.session.caps import limits_found
from autocap.session.roles import LimitGuard

_HELD_UP_S, _LONGER = 0.1, 4.0  # longer than both, and so many times the quickest, no reading should take
_READINGS = 3  # at most, for one row


@dataclass(slots=True, kw_only=True)
class NodeJob:
    """job: its processes. way, guardian: `None` where the job is only observed."""

    clock: Clock
    job: JobHere
    device: Tunable
    counting: IterationCounter
    meter: PowerSource | None
    way: Actuation | None = None
    guardian: LimitGuard | None = None
    _quickest_s: float = math.inf  # that a reading took
    _noted: int = 0  # of the guardian's notes

    def found(self) -> Found:
        """As the controller is told of it."""
        device, way, meter = self.device, self.way, self.meter
        return Found(
            kind=device.kind,
            emulated=device.emulated,
            driver=device.driver,
            gpus=device.gpus if way is None else way.gpus,
            sensor=device.sensor,
            original_w=limits_found(device) if self.guardian is None else self.guardian.original_w,
            actuator="direct" if way is None else way.name,
            where="" if way is None else way.where,
            reason="" if way is None else way.reason,
            node_power=None if meter is None else meter.name,
            whole=meter is not None and meter.whole,
            refresh_s=None if meter is None else meter.refresh_s,
        )

    def read(self, *, counted: bool) -> Row:
        """All there is to read. Steps first, so that none has ended after the rest; readings that were long in coming
        are taken again, as they may be older than the clock then says. Raises DeviceError."""
        for _ in range(_READINGS):
            steps, begun_s = self.counting.read(0.0, needed=counted), self.clock.now()
            readings = self.device.read()
            node = None if self.meter is None else self.meter.read()
            t_s = self.clock.now()
            self._quickest_s = min(self._quickest_s, t_s - begun_s)
            if t_s - begun_s <= max(_HELD_UP_S, _LONGER * self._quickest_s):
                break
        return Row(t_s=t_s, readings=readings, steps=steps, node=node)

    def notes(self) -> tuple[str, ...]:
        """What the user should know, as far as it was not told yet; of how iterations are counted again and again."""
        guarded = () if self.guardian is None else self.guardian.notes
        new, self._noted = guarded[self._noted :], len(guarded)
        counting = self.counting
        fault = () if counting.fault is None else (counting.fault,)
        meter = () if self.meter is None else self.meter.notes()
        return (*new, *self.device.notes(), *meter, *counting.remarks, *fault)

    def rehearse(self) -> None:
        """Raises AutocapError where limits cannot be set, with all reasons."""
        way, guardian = self._held()
        with way.explained():
            guardian.rehearse()

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Request a cap of each device, watts. Raises as `rehearse`."""
        way, guardian = self._held()
        with way.explained():
            guardian.set_caps(caps_w)

    def restore(self) -> tuple[Restored, ...]:
        """Put the limits found on arrival back."""
        return () if self.guardian is None else tuple(self.guardian.restore())

    def beat(self) -> bool:
        """As LimitGuard has it."""
        return self.guardian is not None and self.guardian.beat()

    def _held(self) -> tuple[Actuation, LimitGuard]:
        if self.way is None or self.guardian is None:
            raise DeviceError("a job that is only observed has no limits to set; leave out --observe to tune it")
        return self.way, self.guardian
