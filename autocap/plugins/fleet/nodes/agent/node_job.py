"""The job's part on this node: its devices, their guardian, its steps and the machine's power, and what is done with
them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autocap.clock import Clock
from autocap.devices.base import PowerSource, Tunable
from autocap.errors import DeviceError
from autocap.limits import Restored
from autocap.limits.guard import LimitGuard
from autocap.plugins.fleet.nodes.agent.finding import JobHere
from autocap.plugins.fleet.nodes.protocol import Found
from autocap.plugins.fleet.nodes.rows import Row
from autocap.progress.counter import IterationCounter
from autocap.session.actuating import Actuation
from autocap.session.sampling import LocalSampler
from autocap.session.search_space import limits_found


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
    _counted: bool = True  # whether iterations need be, now
    _sampler: LocalSampler = field(init=False)
    _noted: int = 0  # of the guardian's notes

    def __post_init__(self) -> None:
        self._sampler = LocalSampler(
            clock=self.clock,
            device=self.device,
            steps=lambda: self.counting.read(0.0, needed=self._counted),
            node=self.meter,
        )

    def found(self) -> Found:
        """As the controller is told of it."""
        original_w = limits_found(self.device) if self.guardian is None else self.guardian.original_w
        return Found.of(self.device, original_w, self.way, self.meter)

    def read(self, *, counted: bool) -> Row:
        """All there is to read, as a session reads it. counted: whether iterations need be. Raises DeviceError."""
        self._counted = counted
        (sample,) = self._sampler.samples()
        return Row(t_s=sample.t_s, readings=sample.readings, steps=sample.steps, node=sample.node)

    def notes(self) -> tuple[str, ...]:
        """What the user should know, as far as it was not told yet; of how iterations are counted again and again."""
        guarded = () if self.guardian is None else self.guardian.notes
        new, self._noted = guarded[self._noted :], len(guarded)
        counting = self.counting
        fault = () if counting.fault is None else (counting.fault,)
        return (*new, *self._sampler.notes(), *counting.remarks, *fault)

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
