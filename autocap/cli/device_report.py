"""What `autocap devices` says of a machine, and its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autocap import registry
from autocap.cli.device_setters import Setter, Setters, together
from autocap.devices.inventory import DescribedDevice, SensorSeen
from autocap.errors import DeviceError


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
    persistence: bool | None = None
    mig: bool = False
    sensor: SensorSeen = field(default_factory=SensorSeen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package(Limited):
    """zones: the kernel's, those of energy first. window_s: over which the limit holds. trouble: why energy cannot be
    read; `None` where it can."""

    zones: tuple[str, ...] = ()
    window_s: float | None = None
    memory: bool = False
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """unavailable: why no GPU is shown, or not every one; likewise packages_unavailable. other_kinds: of devices from
    other packages, with their modules. budget: what holds the limits of some, as its plug-in says (`inventory` of
    `autocap.plugins.fleet.budget.holder`); `None` where none runs."""

    driver_version: str | None
    unavailable: str | None
    gpus: tuple[Gpu, ...]
    packages: tuple[Package, ...]
    packages_unavailable: str | None
    other_kinds: dict[str, str]
    budget: Mapping[str, Any] | None = None


def here() -> DeviceReport:
    """Of this machine. It only reads, and watches the GPUs' sensors for some seconds."""
    setters = Setters()
    found: dict[bool, list[DescribedDevice]] = {True: [], False: []}  # those that everybody shares, and the others
    missing: dict[bool, list[str]] = {True: [], False: []}
    for kind in registry.names("inventories"):
        with registry.load("inventories", kind)() as inventory:
            shared = inventory.shared is not None
            try:
                found[shared] += inventory.described()
                missing[shared] += inventory.unreadable
            except DeviceError as error:  # a driver that fails
                missing[shared].append(str(error))
    return DeviceReport(
        driver_version=next((one.device.driver for one in found[False]), None),
        unavailable="; ".join(missing[False]) or None,
        gpus=tuple(Gpu(**_limited(one, setters), **one.facts) for one in found[False]),
        packages=tuple(Package(**_limited(one, setters), **one.facts) for one in found[True]),
        packages_unavailable="; ".join(missing[True]) or None,
        other_kinds=registry.plugged_in("devices"),
        budget=registry.load("holders", "budget").inventory() if "budget" in registry.ours("holders") else None,
    )


def _limited(one: DescribedDevice, setters: Setters) -> dict[str, Any]:
    device, who = one.device, setters.of(one)
    settable, cap_range = together(who), device.cap_range
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "cap_min_w": None if cap_range is None else cap_range.min_w,
        "cap_max_w": None if cap_range is None else cap_range.max_w,
        "cap_default_w": device.default_w,
        "cap_requested_w": device.requested_w,
        "cap_enforced_w": device.enforced_w,
        "settable": settable.answer,
        "settable_why": settable.why,
        "setters": who,
    }


def report_of(said: Mapping[str, Any]) -> DeviceReport:
    """What `asdict` and JSON have made of one elsewhere. Raises ValueError where it is none of this version's."""

    def limited(one: Mapping[str, Any]) -> dict[str, Any]:
        return {**one, "setters": tuple(Setter(**setter) for setter in one["setters"])}

    try:
        gpus = tuple(Gpu(**{**limited(one), "sensor": SensorSeen(**one["sensor"])}) for one in said["gpus"])
        packages = tuple(Package(**{**limited(one), "zones": tuple(one["zones"])}) for one in said["packages"])
        return DeviceReport(**{**said, "gpus": gpus, "packages": packages})
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
