"""Linux powercap: the CPU packages and their memory as the kernel's RAPL drivers show them, and their energy counters.

    for package in find_packages():
        counters = [EnergyCounter(zone, clock.now()) for zone in package.energy_zones]

One physical package may be there twice, by its registers (`intel-rapl`) and by its memory-mapped twin
(`intel-rapl-mmio`): it is one package here, whose energy is counted once. AMD shows its packages as `intel-rapl` too,
with energy alone. The platform's own zone (`psys`) is no package. Files and units: kernel documentation,
power/powercap/powercap.rst.

The kernel's small files are read and written again and again, each opened once: while a cap is held the loop then needs
no descriptor that it has not got. What the name stands for is asked each time, which takes none: a zone that has gone,
or came back with its driver, is noticed as if the file were opened afresh.
"""

import errno
import os
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.keeper import keeper
from autocap.job.own_command import sudo_advice
from autocap.job.trusted_code import SYSFS_VARIABLE

_MOST_BYTES = 4096  # a page, which is what such a file shows


class KeptFiles:
    """open: opens one. All methods raise OSError."""

    def __init__(self, open: Callable[[Path, int], int] = os.open) -> None:
        self._open = open
        self._fds: dict[tuple[Path, int], int] = {}
        weakref.finalize(self, _close_all, self._fds)

    def read(self, path: Path) -> bytes:
        return os.pread(self._fd(path, os.O_RDONLY), _MOST_BYTES, 0)

    def write(self, path: Path, data: bytes) -> None:
        """Never creates: a file that is not there is one that has gone."""
        fd = self._fd(path, os.O_WRONLY)
        os.ftruncate(fd, 0)
        os.pwrite(fd, data, 0)

    def close(self) -> None:
        """Keep none; one that is used after that is opened again."""
        _close_all(self._fds)

    def _fd(self, path: Path, flags: int) -> int:
        named = os.stat(path)
        fd = self._fds.get((path, flags))
        if fd is not None:
            opened = os.fstat(fd)
            if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino):
                return fd
            os.close(self._fds.pop((path, flags)))
        self._fds[path, flags] = self._open(path, flags)
        return self._fds[path, flags]


def _close_all(fds: dict[tuple[Path, int], int]) -> None:
    while fds:
        os.close(fds.popitem()[1])


LONG_TERM = "long_term"  # the constraint that caps; the others are for moments
_ZONE = re.compile(r"(intel-rapl(?:-[a-z]+)?):(\d+)(?::(\d+))?")
_PACKAGE = re.compile(r"package-(\d+)(?:-die-(\d+))?")
_PREFERRED = "intel-rapl"  # of a package's interfaces: the registers, which have every domain
_CONSTRAINTS = 8  # no zone has more
_ENERGY = "energy_uj"
_AGAIN = (_ENERGY, "enabled", "_power_limit_uw", "_time_window_us")  # how the names end of what the loop reads
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR})
_DENIED = frozenset({errno.EACCES, errno.EPERM})
# More than any package or its memory draws: what a counter may have moved, and how soon it may have wrapped unseen.
_MOST_W = 1000.0
_SLACK_S = 1.0

READABLE = (
    f"since CVE-2020-8694 the kernel lets root alone read it: {sudo_advice()}, or let a group of yours read it, "
    "`sudo chgrp GROUP FILE && sudo chmod g+r FILE` (until the next boot; a udev rule keeps it)"
)


class ZoneError(DeviceError):
    """A file of a zone could not be read or written.

    code: its errno, `None` where what was read is no number. lost: the zone is gone, and asking again is of no use.
    denied: we may not.
    """

    def __init__(self, what: str, error: OSError | ValueError, advice: str = "") -> None:
        self.code = error.errno if isinstance(error, OSError) else None
        self.lost, self.denied = self.code in _GONE, self.code in _DENIED
        if not advice:
            advice = "its driver has gone; load it (modprobe intel_rapl_msr)" if self.lost else "look at dmesg"
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it holds no whole number"
        super().__init__(f"{what} failed: {why}; {advice}")


