"""Who could set the limit of a device, for `autocap devices`: we ourselves, the helper, zeusd; and what each lacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autocap.devices.inventory import DescribedDevice
from autocap.devices.permission import Settable
from autocap.errors import ActuatorAbsent, ActuatorUnavailable
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
    """The helper and zeusd of this machine, each asked once."""

    def __init__(self) -> None:
        self._path = socket_path()
        self._offers: dict[str, Offer] = {}
        self._no_helper: Setter | None = None
        try:
            self._offers = offers_at(self._path)
        except ActuatorUnavailable as error:
            self._no_helper = _no("helper", error)

    def of(self, one: DescribedDevice) -> tuple[Setter, ...]:
        """Those of a device, in the order in which `--actuator auto` takes them."""
        own, device = Setter(name="direct", settable=one.direct.answer, why=one.direct.why), one.device
        if device.obstacle is not None:
            return (own,)
        zeusd = () if device.address is None else (_zeusd(device.where, device.address),)
        return (own, self._helper(device.uuid), *zeusd)

    def _helper(self, uuid: str) -> Setter:
        if self._no_helper is not None:
            return self._no_helper
        offer = self._offers.get(uuid)
        if offer is None:
            return Setter(name="helper", settable=False, why=f"the helper at {self._path} does not have this device")
        if not offer.allowed:
            return Setter(
                name="helper", settable=False, why=f"the helper at {self._path} does not lend it: {offer.why}"
            )
        bounds = f", from {offer.min_w:g} W to {offer.max_w:g} W" if None not in (offer.min_w, offer.max_w) else ""
        lent = ""
        if offer.lent_to is not None:
            lent = f"; PID {offer.lent_to.pid} of user {offer.lent_to.uid} has it now"
        why = f"the helper at {self._path} lends it{bounds}: {offer.why}{lent}"
        return Setter(name="helper", settable=True, why=why)


def together(setters: Sequence[Setter]) -> Settable:
    """Whether anybody could set it, and who; where nobody could, what we lack ourselves."""
    able = next((one for one in setters if one.settable is True), None)
    unsure = next((one for one in setters if one.settable == "unknown"), None)
    best = able or unsure or setters[0]
    return Settable(answer=best.settable, why=best.why)


def others(setters: Sequence[Setter]) -> tuple[str, ...]:
    """What is worth saying of the others, where we may not set the limit ourselves: sentences."""
    said = together(setters).why
    if setters[0].settable is True:
        return ()
    return tuple(f"{one.name}: {one.why}" for one in setters[1:] if one.there and one.why != said)


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
