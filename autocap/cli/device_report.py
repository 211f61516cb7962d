"""What `autocap devices` says of a machine, and its JSON: its devices, and who could set their limits (we ourselves,
the helper, zeusd), with what each lacks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autocap import registry
from autocap.devices.inventory import DescribedDevice, SensorSeen
from autocap.errors import ActuatorAbsent, ActuatorUnavailable, DeviceError
from autocap.limits.helper.offers import offers_at
from autocap.limits.helper.protocol import Offer, socket_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Setter:
    """name: as --actuator has it. settable: whether it could set the limit. why: a sentence. there: it is at all."""

    name: str
    settable: bool | Literal["unknown"]
    why: str
    there: bool = True


class Setters:
    """The helper and zeusd of this machine, each asked once. offers: the helper's, by UUID. no_helper: why there are
    none."""

    def __init__(self) -> None:
        self.path = socket_path()
        self.offers: dict[str, Offer] = {}
        self.no_helper: Setter | None = None
        try:
            self.offers = offers_at(self.path)
        except ActuatorUnavailable as error:
            self.no_helper = _no("helper", error)

    def of(self, one: DescribedDevice) -> tuple[Setter, ...]:
        """Those of a device, in the order in which `--actuator auto` takes them."""
        own, device = Setter(name="direct", settable=one.direct.answer, why=one.direct.why), one.device
        if device.obstacle is not None:
            return (own,)
        zeusd = () if device.address is None else (_zeusd(device.where, device.address),)
        return (own, self._helper(device.uuid), *zeusd)

    def _helper(self, uuid: str) -> Setter:
        if self.no_helper is not None:
            return self.no_helper
        offer = self.offers.get(uuid)
        if offer is None:
            return Setter(name="helper", settable=False, why=f"the helper at {self.path} does not have this device")
        if not offer.allowed:
            return Setter(name="helper", settable=False, why=f"the helper at {self.path} does not lend it: {offer.why}")
        bounds = f", from {offer.min_w:g} W to {offer.max_w:g} W" if None not in (offer.min_w, offer.max_w) else ""
        lent = ""
        if offer.lent_to is not None:
            lent = f"; PID {offer.lent_to.pid} of user {offer.lent_to.uid} has it now"
        why = f"the helper at {self.path} lends it{bounds}: {offer.why}{lent}"
        return Setter(name="helper", settable=True, why=why)


def _no(name: str, error: ActuatorUnavailable) -> Setter:
    return Setter(name=name, settable=False, why=str(error), there=not isinstance(error, ActuatorAbsent))


def _zeusd(where: str, address: str) -> Setter:
    from autocap.devices.nvml.zeusd import Zeusd  # with HTTP

    service = Zeusd.usual()
    try:
        service.require({where: address})
    except ActuatorUnavailable as error:
        return _no("zeusd", error)
    return Setter(name="zeusd", settable=True, why=f"zeusd at {service.address} sets it")


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

    def others(self) -> tuple[str, ...]:
        """What is worth saying of the other setters, where we may not set the limit ourselves: sentences."""
        there = () if self.setters[0].settable is True else self.setters[1:]
        return tuple(f"{one.name}: {one.why}" for one in there if one.there and one.why != self.settable_why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Limited):
    persistence: bool | None = None
    mig: bool = False
    sensor: SensorSeen = field(default_factory=SensorSeen)

    def troubles(self) -> Iterator[str]:
        """What to know of it, apart from who may set its limit: sentences."""
        if self.sensor.trouble is not None:
            yield self.sensor.trouble
        if self.persistence is False:
            yield "persistence mode is off, so a limit is lost when nobody uses the GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package(Limited):
    """zones: the kernel's, those of energy first. window_s: over which the limit holds. trouble: why energy cannot be
    read; `None` where it can."""

    zones: tuple[str, ...] = ()
    window_s: float | None = None
    memory: bool = False
    trouble: str | None = None

    def troubles(self) -> Iterator[str]:
        """As of a GPU."""
        if self.trouble is not None:
            yield self.trouble


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
    cap_range, best = (
        device.cap_range,
        next((one for answer in (True, "unknown") for one in who if one.settable == answer), who[0]),
    )
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "cap_min_w": None if cap_range is None else cap_range.min_w,
        "cap_max_w": None if cap_range is None else cap_range.max_w,
        "cap_default_w": device.default_w,
        "cap_requested_w": device.requested_w,
        "cap_enforced_w": device.enforced_w,
        "settable": best.settable,
        "settable_why": best.why,
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
