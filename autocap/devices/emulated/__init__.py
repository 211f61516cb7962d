"""The emulated device: a job's own processes play the GPU, and a cap slows them down as a published profile says."""

from typing import TYPE_CHECKING

from autocap.devices.base import CheckCaps
from autocap.devices.emulated.device import EmulatedDevice, EmulatedSource, limits_from_outside

if TYPE_CHECKING:
    from autocap.clock import Clock
    from autocap.config import RunConfig

__all__ = ["EmulatedDevice", "check_argument", "limits_from_outside", "open_source"]


def check_argument(profile: str) -> None:
    """Raises UsageError for a profile that there is none of."""
    from autocap.devices.model import require_profile  # what it needs is slow to import

    require_profile(profile)


def open_source(config: "RunConfig", clock: "Clock", check: CheckCaps, owner_uid: int | None) -> EmulatedSource:
    """The emulated device of a job."""
    return EmulatedSource(config, clock, check, owner_uid)
