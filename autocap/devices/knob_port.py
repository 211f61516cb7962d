"""The way to what is turned, as the guard has it: a `LimitPort`, whose numbers are the values of any knob."""

from autocap.devices.base import KnobPort, LimitPort, Tunable
from autocap.devices.plugged import completed
from autocap.knobs import Knob


class KnobLimits(LimitPort):
    """Of another knob than the power limit. What is said of watts is meant of its values."""

    def __init__(self, port: KnobPort) -> None:
        self._port = port

    def requested_w(self, uuid: str) -> float | None:
        return self._port.requested(uuid)

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        self._port.set(uuid, cap_w)

    def close(self) -> None:
        self._port.close()


def as_limits(theirs: KnobPort) -> LimitPort:
    """The way to a knob, whoever's it is."""
    return KnobLimits(completed(theirs, KnobPort))


def port_of(device: Tunable, knob: Knob) -> LimitPort:
    """The setter of a device's limits, or of another knob. Raises DeviceError as these do."""
    return device.limits() if knob.is_power_limit else as_limits(device.knob_port(knob.name))
