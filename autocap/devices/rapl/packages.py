"""The CPU packages of this machine: which caps each takes, and which CPUs it has. Nothing here sets anything."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.devices.powercap import Package, Sysfs, Zone, find_packages
from autocap.devices.rapl.longterm import LongTermLimit, limits_of
from autocap.records import CapRange, GpuInfo

# The kernel takes any number. Below about a quarter of the rated power a package sleeps through most of its cycles, and
# the memory controller and the caches, which no cap slows, take what there is: no job has its best there.
_LEAST_SHARE = 0.25
# A found limit beyond this many times the rated power stands for none (boards write 4095 W).
_MOST_SHARE = 4.0
NO_LIMIT_W = 1000.0  # what stands for the limit of a package that has none


@dataclass(frozen=True, slots=True, kw_only=True)
class RaplPackage:
    """One package of the machine.

    uuid: of the zone that caps it, or else the first that shows it. limit: by which it is capped, `None` where it takes
    none; twins: those of its other interfaces. obstacle: why its limit cannot be set, `None` where nothing speaks
    against it. cpus: its CPUs, as far as is known.
    """

    index: int
    uuid: str
    name: str
    package: Package
    limit: LongTermLimit | None
    twins: tuple[LongTermLimit, ...]
    cap_range: CapRange
    obstacle: str | None
    cpus: frozenset[int]

    @property
    def where(self) -> str:
        return _where(self.index)

    @property
    def info(self) -> GpuInfo:
        return GpuInfo(index=self.index, uuid=self.uuid, name=self.name, cap_range=self.cap_range, noun="package")

    @property
    def limits(self) -> tuple[LongTermLimit, ...]:
        """The limits of all its interfaces, that by which it is capped first."""
        return self.twins if self.limit is None else (self.limit, *self.twins)

    def enforced_w(self) -> float | None:
        """The limit that holds, watts: the lowest in force; `None` where none is. Raises ZoneError."""
        return _lowest_w(self.limits)


def list_packages(sysfs: Sysfs | None = None) -> tuple[RaplPackage, ...]:
    """Every package, in the kernel's order. Raises DeviceUnavailable where there is none, ZoneError where a limit
    cannot be read."""
    sysfs = sysfs or Sysfs()
    model, places = _model(), _places(sysfs)
    return tuple(_described(package, model, places) for package in find_packages(sysfs))


def _described(package: Package, model: str, places: dict[tuple[int, int], set[int]]) -> RaplPackage:
    limit, *twins = limits_of(package, _where(package.index)) or (None,)
    inside = (cpus for (number, die), cpus in places.items() if number == package.number and package.die in (None, die))
    return RaplPackage(
        index=package.index,
        uuid=uuid_of(package.zones[0] if limit is None else limit.zone),
        name=model,
        package=package,
        limit=limit,
        twins=tuple(twins),
        cap_range=_cap_range(limit, twins),
        obstacle=_obstacle(package.index) if limit is None else None,
        cpus=frozenset().union(*inside),
    )


def uuid_of(zone: Zone) -> str:
    """A name for a package that holds as long as the machine is up, and can stand in --gpus: intel-rapl-0."""
    return zone.id.replace(":", "-")


def _where(index: int) -> str:
    return f"package {index}"


def _obstacle(index: int) -> str:
    return (
        f"{_where(index)} counts its energy but takes no power limit, as AMD's and many virtual ones; pass --observe "
        "to measure it"
    )


def _cap_range(limit: LongTermLimit | None, twins: Sequence[LongTermLimit]) -> CapRange:
    """From a quarter of the rated power to that power, or to the limit found where that is higher; never above what
    another interface of the package lets through, since the lower limit counts."""
    if limit is None:
        return CapRange(min_w=NO_LIMIT_W, max_w=NO_LIMIT_W, default_w=NO_LIMIT_W)
    found_w, twin_w = limit.limit_w(), _lowest_w(twins)
    rated_w = limit.bound_w or found_w
    max_w = max(rated_w, min(found_w, _MOST_SHARE * rated_w))
    if twin_w is not None:
        max_w = min(max_w, twin_w)
    min_w = min(limit.least_w or max(1.0, float(round(_LEAST_SHARE * rated_w))), max_w)
    return CapRange(min_w=min_w, max_w=max_w, default_w=max(min_w, min(rated_w, max_w)))


def _lowest_w(limits: Sequence[LongTermLimit]) -> float | None:
    """The lowest limit in force, watts; `None` where none is."""
    return min((limit.limit_w() for limit in limits if limit.in_force()), default=None)


def _places(sysfs: Sysfs) -> dict[tuple[int, int], set[int]]:
    """The CPUs of each die of each package, by the kernel's numbers; none where it does not say."""
    found: dict[tuple[int, int], set[int]] = {}
    for folder in sysfs.folders(sysfs.root / "devices" / "system" / "cpu"):
        cpu = folder.name.removeprefix("cpu")
        if cpu.isdigit():
            with suppress(OSError, ValueError):  # one that is switched off
                number = int(sysfs.read(folder / "topology" / "physical_package_id"))
                found.setdefault((number, _die(sysfs, folder)), set()).add(int(cpu))
    return found


def _die(sysfs: Sysfs, folder: Path) -> int:
    try:
        return int(sysfs.read(folder / "topology" / "die_id"))
    except (OSError, ValueError):  # before Linux 5.2
        return 0


def _model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return "CPU package"
