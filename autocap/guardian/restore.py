"""Putting one device's limit back: only while it is still one of ours, and verified by reading it again."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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


_SHARED_MEMORY = Path("/dev/shm")


def may_remove(path: Path) -> bool:
    """Whether a file may stand in an entry's `cleanup`: one under /dev/shm or the temporary directory."""
    from tempfile import gettempdir  # slow to import, and seldom needed

    roots = (_SHARED_MEMORY.resolve(), Path(gettempdir()).resolve())
    parent = path.parent.resolve()
    return path.is_absolute() and any(parent == root or root in parent.parents for root in roots)


def remove_leftovers(paths: tuple[str, ...]) -> None:
    """Remove a dead owner's files: regular ones of our own user, where `may_remove` allows it; others are left."""
    for path in map(Path, paths):
        with suppress(OSError):  # gone already, or no longer ours
            if may_remove(path):
                _remove_own_file(path)


def _remove_own_file(path: Path) -> None:
    # By the folder's descriptor, which nobody can exchange between the check and the removal.
    folder = os.open(path.parent.resolve(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            os.unlink(path.name, dir_fd=folder)
    finally:
        os.close(folder)
