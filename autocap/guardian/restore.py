"""Putting one device's limit back: only while it is still one of ours, and verified by reading it again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from autocap.devices.base import LimitPort, SettingsPort
from autocap.errors import LimitNotEnforced, LimitRefused
from autocap.guardian.journal import Entry
from autocap.records import same_limit

_EXACT_W = 0.0005  # of a cap of ours that is next to the original, not even a milliwatt is left behind


class Outcome(StrEnum):
    """What became of a limit that was to be put back."""

    UNTOUCHED = "untouched"  # none of ours was ever set
    ALREADY = "already"  # the original stands there already
    RESTORED = "restored"
    FOREIGN = "foreign"  # somebody else's, left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """found_w, final_w: the requested limit before and after, `None` where the device does not say."""

    outcome: Outcome
    found_w: float | None
    final_w: float | None


def put_back(port: LimitPort, entry: Entry, before_set: Callable[[], None] = lambda: None) -> PutBack:
    """Put the original limit back unless somebody else's stands there.

    before_set: called when the limit is about to be changed, before it is. Raises DeviceError where the device does
    not take the limit; whatever else its library raises passes through.
    """
    if entry.untouched or entry.original_w is None:
        return PutBack(outcome=Outcome.UNTOUCHED, found_w=None, final_w=None)
    found_w = port.requested_w(entry.uuid)
    if found_w is not None:
        ours, same = entry.is_ours(found_w), same_limit(found_w, entry.original_w)
        if abs(found_w - entry.original_w) < _EXACT_W or (same and not ours):
            _put_settings_back(port, entry, entry.original_w, before_set)
            return PutBack(outcome=Outcome.ALREADY, found_w=found_w, final_w=found_w)
        if not ours:
            _put_settings_back(port, entry, None, before_set)
            return PutBack(outcome=Outcome.FOREIGN, found_w=found_w, final_w=found_w)
    before_set()
    if isinstance(port, SettingsPort):
        port.put_back(entry.uuid, entry.original_w, entry.settings)
    else:
        with suppress(LimitNotEnforced):  # what was found is requested again, and was no more enforced then
            port.set_limit_w(entry.uuid, entry.original_w)
    final_w = port.requested_w(entry.uuid)
    if final_w is not None and not same_limit(final_w, entry.original_w):
        raise LimitRefused(f"{entry.uuid} reads {final_w:g} W after {entry.original_w:g} W was put back")
    return PutBack(outcome=Outcome.RESTORED, found_w=found_w, final_w=final_w)


def _put_settings_back(port: LimitPort, entry: Entry, limit_w: float | None, before_set: Callable[[], None]) -> None:
    """What a cap changed beside the limit, where the limit itself is to stay. limit_w: as `put_back` of a port."""
    if isinstance(port, SettingsPort) and port.settings(entry.uuid) != entry.settings:
        before_set()
        port.put_back(entry.uuid, limit_w, entry.settings)
