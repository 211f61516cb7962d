"""An earlier agent of this node is gone, perhaps with what puts back after it: put back what it left, and read."""

from collections.abc import Callable, Mapping
from contextlib import closing

from autocap.clock import Clock
from autocap.devices import outside_limits
from autocap.errors import DeviceError
from autocap.limits import Restored
from autocap.limits.recovery import UNSETTLED, Settled, settle
from autocap.limits.times import OTHERS_DONE_S, TRY_AGAIN_S
from autocap.plugins.fleet.nodes.protocol import Settle
from autocap.plugins.fleet.nodes.transport import reached_by
from autocap.records import same_limit


def settled(asked: Settle, clock: Clock, put_back: Callable[[], list[Settled]] = settle) -> tuple[Restored, ...]:
    """What became of each limit, as read now. put_back: what dead owners left on this machine. Raises GuardError where
    the state directory is refused, DeviceError where the devices cannot be found."""
    roots = reached_by(asked.target.engine)[0].job_here(asked.target, ()).roots()
    end_s = clock.now() + OTHERS_DONE_S
    said: dict[str, Settled] = {}
    with closing(outside_limits(asked.kind, roots[0] if roots else None)) as limits:
        while True:
            said |= {one.uuid: one for one in put_back()}
            found = tuple(
                _restored(uuid, original_w, _read(limits.requested_w, uuid), said)
                for uuid, original_w in zip(asked.uuids, asked.original_w, strict=True)
            )
            if all(one.restored for one in found) or clock.now() >= end_s:
                return found
            clock.wait_until(clock.now() + TRY_AGAIN_S)


def _restored(uuid: str, original_w: float | None, final_w: float | None, said: Mapping[str, Settled]) -> Restored:
    if original_w is None or final_w is None:
        return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=None)
    is_back = same_limit(final_w, original_w)
    note = said[uuid].sentence if uuid in said else None
    failure = None
    if not is_back:
        note = note or f"the limit of {uuid} is {final_w:g} W, where {original_w:g} W was found on arrival"
        failure = said[uuid].sentence if uuid in said and said[uuid].outcome in UNSETTLED else None
    return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=is_back, note=note, failure=failure)


def _read(requested_w: Callable[[str], float | None], uuid: str) -> float | None:
    try:
        return requested_w(uuid)
    except DeviceError:
        return None
