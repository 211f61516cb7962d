"""The power limits of one GPU as the driver shows them, in watts."""

from collections.abc import Callable

import pynvml

from autocap.devices.nvml.calls import NvmlError, offered
from autocap.devices.nvml.fields import ENFORCED_LIMIT, GPU_SCOPE, REQUESTED_LIMIT, read_fields
from autocap.records import CapRange


def to_watts(milliwatts: float) -> float:
    """The nearest float to that many milliwatts, which `to_milliwatts` takes back exactly."""
    return milliwatts / 1000


def to_milliwatts(watts: float) -> int:
    return round(watts * 1000)


class LimitState:
    """Reads limits, afresh at each call. handle: NVML's. where: what messages call the GPU.

    All methods give `None` where the GPU does not say, and raise NvmlError for any other failure.
    """

    def __init__(self, handle: object, where: str) -> None:
        self._handle, self._where = handle, where

    def requested_w(self) -> float | None:
        """The limit last requested, by anybody. Field 192 is what was asked for, also where less is enforced."""
        what = f"reading the requested power limit of {self._where}"
        limit_w = self._field(what, REQUESTED_LIMIT)
        return self._getter(what, pynvml.nvmlDeviceGetPowerManagementLimit) if limit_w is None else limit_w

    def enforced_w(self) -> float | None:
        """The limit that holds after all limiters."""
        what = f"reading the enforced power limit of {self._where}"
        limit_w = self._field(what, ENFORCED_LIMIT)
        return self._getter(what, pynvml.nvmlDeviceGetEnforcedPowerLimit) if limit_w is None else limit_w

    def default_w(self) -> float | None:
        """The limit the GPU boots with."""
        what = f"reading the default power limit of {self._where}"
        return self._getter(what, pynvml.nvmlDeviceGetPowerManagementDefaultLimit)

    def bounds_w(self) -> tuple[float, float] | None:
        """The lowest and highest limit that the GPU accepts."""
        what = f"reading the power limit range of {self._where}"
        bounds = offered(what, pynvml.nvmlDeviceGetPowerManagementLimitConstraints, self._handle)
        return None if bounds is None else (to_watts(bounds[0]), to_watts(bounds[1]))

    def cap_range(self) -> CapRange | None:
        """What the GPU accepts. One that does not tell its default is taken to boot with its highest limit."""
        bounds_w, default_w = self.bounds_w(), self.default_w()
        if bounds_w is None or not 0 < bounds_w[0] <= bounds_w[1]:
            return None
        low_w, high_w = bounds_w
        default_w = high_w if default_w is None else default_w
        return CapRange(min_w=low_w, max_w=high_w, default_w=min(max(default_w, low_w), high_w))

    def _field(self, what: str, field: int) -> float | None:
        try:
            (answer,) = read_fields(what, self._handle, [(field, GPU_SCOPE)])
        except NvmlError as error:
            if error.absent:
                return None
            raise
        if answer.code != 0:
            failure = NvmlError(what, answer.code)
            if not failure.absent:
                raise failure
            return None
        return to_watts(answer.value) if answer.value > 0 else None

    def _getter(self, what: str, function: Callable[[object], int]) -> float | None:
        limit_mw = offered(what, function, self._handle)
        return None if not limit_mw else to_watts(limit_mw)
