"""Devices that another package has added. Its classes need not inherit from ours: what they lack is as ours have it."""

from typing import Any, Self

from autocap.devices.base import DeviceSource, LimitPort, Tunable
from autocap.job.processes import Roots


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
