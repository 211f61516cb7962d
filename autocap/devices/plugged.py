"""Devices that another package has added: its classes need not inherit from ours, what they lack is as ours have it.
And the way to what is turned, as the guard has it: a `LimitPort`, whose numbers are the values of any knob."""

from typing import Any, Self

from autocap.devices.base import DeviceSource, KnobPort, LimitPort, Tunable
from autocap.job.processes import Roots
from autocap.knobs import Knob


class PluggedSource(DeviceSource):
    """The source of such devices."""

    def __init__(self, theirs: DeviceSource) -> None:
        self._theirs = theirs
        self.known = completed(theirs.known, Tunable)

    def __enter__(self) -> Self:
        self._theirs.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._theirs.__exit__(*error)

    def ahead(self) -> Tunable | None:
        found: Tunable | None = completed(self._theirs.ahead(), Tunable)
        return found

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        found: Tunable | None = completed(self._theirs.find(job, waited_s), Tunable)
        return found


def as_port(theirs: LimitPort) -> LimitPort:
    """The way to the limits of a device, whoever's it is."""
    port: LimitPort = completed(theirs, LimitPort)
    return port


def completed(theirs: Any, ours: type) -> Any:  # of whatever class it is
    """The same, with the members of our class that it lacks."""
    if theirs is None or ours in type(theirs).__mro__:
        return theirs

    def handed_on(name: str) -> property:
        return property(lambda made: getattr(theirs, name))

    own = {name: handed_on(name) for name in dir(theirs) if not name.startswith("_")}
    return type(type(theirs).__name__, (ours,), own)()


class KnobLimits(LimitPort):
    """Of another knob than the power limit. What is said of watts is meant of its values."""

    def __init__(self, port: KnobPort) -> None:
        self._port = port

    def requested_w(self, uuid: str) -> float | None:
        return self._port.requested(uuid)

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        self._port.set(uuid, cap_w)

    def close(self) -> None:
        self._port.close()


def as_limits(theirs: KnobPort) -> LimitPort:
    """The way to a knob, whoever's it is."""
    return KnobLimits(completed(theirs, KnobPort))


def port_of(device: Tunable, knob: Knob) -> LimitPort:
    """The setter of a device's limits, or of another knob. Raises DeviceError as these do."""
    return device.limits() if knob.is_power_limit else as_limits(device.knob_port(knob.name))
