"""The CPU packages of this machine: which caps each takes, which CPUs it has, what the kernel keeps of the long-term
power limit of each of its zones, and why a part of one could not be set."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autocap.devices.base import Setting
from autocap.devices.powercap import LONG_TERM, Package, Sysfs, Zone, ZoneError, find_packages
from autocap.errors import LimitNotPermitted, LimitRefused
from autocap.job.own_command import helper_advice, sudo_advice
from autocap.records import CapRange, GpuInfo

WITHOUT_ROOT = (
    f"{sudo_advice()}, {helper_advice()}, let a group of yours write the limit's files (a udev rule, see "
    "`autocap help node-power`), or pass --observe to measure without setting"
)
# The limit holds on average over its window, which firmware sets to about 28 s: for so long after each change a package
# would draw what it had saved up before. Over 1 s a cap can be measured.
CAP_WINDOW_US = 1_000_000
_SAME_WINDOW = 0.15  # the hardware's windows are a fifth to a quarter apart
_WINDOW, _ENABLED = "time_window_us", "enabled"  # what the settings are called


class LongTermLimit:
    """The long-term limit of a zone, read afresh at each call, and its window and the zone's flag beside it.

    where: what messages call the package. bound_w, least_w: the constraint's own bounds, `None` where it does not say.
    Methods that read raise ZoneError, those that write LimitRefused as well.
    """

    def __init__(self, zone: Zone, constraint: str, where: str) -> None:
        self.zone, self.where = zone, where
        self._limit_file, window_file = f"{constraint}_power_limit_uw", f"{constraint}_time_window_us"
        files = {_WINDOW: window_file, _ENABLED: _ENABLED}
        self._files = {name: file for name, file in files.items() if zone.has(file)}
        self.bound_w = _watts(zone.positive(f"{constraint}_max_power_uw"))
        self.least_w = _watts(zone.positive(f"{constraint}_min_power_uw"))

    def limit_w(self) -> float:
        return self.zone.number(self._limit_file) / 1e6

    def in_force(self) -> bool:
        """Whether the limit counts at all; a zone without a flag is always on."""
        return _ENABLED not in self._files or self.zone.number(_ENABLED) != 0

    def settings(self) -> tuple[Setting, ...]:
        """The window and the flag, those that there are."""
        return tuple(Setting(name=name, value=self.zone.number(file)) for name, file in self._files.items())

    def window_s(self) -> float | None:
        """Over which the limit holds on average; `None` where it does not say."""
        return self.zone.number(self._files[_WINDOW]) / 1e6 if _WINDOW in self._files else None

    def may_write(self) -> bool:
        """As far as the files' permissions show."""
        files = (self._limit_file, *self._files.values())
        return all(self.zone.sysfs.may_write(self.zone.path / file) for file in files)

    def request(self, limit_w: float) -> None:
        """Write the limit, watts."""
        self._write(self._limit_file, round(limit_w * 1e6), f"cap {limit_w:g} W")

    def apply(self, setting: Setting) -> None:
        """Write the window or the flag where it is another, and see that it was taken."""
        file = self._files.get(setting.name)
        if file is None:
            raise LimitRefused(f"{setting.name} of {self.where} was there and is gone; its driver may have changed")
        if self.zone.number(file) == setting.value:
            return
        self._write(file, setting.value, f"{setting.name} {setting.value}")
        kept = self.zone.number(file)
        if not _same(setting, kept):
            raise LimitRefused(
                f"{setting.name} {setting.value} was ignored by {self.where}, which keeps {kept}; {_LOCKED}"
            )

    def _write(self, file: str, value: int, what: str) -> None:
        try:
            self.zone.put(file, value)
        except ZoneError as error:
            refused = LimitNotPermitted if error.denied else LimitRefused
            raise refused(f"{what} was not set on {self.where}: {_reason(error)}") from error


def limit_of(zone: Zone, where: str) -> LongTermLimit | None:
    """The long-term limit of a zone; `None` where it has none, or none was ever set (0 W)."""
    constraint = zone.constraint(LONG_TERM)
    if constraint is None or zone.positive(f"{constraint}_power_limit_uw") is None:
        return None
    return LongTermLimit(zone, constraint, where)


def limits_of(package: Package, where: str) -> tuple[LongTermLimit, ...]:
    """The long-term limits of a package, one an interface that has any; the lowest in force counts.

    The first is the one to cap by: switched on, if any is. Switching it on, as a cap does, does not change which.
    """
    found = [limit for zone in package.zones if (limit := limit_of(zone, where)) is not None]
    return tuple(sorted(found, key=lambda limit: not limit.in_force()))


def for_a_cap(found: tuple[Setting, ...], *, switched_on: bool) -> tuple[Setting, ...]:
    """The settings with which a cap holds, and soon. found: those before; a window that was shorter stays.

    switched_on: `False` for a cap that is no more than the limit found, whose flag stays as it was.
    """
    return tuple(_needed(setting, switched_on) for setting in found)


def _needed(found: Setting, switched_on: bool) -> Setting:
    if found.name == _WINDOW:
        return found if 0 < found.value < CAP_WINDOW_US else replace(found, value=CAP_WINDOW_US)
    return replace(found, value=1) if switched_on else found


def is_a_caps_window(setting: Setting) -> bool:
    """Whether a setting can only come from a cap of ours. A zone's flag cannot: somebody else's limit needs it too."""
    return setting.name == _WINDOW and _same(setting, CAP_WINDOW_US)


_LOCKED = (
    "the firmware has locked it, or the kernel is in lockdown mode: unlock the package power limits in the BIOS "
    "set-up, or pass --observe to measure without setting"
)


def _reason(error: ZoneError) -> str:
    if error.code == errno.EROFS:
        return "sysfs is mounted read-only, as in a container; run autocap on the host, or give the container /sys"
    if not error.denied:
        return str(error)
    return f"although we are root, {_LOCKED}" if os.geteuid() == 0 else f"a limit needs root; {WITHOUT_ROOT}"


def _same(setting: Setting, value: int) -> bool:
    tolerance = _SAME_WINDOW * setting.value if setting.name == _WINDOW else 0
    return abs(setting.value - value) <= tolerance


def _watts(value_uw: int | None) -> float | None:
    return None if value_uw is None else value_uw / 1e6


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
