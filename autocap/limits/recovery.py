"""Settling what a dead controller left behind, for a start, for `autocap restore` and for the watchdog: a device's
limit is put back only while it is still one of ours, and verified by reading it again.

Always under the device's lock, so of two that come at once one does it and the other finds nothing to do.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from autocap.devices import outside_limits
from autocap.devices.base import LimitPort
from autocap.errors import DeviceLocked, GuardError, LimitClamped, LimitIgnored, LimitRefused
from autocap.job.processes import ProcessId, boot_id
from autocap.limits.background_call import together
from autocap.limits.journal import DamagedEntry, Entry, Journal
from autocap.limits.lock import DeviceLock
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import ASK_AGAIN_S, DYING_S, LOCK_WAIT_S

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


class Fate(StrEnum):
    """What became of an entry."""

    RESTORED = "restored"  # the limit found on arrival is back
    UNCHANGED = "unchanged"  # no limit of ours was on the device
    FOREIGN = "foreign"  # somebody else has set a limit since; left alone
    STALE = "stale"  # from before a reboot, which took the limit with it
    IN_USE = "in use"  # its controller lives
    PENDING = "pending"  # something is to be done, and was not because we only observe
    FAILED = "failed"  # the limit could not be put back; the entry is kept
    DAMAGED = "damaged"  # not to be understood; set aside
    REFUSED = "refused"  # not to be trusted; left alone


_NO_NEWS = (Fate.IN_USE, Fate.UNCHANGED)  # another run's device, and what never was changed
UNSETTLED = frozenset({Fate.PENDING, Fate.FAILED, Fate.DAMAGED, Fate.REFUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """uuid: the device. sentence: what happened, for the user."""

    uuid: str
    outcome: Fate
    sentence: str


def settled_news() -> list[str]:
    """Settle all entries; sentences on what is news to a user, also on a directory that is refused."""
    try:
        return [found.sentence for found in settle() if found.outcome not in _NO_NEWS]
    except GuardError as error:  # what is to be guarded will be refused for it; a job without a device need not be
        return [str(error)]


def settle(state_dir: Path | None = None, *, observe: bool = False) -> list[Settled]:
    """Go over all entries of the state directory and put back what dead owners left.

    observe: change nothing, and say what would be done. Raises GuardError where the directory is refused.
    """
    path = default_path() if state_dir is None else state_dir
    if not os.path.lexists(path):
        return []
    with StateDir(path) as state:
        journal = Journal(state)
        found = together(lambda name: _settle_file(state, journal, name, observe), journal.file_names())
        for uuid in () if observe else journal.remnants():
            with suppress(GuardError, OSError), DeviceLock(state, uuid):  # which removes a lock file that nobody holds
                journal.sweep(uuid)
    return [one for one in found if one is not None]


def _settle_file(state: StateDir, journal: Journal, name: str, observe: bool) -> Settled | None:
    uuid = journal.device_of(name)
    try:
        entry = journal.load_file(name)
        if entry is None or observe:
            return None if entry is None else _foresee(entry)
        with DeviceLock(state, uuid, wait_s=0.0 if _in_use(entry) else LOCK_WAIT_S):
            return settle_locked(journal, uuid)
    except DeviceLocked as error:
        return Settled(uuid=uuid, outcome=Fate.IN_USE, sentence=f"{error}; nothing is to be put back")
    except DamagedEntry as error:
        return _set_aside(state, journal, name, error, observe)
    except GuardError as error:
        return Settled(uuid=uuid, outcome=Fate.REFUSED, sentence=str(error))


def _set_aside(state: StateDir, journal: Journal, name: str, error: DamagedEntry, observe: bool) -> Settled:
    uuid = journal.device_of(name)
    if observe:
        return Settled(uuid=uuid, outcome=Fate.PENDING, sentence=f"{error}; it would be set aside")
    try:
        with DeviceLock(state, uuid):  # not under a controller that lives
            aside = journal.set_aside(name)
    except (GuardError, OSError) as obstacle:
        return Settled(uuid=uuid, outcome=Fate.REFUSED, sentence=f"{error}; it was left there: {obstacle}")
    sentence = f"{error}; it is now {aside}: check the limit of {uuid} yourself, then remove that file"
    return Settled(uuid=uuid, outcome=Fate.DAMAGED, sentence=sentence)


def settle_locked(journal: Journal, uuid: str, port: LimitPort | None = None) -> Settled | None:
    """Settle one device's entry, with its lock held by the caller; `None` where there is no entry.

    port: as `settle_entry` has it. Raises GuardError for an entry that is refused or damaged.
    """
    entry = journal.load(uuid)
    return None if entry is None else settle_entry(journal, entry, port)


def settle_entry(journal: Journal, entry: Entry, port: LimitPort | None = None) -> Settled:
    """Settle what an entry says, whether it was read from the journal or not, and remove it there.

    port: the device as a watchdog sees it; opened for the entry when `None`. Raises GuardError where the entry cannot
    be removed; the limit is back then.
    """
    uuid = entry.uuid
    if entry.boot_id != boot_id():
        journal.delete(uuid)
        return Settled(uuid=uuid, outcome=Fate.STALE, sentence=f"{uuid}: the entry is from before a reboot, dropped")
    if _in_use(entry) and not dies(entry.owner):  # somebody removed the lock file under it
        return _foresee(entry)
    try:
        done = _reach(entry, port)
    except Exception as error:  # whatever a device's library raises, the entry stays for the next try
        import logging  # of which a watchdog has no use

        logging.getLogger(__name__).debug("%s could not be put back", uuid, exc_info=True)
        sentence = f"{uuid}: {entry.found_text} could not be put back: {error}; run `autocap restore` again"
        return Settled(uuid=uuid, outcome=Fate.FAILED, sentence=sentence)
    journal.delete(uuid)
    return Settled(uuid=uuid, outcome=_FATES[done.outcome], sentence=_sentence(entry, done))


def _in_use(entry: Entry) -> bool:
    """Whether another process that lives owns it; what an earlier guardian of our own process left is not in use."""
    return entry.boot_id == boot_id() and entry.owner.pid != os.getpid() and entry.owner.is_alive()


def dies(owner: ProcessId) -> bool:
    """Whether a process that has let go of its lock is soon gone: the kernel closes files a moment before that."""
    deadline_s = time.monotonic() + DYING_S
    while owner.is_alive():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.002)
    return True


def _reach(entry: Entry, port: LimitPort | None) -> PutBack:
    if entry.untouched:
        return PutBack(outcome=Outcome.UNTOUCHED, found_w=None, final_w=None)
    if port is not None:
        return put_back(port, entry)
    own = outside_limits(entry.kind, entry.job, entry.knob.name)
    try:
        return put_back(own, entry)
    finally:
        own.close()


_FATES = {
    Outcome.UNTOUCHED: Fate.UNCHANGED,
    Outcome.ALREADY: Fate.UNCHANGED,
    Outcome.RESTORED: Fate.RESTORED,
    Outcome.FOREIGN: Fate.FOREIGN,
}


def _sentence(entry: Entry, done: PutBack) -> str:
    who, noun, original = f"autocap with PID {entry.owner.pid}", entry.knob.noun, entry.found_text
    found, final = (
        f"another {noun}" if value is None else entry.knob.text(value) for value in (done.found_w, done.final_w)
    )
    if done.outcome is Outcome.RESTORED:
        if done.is_off(entry):
            return f"{entry.uuid}: {original} was put back, of which the device makes {final}"
        return f"{entry.uuid}: {original} put back, where {who} had left {found}"
    if done.outcome is Outcome.FOREIGN:
        return f"{entry.uuid}: {found} was set by somebody else since {who} ended, and stays"
    if done.outcome is Outcome.ALREADY:
        return f"{entry.uuid}: {who} ended without restoring it, but it is at its {original} already"
    return f"{entry.uuid}: {who} ended before it set a {noun}"


def _foresee(entry: Entry) -> Settled:
    """What would become of the entry, without touching anything."""
    pid = entry.owner.pid
    if _in_use(entry):
        return Settled(uuid=entry.uuid, outcome=Fate.IN_USE, sentence=f"{entry.uuid} is in use by PID {pid}")
    if entry.boot_id != boot_id():
        would = "the entry is from before a reboot and would be dropped"
    elif entry.untouched:
        would = f"autocap with PID {pid} ended before it set a {entry.knob.noun}; the entry would be dropped"
    else:
        since = f"unless somebody else has set a {entry.knob.noun} since PID {pid} ended"
        would = f"{entry.found_text} would be put back, {since}"
    return Settled(uuid=entry.uuid, outcome=Fate.PENDING, sentence=f"{entry.uuid}: {would}")
