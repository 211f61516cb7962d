"""The CPU packages of the machine as a source of devices: those that a job computes on, by what /proc and the scheduler
show of its processes; and all of them, for whoever acts for several jobs. Linux only."""

import math
import os
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from autocap.clock import Clock
from autocap.devices.base import CheckCaps, DeviceSource, Tunable
from autocap.devices.inventory import DescribedDevice, Inventory, ListedDevice, named
from autocap.devices.permission import settable_files
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.limits import RaplLimits
from autocap.devices.rapl.packages import RaplPackage, list_packages
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import ProcessId, Roots, spent_ticks, tree

if TYPE_CHECKING:
    from autocap.config import RunConfig


_UNCHANGED_S = 5.0  # ranks are bound to their packages one after the other
_COMPUTES = 0.1  # of what the busiest process uses: launchers, shells and monitors stay far below


class CpuUse:
    """Where the processes of a job may run, of those that do its work; each look covers the time since the last."""

    def __init__(self, job: Roots) -> None:
        self._job = job
        self._spent: dict[ProcessId, int] = {}

    def look(self) -> frozenset[int]:
        """The CPUs that the processes which compute may use; none while none does. The first look covers their lives.

        Ranks may be bound to packages by a launcher that is not.
        """
        before, self._spent = self._spent, {process: spent_ticks(process.pid) for process in tree(self._job)}
        moved = {process: spent - before.get(process, 0) for process, spent in self._spent.items()}
        most = max(moved.values(), default=0)
        if most == 0:
            return frozenset()
        found: set[int] = set()
        for process, ticks in moved.items():
            if ticks >= _COMPUTES * most:
                with suppress(OSError):  # it has ended
                    found |= os.sched_getaffinity(process.pid)
        return frozenset(found)


class RaplSource(DeviceSource):
    """The packages that a job's processes may run on, or those that --gpus names.

    Raises DeviceUnavailable where there is none, or where its energy cannot be read, and DeviceError for caps that they
    do not take.
    """

    def __init__(self, config: "RunConfig", clock: Clock, check: CheckCaps) -> None:
        self._clock, self._observe = clock, config.tune.observe
        packages = _chosen(config)
        self._cpus = {package.uuid: package.cpus for package in packages}
        self._certain = config.gpus is not None or len(packages) == 1
        device = RaplDevice(packages, clock, observe=self._observe)  # what cannot be read shows before the job starts
        self.known = device if self._certain else None
        if self._certain or len({package.cap_range for package in packages}) == 1:
            check(device.gpus)
        self._use: CpuUse | None = None
        self._seen: list[str] = []
        self._seen_s = 0.0

    def ahead(self) -> Tunable:
        """Those that --gpus names, or else all: where a command will compute is not known before it runs."""
        return self._open(self._cpus)

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        if self._certain:
            return self._open(self._cpus)
        self._use = self._use or CpuUse(job)
        used = self._use.look()
        found = [uuid for uuid, cpus in self._cpus.items() if cpus & used]
        if not found and (used or math.isinf(waited_s)):  # where it computes, or which CPUs those are, does not show
            found = list(self._cpus)
        if found != self._seen:
            self._seen, self._seen_s = found, waited_s
        settled = math.isinf(waited_s) or waited_s - self._seen_s >= _UNCHANGED_S
        return self._open(found) if found and settled else None

    def _open(self, uuids: Collection[str]) -> RaplDevice:
        # As they are now: what a dead run had left on them was put back since.
        packages = [package for package in list_packages() if package.uuid in uuids]
        if len(packages) < len(uuids):
            raise DeviceError("a CPU package that was there is gone, or capped by another interface; start again")
        return RaplDevice(packages, self._clock, observe=self._observe)


def _chosen(config: "RunConfig") -> tuple[RaplPackage, ...]:
    try:
        packages = list_packages()
    except DeviceError as error:
        raise DeviceUnavailable(str(error)) from error
    if config.gpus is None:
        return packages
    uuids = named(packages, config.gpus)
    return tuple(package for package in packages if package.uuid in uuids)


def open_source(config: "RunConfig", clock: Clock, check: CheckCaps, owner_uid: int | None) -> RaplSource:
    """The CPU packages of this machine."""
    return RaplSource(config, clock, check)


class RaplInventory(Inventory):
    """They come and go with the kernel's files, so nothing is kept open."""

    noun = "package"
    shared = "every user computes on a CPU package"

    def devices(self) -> tuple[ListedDevice, ...]:
        return tuple(map(_listed, self._packages()))

    def described(self) -> tuple[DescribedDevice, ...]:
        return tuple(map(_described, self._packages()))

    def pids(self, uuid: str) -> None:
        """Everybody computes on a package."""

    def limits(self) -> RaplLimits:
        return RaplLimits(list_packages())

    def _packages(self) -> tuple[RaplPackage, ...]:
        self.unreadable = ()
        try:
            return list_packages()
        except DeviceError as error:  # there is none, or none that can be read
            self.unreadable = (str(error),)
            return ()


def _listed(package: RaplPackage) -> ListedDevice:
    limit = package.limit
    return ListedDevice(
        index=package.index,
        uuid=package.uuid,
        kind=RaplDevice.kind,
        name=package.name,
        noun=RaplInventory.noun,
        cap_range=None if limit is None else package.cap_range,
        default_w=None if limit is None else package.cap_range.default_w,
        requested_w=None if limit is None else limit.limit_w(),
        enforced_w=package.enforced_w(),
        obstacle=package.obstacle,
    )


def _described(package: RaplPackage) -> DescribedDevice:
    limit, trouble = package.limit, None
    writable = limit is not None and limit.may_write()
    try:
        for zone in package.package.energy_zones:
            zone.energy_j()
    except DeviceError as error:
        trouble = str(error)
    zones = dict.fromkeys(zone.id for zone in (*package.package.energy_zones, *package.package.zones))
    return DescribedDevice(
        device=_listed(package),
        direct=settable_files(package.obstacle, writable=writable, switched_on=limit is not None and limit.in_force()),
        facts={
            "zones": tuple(zones),
            "window_s": None if limit is None else limit.window_s(),
            "memory": package.package.memory is not None,
            "trouble": trouble,
        },
    )