class Sysfs:
    """The files of sysfs. root: where it is, by default where the environment or the kernel has it.

    What is read again and again, or written, is kept open until `close`. All methods raise OSError.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path(os.environ.get(SYSFS_VARIABLE) or "/sys") if root is None else root
        self._kept = KeptFiles(_opened)

    def read(self, path: Path) -> str:
        if path.name.endswith(_AGAIN):
            return self._kept.read(path).decode(errors="replace").strip()
        return path.read_text(errors="replace").strip()

    def write(self, path: Path, text: str) -> None:
        self._kept.write(path, text.encode())

    def close(self) -> None:
        """Keep no file open."""
        self._kept.close()

    def may_write(self, path: Path) -> bool:
        """As far as permissions show."""
        return os.access(path, os.W_OK)

    def folders(self, path: Path) -> list[Path]:
        """The folders in one, links to folders included; none where it is not there."""
        try:
            return sorted(entry for entry in path.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return []


def _opened(path: Path, flags: int) -> int:
    """Energy is root's alone to read, and under sudo opened by it. Raises OSError."""
    try:
        return os.open(path, flags)
    except PermissionError:
        root = keeper()
        if root is None or path.name != _ENERGY:
            raise
        return root.energy(path)


@dataclass(frozen=True, slots=True)
class Zone:
    """One power zone. id: such as intel-rapl:0:1. name: what the kernel calls it, such as dram."""

    sysfs: Sysfs
    path: Path
    id: str
    name: str

    @property
    def interface(self) -> str:
        return self.id.partition(":")[0]

    def number(self, file: str) -> int:
        """The whole number in a file. Raises ZoneError."""
        path = self.path / file
        try:
            return int(self.sysfs.read(path))
        except (OSError, ValueError) as error:
            denied = isinstance(error, OSError) and error.errno in _DENIED
            raise ZoneError(f"reading {path} ({self.name})", error, READABLE if denied else "") from error

    def energy_j(self) -> float:
        """The counter as it stands. Raises ZoneError."""
        return self.number(_ENERGY) / 1e6

    def positive(self, file: str) -> int | None:
        """The number in a file; `None` where it has none, or the 0 that stands for an unknown."""
        try:
            return self.number(file) or None
        except ZoneError:
            return None

    def put(self, file: str, value: int) -> None:
        """Write a number. Raises ZoneError."""
        path = self.path / file
        try:
            self.sysfs.write(path, str(value))
        except OSError as error:
            raise ZoneError(f"writing {value} to {path} ({self.name})", error) from error

    def has(self, file: str) -> bool:
        return (self.path / file).exists()

    def constraint(self, name: str) -> str | None:
        """What the files of the constraint of that name begin with, `None` where the zone has no such constraint."""
        for index in range(_CONSTRAINTS):
            try:
                if self.sysfs.read(self.path / f"constraint_{index}_name") == name:
                    return f"constraint_{index}"
            except OSError:
                continue
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One physical package, or one die of it where those have zones of their own.

    index: among the packages of the machine. number, die: the kernel's; die is `None` where a zone covers all.
    zones: that show the package, the preferred one first. memory: the zone of its DRAM, `None` where there is none.
    """

    index: int
    number: int
    die: int | None
    zones: tuple[Zone, ...]
    memory: Zone | None

    @property
    def energy_zones(self) -> tuple[Zone, ...]:
        """Whose energy adds up to the package's and its memory's."""
        return self.zones[:1] if self.memory is None else (self.zones[0], self.memory)


def find_packages(sysfs: Sysfs | None = None) -> tuple[Package, ...]:
    """The packages of this machine, in the kernel's order.

    Raises DeviceUnavailable where there is none, with what to do.
    """
    sysfs = sysfs or Sysfs()
    top = sysfs.root / "class" / "powercap"
    zones = _zones(sysfs, top)
    found: dict[tuple[int, int | None], list[Zone]] = {}
    for zone in zones:
        match = _PACKAGE.fullmatch(zone.name)
        if match:
            place = (int(match[1]), None if match[2] is None else int(match[2]))
            found.setdefault(place, []).append(zone)
    if not found:
        raise DeviceUnavailable(
            f"no CPU package with RAPL in {top}; load the driver (modprobe intel_rapl_msr), or leave --device rapl "
            "out: virtual machines and most ARM machines have none"
        )
    ordered = sorted(found.items(), key=lambda one: (one[0][0], one[0][1] or 0))
    return tuple(
        Package(index=index, number=number, die=die, zones=tuple(twins), memory=_memory(zones, twins))
        for index, ((number, die), twins) in enumerate(ordered)
    )


def energy_files(sysfs: Sysfs) -> tuple[Path, ...]:
    """The energy counters that `find_packages` finds. Raises DeviceUnavailable as it does."""
    return tuple(zone.path / _ENERGY for package in find_packages(sysfs) for zone in package.energy_zones)


def _zones(sysfs: Sysfs, top: Path) -> list[Zone]:
    """Every zone once, the preferred interface first."""
    found: dict[str, Zone] = {}
    for folder in _rapl_folders(sysfs, top):
        if _ZONE.fullmatch(folder.name) and folder.name not in found:
            try:
                name = sysfs.read(folder / "name")
            except OSError:  # one that is just going
                continue
            found[folder.name] = Zone(sysfs, folder, folder.name, name)
    return sorted(found.values(), key=lambda zone: (zone.interface != _PREFERRED, _order(zone.id)))


def _rapl_folders(sysfs: Sysfs, folder: Path) -> Iterator[Path]:
    """Of control types and zones, whether they stand beside or in each other; other links lead round in circles."""
    inner = [one for one in sysfs.folders(folder) if one.name.startswith(_PREFERRED)]
    yield from inner
    for one in inner:
        yield from _rapl_folders(sysfs, one)


def _order(zone_id: str) -> tuple[str, tuple[int, ...]]:
    interface, *numbers = zone_id.split(":")
    return interface, tuple(map(int, numbers))


def _memory(zones: list[Zone], twins: list[Zone]) -> Zone | None:
    """The memory's zone below the first twin that has one."""
    below = (zone for twin in twins for zone in zones if zone.id.rpartition(":")[0] == twin.id)
    return next((zone for zone in below if zone.name == "dram"), None)


