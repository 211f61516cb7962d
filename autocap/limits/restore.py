"""Putting one device's limit back: only while it is still one of ours, and verified by reading it again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from autocap.devices.base import LimitPort
from autocap.errors import LimitClamped, LimitIgnored, LimitRefused
from autocap.limits.journal import Entry
from autocap.limits.times import ASK_AGAIN_S

_EXACT = 1e-3  # of the tolerance: of a cap of ours that is next to the original, not even a milliwatt is left behind


class Outcome(StrEnum):
    """What became of a limit that was to be put back."""

    UNTOUCHED = "untouched"  # none of ours was ever set
    ALREADY = "already"  # the original stands there already
    RESTORED = "restored"
    FOREIGN = "foreign"  # somebody else's, left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """found_w, final_w: the requested limit before and after, watts or the values of another knob; `None` where the
    device does not say."""

    outcome: Outcome
    found_w: float | None
    final_w: float | None

    def is_off(self, entry: Entry) -> bool:
        """Whether the device has made another limit of the one that was found."""
        known = self.final_w is not None and entry.original_w is not None
        return known and not entry.knob.same(self.final_w or 0.0, entry.original_w or 0.0)


def put_back(
    port: LimitPort,
    entry: Entry,
    before_set: Callable[[], None] = lambda: None,
    pause: Callable[[float], object] = time.sleep,
) -> PutBack:
    """Put the original limit back unless somebody else's stands there; asked for again where it is ignored.

    before_set: called when the limit is about to be changed, before it is. pause: waits for some seconds. Raises
    DeviceError where the device does not take the limit; whatever else its library raises passes through.
    """
    for wait_s in ASK_AGAIN_S:
        try:
            return _put_back(port, entry, before_set)
        except LimitIgnored:
            pause(wait_s)
    return _put_back(port, entry, before_set)


def _put_back(port: LimitPort, entry: Entry, before_set: Callable[[], None]) -> PutBack:
    if entry.untouched or entry.original_w is None:
        return PutBack(outcome=Outcome.UNTOUCHED, found_w=None, final_w=None)
    found_w = port.requested_w(entry.uuid)
    if found_w is not None:
        ours, same = entry.is_ours(found_w), entry.knob.same(found_w, entry.original_w)
        if abs(found_w - entry.original_w) < _EXACT * entry.knob.tolerance or (same and not ours):
            _put_settings_back(port, entry, entry.original_w, before_set)
            return PutBack(outcome=Outcome.ALREADY, found_w=found_w, final_w=found_w)
        if not ours:
            _put_settings_back(port, entry, None, before_set)
            return PutBack(outcome=Outcome.FOREIGN, found_w=found_w, final_w=found_w)
    before_set()
    _request(port, entry, entry.original_w)
    final_w = port.requested_w(entry.uuid)
    if final_w is not None and not (
        entry.knob.same(final_w, entry.original_w) or entry.may_become(entry.original_w, final_w)
    ):
        raise LimitRefused(f"{entry.uuid} reads {entry.knob.text(final_w)} after {entry.found_text} was put back")
    return PutBack(outcome=Outcome.RESTORED, found_w=found_w, final_w=final_w)


def _request(port: LimitPort, entry: Entry, original_w: float) -> None:
    """What a card that takes steps makes of the limit found is as near to it as can be had."""
    try:
        port.put_back(entry.uuid, original_w, entry.settings)
    except LimitClamped as error:
        if not entry.may_become(original_w, error.found_w):
            raise


def _put_settings_back(port: LimitPort, entry: Entry, limit_w: float | None, before_set: Callable[[], None]) -> None:
    """What a cap changed beside the limit, where the limit itself is to stay. limit_w: as `put_back` of a port."""
    if port.settings(entry.uuid) != entry.settings:
        before_set()
        port.put_back(entry.uuid, limit_w, entry.settings)
