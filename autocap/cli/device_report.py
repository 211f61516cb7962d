"""What `autocap devices` says of a machine, and its JSON: its devices, and who could set their limits (we ourselves,
the helper, zeusd), with what each lacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from autocap.devices.inventory import DescribedDevice, SensorSeen
from autocap.errors import DeviceError, SetterAbsent, SetterUnavailable
from autocap.job import registry
from autocap.limits.helper.connection import offers_at
from autocap.limits.helper.protocol import Offer, socket_path

Budget = Mapping[str, Any]  # as its plug-in says (`inventory` of `autocap.plugins.fleet.budget.client`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setter:
    """name: as --via has it, or "budget". settable: whether it could set the limit. why: a sentence. there:
    it is at all."""

    name: str
    settable: bool | Literal["unknown"]
    why: str
    there: bool = True


def best(setters: Sequence[Setter]) -> Setter:
    """Who sets the limit, or, where nobody does, whose reason is the first to know."""
    return next((one for answer in (True, "unknown") for one in setters if one.settable == answer), setters[0])


class Setters:
    """The helper and zeusd of this machine, each asked once. offers: the helper's, by UUID. no_helper: why there are
    none."""

    def __init__(self) -> None:
        self.path = socket_path()
        self.offers: dict[str, Offer] = {}
        self.no_helper: Setter | None = None
        try:
            self.offers = offers_at(self.path)
        except SetterUnavailable as error:
            self.no_helper = _no("helper", error)

    def of(self, one: DescribedDevice, budget: Budget | None) -> tuple[Setter, ...]:
        """Those of a device: the budget that holds it, which whoever may join gets caps from, and the others in the
        order in which `--via auto` takes them."""
        if budget is not None and one.device.uuid in budget["gpus"]:
            why = f"the power budget that runs here (PID {budget['pid']}) gives its caps"
            return (Setter(name="budget", settable=True, why=why), *self._alone(one))
        return self._alone(one)

    def _alone(self, one: DescribedDevice) -> tuple[Setter, ...]:
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


def _no(name: str, error: SetterUnavailable) -> Setter:
    return Setter(name=name, settable=False, why=str(error), there=not isinstance(error, SetterAbsent))


def _zeusd(where: str, address: str) -> Setter:
    from autocap.devices.nvml.zeusd import Zeusd  # with HTTP

    service = Zeusd.usual()
    try:
        service.require({where: address})
    except SetterUnavailable as error:
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
    mig: bool | None = None
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
    other packages, with their modules. budget: what holds the limits of some; `None` where none runs."""

    driver_version: str | None
    unavailable: str | None
    gpus: tuple[Gpu, ...]
    packages: tuple[Package, ...]
    packages_unavailable: str | None
    other_kinds: dict[str, str]
    budget: Budget | None = None


def here() -> DeviceReport:
    """Of this machine. It only reads, and watches the GPUs' sensors for some seconds."""
    setters, budget = Setters(), budget_here()
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
        gpus=tuple(Gpu(**_limited(one, setters.of(one, budget)), **one.facts) for one in found[False]),
        packages=tuple(Package(**_limited(one, setters.of(one, budget)), **one.facts) for one in found[True]),
        packages_unavailable="; ".join(missing[True]) or None,
        other_kinds=registry.plugged_in("devices"),
        budget=budget,
    )


def budget_here() -> Budget | None:
    """The power budget of this machine; `None` where none runs, or the plug-in is not here."""
    there = "budget" in registry.ours("holders")
    found: Budget | None = registry.load("holders", "budget").inventory() if there else None
    return found


def _limited(one: DescribedDevice, setters: Sequence[Setter]) -> dict[str, Any]:
    device, setter = one.device, best(setters)
    cap_range = device.cap_range
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "cap_min_w": None if cap_range is None else cap_range.min_w,
        "cap_max_w": None if cap_range is None else cap_range.max_w,
        "cap_default_w": device.default_w,
        "cap_requested_w": device.requested_w,
        "cap_enforced_w": device.enforced_w,
        "settable": setter.settable,
        "settable_why": setter.why,
        "setters": setters,
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
