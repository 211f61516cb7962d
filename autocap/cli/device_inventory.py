"""What `autocap devices` finds on a machine, and its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from autocap import registry
from autocap.cli.device_sensors import SensorSeen, sensors_of
from autocap.cli.device_setters import Setter, Setters, together
from autocap.devices import permission
from autocap.errors import DeviceError

if TYPE_CHECKING:
    from autocap.devices.nvml import Library, NvmlGpu
    from autocap.devices.rapl import RaplPackage


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """What a GPU and a CPU package have in common; `None` for what is not there. settable: by any of the setters."""

    index: int
    uuid: str
    name: str
    cap_min_w: float | None
    cap_max_w: float | None
    cap_default_w: float | None
    cap_requested_w: float | None
    cap_enforced_w: float | None
    settable: bool | Literal["unknown"]
    settable_why: str
    setters: tuple[Setter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Limited):
    persistence: bool | None
    mig: bool
    sensor: SensorSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Package(Limited):
    """zones: the kernel's, those of energy first. window_s: over which the limit holds. trouble: why energy cannot be
    read; `None` where it can."""

    zones: tuple[str, ...]
    window_s: float | None
    memory: bool
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """unavailable: why no GPU is shown, or not every one; likewise packages_unavailable. other_kinds: of devices from
    other packages, with their modules. budget: what holds the
    limits of some, as `autocap.plugins.fleet.budget.holder.Held`; `None` where none runs."""

    driver_version: str | None
    unavailable: str | None
    gpus: tuple[Gpu, ...]
    packages: tuple[Package, ...]
    packages_unavailable: str | None
    other_kinds: dict[str, str]
    budget: Mapping[str, Any] | None = None


def _gpus(library: "Library", inventory: "Sequence[NvmlGpu]", setters: Setters) -> tuple[Gpu, ...]:
    sensors = sensors_of(library, [gpu.uuid for gpu in inventory])
    privileges = permission.own_privileges()
    found = []
    for gpu, sensor in zip(inventory, sensors, strict=True):
        who = setters.of_gpu(library, gpu, permission.settable(gpu.limit_support, privileges))
        found.append(_gpu(gpu, sensor, who))
    return tuple(found)


def _gpu(gpu: "NvmlGpu", sensor: SensorSeen, setters: tuple[Setter, ...]) -> Gpu:
    settable = together(setters)
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        cap_min_w=None if gpu.cap_range is None else gpu.cap_range.min_w,
        cap_max_w=None if gpu.cap_range is None else gpu.cap_range.max_w,
        cap_default_w=gpu.default_w,
        cap_requested_w=gpu.requested_w,
        cap_enforced_w=gpu.enforced_w,
        settable=settable.answer,
        settable_why=settable.why,
        setters=setters,
        persistence=gpu.persistence,
        mig=gpu.mig,
        sensor=sensor,
    )


def _package(package: "RaplPackage", setters: Setters) -> Package:
    limit = package.limit
    range_w = None if limit is None else package.cap_range
    writable = limit is not None and limit.may_write()
    in_force = limit is not None and limit.in_force()
    direct = permission.settable_files(package.obstacle, writable=writable, switched_on=in_force)
    who = setters.of_package(package.uuid, direct, takes_limits=limit is not None)
    settable = together(who)
    trouble = None
    try:
        for zone in package.package.energy_zones:
            zone.energy_j()
    except DeviceError as error:
        trouble = str(error)
    return Package(
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
        setters=who,
        memory=package.package.memory is not None,
        trouble=trouble,
    )


def here() -> Inventory:
    """Of this machine. It only reads, and watches the GPUs' sensors for some seconds."""
    from autocap.devices import nvml, rapl

    setters = Setters()
    driver_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    packages: tuple[Package, ...] = ()
    unavailable = packages_unavailable = None
    try:
        with nvml.open_library() as library:
            inventory = library.inventory()
            missing = library.unreadable or (() if inventory else ("the NVIDIA driver shows no GPU here",))
            unavailable = "; ".join(missing) or None
            driver_version = inventory[0].driver_version if inventory else None
            gpus = _gpus(library, inventory, setters)
    except DeviceError as error:  # no driver, or one that fails
        unavailable = str(error)
    try:
        packages = tuple(_package(package, setters) for package in rapl.inventory())
    except DeviceError as error:
        packages_unavailable = str(error)
    return Inventory(
        driver_version=driver_version,
        unavailable=unavailable,
        gpus=gpus,
        packages=packages,
        packages_unavailable=packages_unavailable,
        other_kinds=registry.plugged_in("devices"),
        budget=registry.load("holders", "budget").inventory() if "budget" in registry.ours("holders") else None,
    )


def inventory_of(said: Mapping[str, Any]) -> Inventory:
    """What `asdict` and JSON have made of one elsewhere. Raises ValueError where it is none of this version's."""

    def limited(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "setters": tuple(Setter(**setter) for setter in one["setters"])}

    try:
        gpus = tuple(Gpu(**{**limited(one), "sensor": SensorSeen(**one["sensor"])}) for one in said["gpus"])
        packages = tuple(Package(**{**limited(one), "zones": tuple(one["zones"])}) for one in said["packages"])
        return Inventory(**{**said, "gpus": gpus, "packages": packages})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
