"""What became of limits whose helper, or keeper, is gone, as a client reads them: its watchdog puts them back, or the
next start."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from autocap.devices.base import LimitVerifier
from autocap.limits.guarded_limit import Restored
from autocap.records import same_limit

Found = Sequence[tuple[str, float | None]]  # UUIDs, and the limits found on them, watts

_LOOK_S = 0.02


def reads_original(verifier: LimitVerifier, found: Found) -> bool:
    """Whether all devices are at the limits found on arrival."""
    return all(_look(verifier, uuid, original_w).restored for uuid, original_w in found)


def read_back(
    verifier: LimitVerifier, found: Found, pause: Callable[[float], object], within_s: float
) -> tuple[Restored, ...]:
    """Where the limits are, once they are back, or within_s seconds have passed. pause: waits for some seconds."""
    deadline_s = time.monotonic() + within_s
    while not reads_original(verifier, found) and time.monotonic() < deadline_s:
        pause(_LOOK_S)
    return tuple(_look(verifier, uuid, original_w) for uuid, original_w in found)


def _look(verifier: LimitVerifier, uuid: str, original_w: float | None) -> Restored:
    final_w = None
    with suppress(Exception):  # whatever a device's library raises: what cannot be read is not known
        final_w = verifier.requested_w(uuid)
    if final_w is not None and original_w is not None and same_limit(final_w, original_w):
        return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=True)
    failure = "who set it for us is gone, and the limit found on arrival is not back yet"
    note = f"{uuid}: {failure}; it is put back by `autocap restore`, or when the helper is started again"
    return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=False, note=note, failure=failure)
