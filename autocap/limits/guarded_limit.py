"""One device's limit under guard: what was found, what was set, and putting it back."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from autocap.devices.base import LimitPort
from autocap.errors import GuardError, LimitClamped, LimitIgnored, LimitNotEnforced, LimitOvertaken, LimitRefused
from autocap.limits.asking import Asking, ForeignLimit, Waiting
from autocap.limits.journal import Entry, Journal
from autocap.limits.recovery import Outcome, PutBack, put_back

logger = logging.getLogger(__name__)

_TRIES = 3  # to put a limit back before it is left to the watchdog and to `autocap restore`
_BETWEEN_TRIES_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What became of one device's limit, watts, or of another knob, in its values.

    final_w: as read afterwards, `None` where the device does not say. restored: the limit found on arrival holds again;
    `None` where others put it back: a node that is not reached, or a budget that goes on, and gives the device final_w.
    note: why not. failure: why it could not be put back, and so is to be put back still; `None` also where somebody
    else's stands.
    """

    uuid: str
    original_w: float | None
    final_w: float | None
    restored: bool | None
    note: str | None = None
    failure: str | None = None


class GuardedLimit:
    """The limit of one device, whose lock is held.

    entry: what was found, written to the journal at once (GuardError). tell: hands each later entry to the watchdog as
    well; whether it took it. maybe_original: the watchdog may have put the original back since the last set. settled:
    nothing is left to put back. reloads: of the driver, as they were when a limit was last requested. clock: the time,
    and waiting.
    """

    def __init__(
        self,
        limits: LimitPort,
        journal: Journal,
        entry: Entry,
        tell: Callable[[Entry], bool],
        clock: Waiting,
    ) -> None:
        journal.save(entry)
        journal.hold(entry.uuid)
        self._limits = limits
        self._tell = tell
        self._journal = journal
        self._entry = entry  # as on disk
        self._clock = clock
        self._foreign: ForeignLimit | None = None
        self._asking = Asking(limits, entry.uuid, entry.original_w, clock, entry.knob)
        self.reloads = limits.reloads  # when a limit was last requested
        self.maybe_original = False
        self.settled = True

    @property
    def original_w(self) -> float | None:
        return self._entry.original_w

    @property
    def entry(self) -> Entry:
        """As in the journal, and as the watchdog is to know it."""
        return self._entry

    def rehearse(self, listen: Callable[[], None]) -> None:
        """Request the limit found on arrival, which is there already unless a cap was set. Raises as `set_w` does."""
        original_w = self._entry.original_w
        if original_w is None:
            raise self._unknown()
        if self._entry.settings or not self._entry.untouched:
            # Something is changed even so, which is journalled first; else what is there then would be nobody's.
            self.set_w(original_w, listen)
            self.see_w(original_w, listen)
            return
        self._require_ours(listen)
        self._request(original_w, listen)

    def set_w(self, setting: float, listen: Callable[[], None]) -> None:
        """Journal the cap and tell the watchdog, then request it; `see_w` is to follow.

        listen: hear from the watchdog, which updates `maybe_original`; or have another one, which knows the entry.
        Raises ForeignLimit, GuardError, LimitRefused.
        """
        if self._entry.original_w is None:
            raise self._unknown()
        if not self._save(self._entry.before_set(setting, self._require_ours(listen))):
            listen()
        self.settled = False
        self.maybe_original = False  # of which the entry knows; what is heard from here on may come after the set
        self._request(setting, listen, alone=False)
        if self._entry.next_w is not None:  # unless the device has made another limit of it
            self._save(self._entry.after_set())

    def see_w(self, setting: float, listen: Callable[[], None]) -> None:
        """See that the cap that was set is enforced; else ask for it once more. Raises as `set_w`."""
        original_w = self._entry.original_w
        is_found = original_w is not None and self._same(setting, original_w)
        if self._limits.is_enforced(self._entry.uuid, setting) or is_found:
            return  # a baseline's limit may have been no more enforced when we came
        listen()
        requested_w = self._require_ours(listen)
        if requested_w is None or self._same(requested_w, setting):  # else it is what the device has made of it
            self._request(setting, listen)

    def look(self, listen: Callable[[], None]) -> None:
        """Once a beat: take in what the device has made of the limit that was asked for last. What fails, and that a
        limit is somebody else's, shows with the next set."""
        if not self.awaits:
            return
        with suppress(Exception):
            requested_w = self._limits.requested_w(self._entry.uuid)
            if requested_w is not None and not self._is_named(requested_w) and not self._is_put_back(requested_w):
                self._is_made_of_ours(requested_w, listen)
            elif self._asking.end() and self._entry.settling:
                self._save(self._entry.after_settling())

    def restore(self) -> Restored:
        """Put the limit found on arrival back; a failure is in the note. A cap may be set again afterwards."""
        uuid, original_w = self._entry.uuid, self._entry.original_w
        try:
            done = self._put_back()
        except Exception as error:  # of whatever kind, it must not keep the other devices from theirs
            why = f"{uuid}: {self._entry.found_text} could not be put back: {error}; run `autocap restore`"
            logger.debug("%s", why, exc_info=True)
            return Restored(
                uuid=uuid, original_w=original_w, final_w=None, restored=False, note=why, failure=str(error)
            )
        self.settled = True
        final_w = done.final_w
        if done.outcome is Outcome.UNTOUCHED:
            with suppress(Exception):  # only reported
                final_w = self._limits.requested_w(uuid)
        elif done.outcome is not Outcome.FOREIGN:
            restored_entry = self._entry.after_restore()
            try:
                self._save(restored_entry)
            except GuardError:  # the entry as it stands covers a device that is back at its original
                self._tell(restored_entry)
        if done.outcome is Outcome.RESTORED and original_w is not None:
            self._asking.put_back(original_w, final_w)
        restored = final_w is None or original_w is None or self._same(final_w, original_w)
        note = None
        if final_w is not None and not restored:
            final = self._entry.knob.text(final_w)
            note = f"{uuid}: {final} was set by somebody else meanwhile, and stays"
            if self._asking.made(original_w, final_w):
                back = "was found" if done.outcome is Outcome.FOREIGN else "was put back"
                note = f"{uuid}: {self._entry.found_text} {back}, of which the device makes {final}"
        return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=restored, note=note)

    def unanswered(self, waited_s: float) -> Restored:
        """What is said of its limit while its driver hangs in a call."""
        uuid, original_w = self._entry.uuid, self._entry.original_w
        why = f"its driver has not answered for {waited_s:.0f} s"
        note = f"{uuid}: whether {self._entry.found_text} is back is not known: {why}; run `autocap restore`"
        return Restored(uuid=uuid, original_w=original_w, final_w=None, restored=False, note=note, failure=why)

    @property
    def awaits(self) -> bool:
        """Whether `look` has something to look for."""
        return self._asking.awaits and self._foreign is None

    def delete_entry(self) -> None:
        """Remove the entry, unless a limit is still to be put back. Raises GuardError."""
        if self.settled:
            self._journal.delete(self._entry.uuid)

    def _require_ours(self, listen: Callable[[], None]) -> float | None:
        """The requested limit, which is one of ours or not known. Raises ForeignLimit."""
        if self._foreign is not None:
            raise self._foreign
        entry = self._entry
        requested_w = self._limits.requested_w(entry.uuid)
        if requested_w is None or self._is_named(requested_w):
            return requested_w
        if not self.maybe_original:
            listen()  # the watchdog speaks before it puts a limit back, so by now its word has arrived
        if self._is_put_back(requested_w) or self._is_made_of_ours(requested_w, listen):
            return requested_w
        expected_w = next(w for w in (entry.next_w, entry.last_w, entry.original_w, requested_w) if w is not None)
        foreign = ForeignLimit(uuid=entry.uuid, expected_w=expected_w, found_w=requested_w, knob=entry.knob)
        self._leave(foreign)
        raise foreign

    def _leave(self, foreign: ForeignLimit) -> None:
        """From now on the limit is somebody else's, also to the watchdog."""
        self._foreign = foreign
        if self._entry.settling:
            with suppress(GuardError):  # what is found is what is raised
                self._save(self._entry.after_settling())

    def _is_put_back(self, requested_w: float) -> bool:
        """Whether it is the original, which the watchdog may have put back; or the default, since the driver was loaded
        again."""
        original_w = self._entry.original_w
        if self.maybe_original and original_w is not None and self._same(requested_w, original_w):
            return True
        if self._limits.reloads == self.reloads:
            return False
        default_w = self._limits.default_w(self._entry.uuid)
        return default_w is not None and self._same(requested_w, default_w)

    def _request(self, setting: float, listen: Callable[[], None], *, alone: bool = True) -> None:
        """Request a limit, and take in what the device makes of it at once."""
        uuid, original_w = self._entry.uuid, self._entry.original_w
        self.reloads = self._limits.reloads
        try:
            self._asking.request(setting, lambda: self._require_ours(listen), alone=alone)
        except LimitNotEnforced:
            if original_w is None or not self._same(setting, original_w):
                self._adopt()
                raise
            # The baseline's limit, which was no more enforced when we came.
        except (LimitClamped, LimitOvertaken) as error:
            listen()
            if self._is_put_back(error.found_w):  # in the midst of it, as we were stopped; the next beat says so
                return
            # A device that does not even take the limit found is left alone, whatever it makes of it at once.
            is_found = original_w is not None and self._same(setting, original_w) and isinstance(error, LimitClamped)
            if not is_found and self._is_made_of_ours(error.found_w, listen):
                return
            if isinstance(error, LimitOvertaken):
                foreign = ForeignLimit(uuid=uuid, expected_w=setting, found_w=error.found_w, knob=self._entry.knob)
                self._leave(foreign)
                raise foreign from error
            self._adopt()
            raise
        except ForeignLimit:
            raise
        except Exception:
            self._adopt()
            raise

    def _is_made_of_ours(self, there_w: float, listen: Callable[[], None]) -> bool:
        """Whether a limit is what the device has made of ours; it is ours then. Raises ForeignLimit."""
        if self._entry.settings:  # no CPU package does
            return False
        try:
            if not self._asking.has_made(there_w, listen):
                return False
        except ForeignLimit as error:
            self._leave(error)
            raise
        if self._asking.made(self._entry.original_w, there_w):  # nothing better is to be had
            self._save(self._entry.after_restore())
        else:
            self.settled = False
            self._save(self._entry.after_step(there_w))
        return True

    def _is_named(self, requested_w: float) -> bool:
        """Whether it is the limit that was set last, or found, or what the device makes of the one found."""
        entry = self._entry
        return entry.names(requested_w) or (entry.last_w is None and self._asking.made(entry.original_w, requested_w))

    def _unknown(self) -> GuardError:
        found, knob = f"found on {self._entry.uuid} cannot be read", self._entry.knob
        return GuardError(f"the {knob.noun} {found}, so it could not be put back; {knob.unset}")

    def _same(self, one_w: float, other_w: float) -> bool:
        return self._entry.knob.same(one_w, other_w)

    def _adopt(self) -> None:
        """After a set that failed: what the device took instead of our cap is our doing, so it is put back as well."""
        with suppress(Exception):  # the failure of the set itself is what is reported
            found_w = self._limits.requested_w(self._entry.uuid)
            if found_w is not None and not self._is_named(found_w):
                self._save(self._entry.before_set(found_w, self._entry.last_w))
                self.settled = False

    def _put_back(self) -> PutBack:
        for _ in range(_TRIES - 1):
            with suppress(Exception):  # a device that is busy for a moment; the last try says what is wrong
                try:
                    return put_back(self._limits, self._entry, pause=self._clock.pause)
                except (LimitIgnored, LimitOvertaken):  # none of ours was taken, and somebody else's is to stay
                    pass
                except LimitRefused:
                    self._adopt()
            self._clock.pause(_BETWEEN_TRIES_S)
        return put_back(self._limits, self._entry, pause=self._clock.pause)

    def _save(self, entry: Entry) -> bool:
        """To the journal, and to the watchdog: whether it took it."""
        self._journal.save(entry)
        self._entry = entry
        return self._tell(entry)