class EnergyCounter:
    """The energy of one zone since it was made, joules, across wrap-around at `max_energy_range_uj`.

    trouble: why the last reading is none, `None` where it is one. To be read at least once a minute: the smallest
    counters wrap after five minutes at 200 W. t_s: now. Raises ZoneError where the zone cannot be read.
    """

    def __init__(self, zone: Zone, t_s: float) -> None:
        self.zone = zone
        self.trouble: str | None = None
        self._range_uj = zone.positive("max_energy_range_uj")
        self._total_uj = 0
        self._last_uj, self._last_s = zone.number(_ENERGY), t_s

    def read(self, t_s: float) -> float | None:
        """Joules so far; `None` where it is not known how much was used since the last reading (`trouble`); that
        part is not counted. t_s: now. Raises ZoneError."""
        now_uj, elapsed_s = self.zone.number(_ENERGY), t_s - self._last_s
        moved_uj, wrapped = now_uj - self._last_uj, False
        if moved_uj < 0 and self._range_uj is not None:
            moved_uj, wrapped = moved_uj + self._range_uj, True
        self.trouble = self._doubt(now_uj, moved_uj, elapsed_s, wrapped)
        self._last_uj, self._last_s = now_uj, t_s
        if self.trouble is not None:
            return None
        self._total_uj += moved_uj
        return self._total_uj / 1e6

    def _doubt(self, now_uj: int, moved_uj: int, elapsed_s: float, wrapped: bool) -> str | None:
        if self._range_uj is not None and elapsed_s * _MOST_W * 1e6 > self._range_uj:
            return f"was not read for {elapsed_s:.0f} s, in which it may have wrapped"
        if moved_uj < 0 or (wrapped and moved_uj > _MOST_W * 1e6 * (elapsed_s + _SLACK_S)):
            return f"went back from {self._last_uj / 1e6:.0f} J to {now_uj / 1e6:.0f} J, as after a restart"
        return None
