"""What `autocap devices` says of CPU packages: their limits, and whether their energy can be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autocap.devices import permission, rapl
from autocap.devices.powercap import ZoneError
from autocap.errors import DeviceError

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPackage:
    """zones: the kernel's, those of energy first. window_s: over which the limit holds. trouble: why energy cannot be
    read, or a limit; `None` where both can. What is not there is `None`."""

    index: int
    uuid: str
    name: str
    zones: tuple[str, ...]
    cap_min_w: float | None
    cap_max_w: float | None
    cap_default_w: float | None
    cap_requested_w: float | None
    cap_enforced_w: float | None
    window_s: float | None
    settable: bool | Literal["unknown"]
    settable_why: str
    memory: bool
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPackages:
    """packages_unavailable: why there are none."""

    packages: tuple[ShownPackage, ...]
    packages_unavailable: str | None


def look() -> ShownPackages:
    """Every package; nothing is written."""
    try:
        return ShownPackages(packages=tuple(map(_shown, rapl.inventory())), packages_unavailable=None)
    except DeviceError as error:
        return ShownPackages(packages=(), packages_unavailable=str(error))


def _shown(package: rapl.RaplPackage) -> ShownPackage:
    limit = package.limit
    range_w = None if limit is None else package.cap_range
    writable = limit is not None and limit.may_write()
    in_force = limit is not None and limit.in_force()
    settable = permission.settable_files(package.obstacle, writable=writable, switched_on=in_force)
    return ShownPackage(
        index=package.index,
        uuid=package.uuid,
        name=package.name,
        zones=tuple(dict.fromkeys(zone.id for zone in (*package.package.energy_zones, *package.package.zones))),
        cap_min_w=None if range_w is None else range_w.min_w,
        cap_max_w=None if range_w is None else range_w.max_w,
        cap_default_w=None if range_w is None else range_w.default_w,
        cap_requested_w=None if limit is None else limit.limit_w(),
        cap_enforced_w=package.enforced_w(),
        window_s=None if limit is None else limit.window_s(),
        settable=settable.answer,
        settable_why=settable.why,
        memory=package.package.memory is not None,
        trouble=_trouble(package),
    )


def _trouble(package: rapl.RaplPackage) -> str | None:
    try:
        for zone in package.package.energy_zones:
            zone.energy_j()
    except ZoneError as error:
        return str(error)
    return None


def table(packages: Sequence[ShownPackage]) -> "Table":
    """A row a package."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for title in ("package", "name", "limit W", "enforced W", "range W", "window s", "settable", "energy"):
        made.add_column(title, justify="left" if title in ("name", "settable", "energy") else "right")
    for package in packages:
        energy = "package and memory" if package.memory else "package"
        cells = (
            str(package.index),
            package.name,
            _number(package.cap_requested_w),
            _number(package.cap_enforced_w),
            "–" if package.cap_min_w is None else f"{_number(package.cap_min_w)}–{_number(package.cap_max_w)}",
            _number(package.window_s),
            {True: "yes", False: "no", "unknown": "unknown"}[package.settable],
            energy if package.trouble is None else "cannot be read",
        )
        made.add_row(*map(Text, cells))
    return made


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
