"""The guardian of a session under sudo, whose limits its keeper sets."""

from collections.abc import Sequence
from functools import partial

from autocap.devices import outside_limits
from autocap.devices.base import LimitVerifier, Tunable
from autocap.errors import GuardError, LimitClamped
from autocap.job.keeper import Keeper
from autocap.limits.helper.client import RemoteGuardian
from autocap.limits.helper.connection import Connection
from autocap.records import GpuInfo, same_limit

_CALLED = "the process with root's rights"


def kept(root: Keeper, device: Tunable, gpus: Sequence[GpuInfo]) -> RemoteGuardian:
    """A guardian of some devices. Raises DeviceError where they have no setter."""
    verifier = device.verifier() or _Verifier(device)
    return RemoteGuardian(gpus=gpus, verifier=verifier, connect=partial(_connect, root), called=_CALLED)


def _connect(root: Keeper, within_s: float) -> Connection:
    """Raises GuardError where the keeper is gone: there is no other one."""
    try:
        connected = root.guard()
    except OSError as error:
        raise GuardError(
            f"{_CALLED} cannot be asked ({error.strerror}), so no cap is set any more; what it has set is put back by "
            "its watchdog"
        ) from error
    return Connection(connected, within_s, other=_CALLED)


class _Verifier(LimitVerifier):
    """Of a device that another package has added: reads what is requested of it, as a watchdog would."""

    def __init__(self, device: Tunable) -> None:
        device.limits().close()  # whether there is a setter at all
        self._limits = outside_limits(device.kind, None)

    def requested_w(self, uuid: str) -> float | None:
        return self._limits.requested_w(uuid)

    def verify(self, uuid: str, cap_w: float) -> None:
        found_w = self.requested_w(uuid)
        if found_w is not None and not same_limit(found_w, cap_w):
            raise LimitClamped(f"cap {cap_w:g} W of {uuid} is {found_w:g} W now", found_w)
