"""For `autocap restore` of root: ends the leases of the helper that have a device, and says what became of them."""

import logging
import os
from collections.abc import Sequence

from autocap.errors import ActuatorUnavailable
from autocap.limits import Restored
from autocap.limits.helper.connection import end_leases_at, leases_at
from autocap.limits.helper.protocol import Ended, LeaseStatus, socket_path
from autocap.limits.recovery import Fate, Settled

log = logging.getLogger(__name__)


def with_leases_ended(settled: Sequence[Settled], *, observe: bool) -> list[Settled]:
    """What became of devices where those in use were lent by the helper, whose leases are ended; the others as they
    are, and all of them where we are not root, or no helper answers that knows how. observe: end nothing, and say what
    would be done."""
    in_use = [one.uuid for one in settled if one.outcome is Fate.IN_USE]
    if not in_use or os.geteuid() != 0:
        return list(settled)
    try:
        ended = _foreseen(in_use) if observe else _ended(in_use)
    except ActuatorUnavailable as error:
        log.debug("no lease was ended: %s", error)
        return list(settled)
    kept = [one for one in settled if one.uuid not in {other.uuid for other in ended}]
    return kept + ended


def _foreseen(uuids: Sequence[str]) -> list[Settled]:
    leases = [lease for lease in leases_at(socket_path()) if set(uuids) & set(lease.devices)]
    return [
        Settled(uuid=uuid, outcome=Fate.PENDING, sentence=f"{uuid}: the helper's lease of {_who(lease)} would be ended")
        for lease in leases
        for uuid in lease.devices
    ]


def _ended(uuids: Sequence[str]) -> list[Settled]:
    return [one for ended in end_leases_at(socket_path(), uuids) for one in _settled(ended)]


def _settled(ended: Ended) -> list[Settled]:
    who, restored = _who(ended.lease), {one.uuid: one for one in ended.restored or ()}
    if ended.restored is None:
        text = f"the helper's lease of {who} was to be ended, and is not known to be over; run `autocap restore` again"
        return [Settled(uuid=uuid, outcome=Fate.FAILED, sentence=f"{uuid}: {text}") for uuid in ended.lease.devices]
    return [_became(uuid, who, restored.get(uuid)) for uuid in ended.lease.devices]


def _became(uuid: str, who: str, limit: Restored | None) -> Settled:
    was_ended = f"{uuid}: the helper's lease of {who} was ended"
    if limit is None:
        return Settled(uuid=uuid, outcome=Fate.UNCHANGED, sentence=f"{was_ended} before it set a limit")
    if limit.failure is not None:
        text = f"{was_ended}, and its limit could not be put back: {limit.failure}; run `autocap restore` again"
        return Settled(uuid=uuid, outcome=Fate.FAILED, sentence=text)
    now = "its limit cannot be read now" if limit.final_w is None else f"its limit is {limit.final_w:g} W now"
    note = "" if limit.note is None else f" ({limit.note})"
    outcome = Fate.RESTORED if limit.note is None else Fate.FOREIGN
    return Settled(uuid=uuid, outcome=outcome, sentence=f"{was_ended}; {now}{note}")


def _who(lease: LeaseStatus) -> str:
    return f"{lease.user} (PID {lease.pid})"
