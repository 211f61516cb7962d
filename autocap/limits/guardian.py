"""The guardian: the only way to a setter. It locks, journals, has a watchdog, and puts back what it found.

with Guardian(kind=…, gpus=…, limits=…, job=…) as guardian:
    guardian.set_caps((200.0,))     # journalled, then set
    guardian.beat()                 # at least every half second
# on every way out the limits found on arrival are back, unless somebody else has set others since
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from autocap.devices.base import LimitPort
from autocap.devices.plugged import as_port
from autocap.errors import DeviceError, DeviceLocked, GuardError
from autocap.job.processes import ProcessId, SpareDescriptors, boot_id, own_identity
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.asking import REAL_TIME, Waiting
from autocap.limits.background_call import BackgroundCall
from autocap.limits.guard import LimitGuard
from autocap.limits.guarded_limit import GuardedLimit, Restored
from autocap.limits.heartbeat import Heartbeat, Pulse, StartWatch, Watch
from autocap.limits.journal import Entry, Journal, Turned
from autocap.limits.lock import DeviceLock
from autocap.limits.recovery import Fate, settle_locked
from autocap.limits.state_dir import StateDir
from autocap.limits.times import DRIVER_AT_END_S, DRIVER_S, LOCK_WAIT_S, READY_S
from autocap.limits.watchdog import Duty
from autocap.records import GpuInfo

logger = logging.getLogger(__name__)

_LOOK_S = 0.05  # that a beat waits for a look at the devices
_DESCRIPTORS = 12  # that the start of a watchdog takes: its channels, its standard streams, Popen's own pipe


class Guardian(LimitGuard):
    """Guards the limits of one job's devices, from `__enter__` to `__exit__`.

    kind: how a watchdog finds the devices (`autocap.devices.outside_limits`). gpus: the devices, in the order of all
    caps given and limits returned. limits: their setter, or that of another knob (`port_of`). job: what an emulated
    device acts on. state_dir: instead of the default one. sync: makes a file durable. start_watch: starts the watchdog
    process. clock: the time, and waiting.

    Entering raises DeviceLocked when another controller has one of the devices; GuardError when a limit left behind
    cannot be put back first, the journal cannot be written, there is no watchdog, or a knob is at a value that is no
    setting. Then nothing was set or is left.
    """

    def __init__(
        self,
        *,
        kind: str,
        gpus: Sequence[GpuInfo],
        limits: LimitPort,
        job: ProcessId | None,
        state_dir: Path | None = None,
        ready_timeout_s: float = READY_S,
        sync: Callable[[int], None] = os.fsync,
        start_watch: StartWatch = Heartbeat,
        clock: Waiting = REAL_TIME,
        knob: Knob = POWER_LIMIT,
    ) -> None:
        super().__init__([gpu.uuid for gpu in gpus], knob)
        self._kind = kind
        self._limits = as_port(limits)
        self._job = job
        self._state_dir = state_dir
        self._ready_timeout_s = ready_timeout_s
        self._sync = sync
        self._start_watch = start_watch
        self._clock = clock
        self._owner = own_identity()
        self._locks: list[DeviceLock] = []
        self._guarded: list[GuardedLimit] = []
        self._heartbeat: Watch | None = None
        self._exchanging = threading.RLock()  # to end without a watchdog is to put all back
        self._put_back_meanwhile = False
        self._reloads = self._limits.reloads
        self._left_out: set[int] = set()
        self._in_call = [threading.RLock() for _ in gpus]  # one at a time works on a device
        self._called_s: dict[int, float] = {}  # since when a device is worked on
        self._late = set[int]()  # devices whose limit is to be put back once their driver answers
        self._is_called_off = False  # limits were put back since the last set was begun
        self._looks = BackgroundCall[None]()
        self._spare = SpareDescriptors(0)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # First of all, so that they have low numbers: a limit on open files is one on their numbers.
            self._spare = SpareDescriptors(_DESCRIPTORS)
            stack.callback(self._spare.close)
            state = stack.enter_context(StateDir(self._state_dir, sync=self._sync))
            self._state_dir = state.path
            journal = Journal(state)
            stack.callback(self._release_locks)
            stack.callback(journal.let_go)
            for uuid in sorted(self._uuids):  # in one order, so that two runs cannot each wait for the other
                self._locks.append(DeviceLock(state, uuid, wait_s=LOCK_WAIT_S))
            for uuid in self._uuids:
                self._settle(journal, uuid)
            stack.callback(self._delete_entries)
            for uuid in self._uuids:
                found = self._found(uuid)
                self._guarded.append(GuardedLimit(self._limits, journal, found, self._tell, self._clock))
            self.original_w = tuple(one.original_w for one in self._guarded)
            stack.callback(self._looks.end)
            stack.callback(self._end_watchdog)
            self._heartbeat = self._start_watchdog()
            stack.callback(self._restore_at_exit)
            _live.add(self)
            self._stack = stack.pop_all()
        return self

    def _end(self) -> None:
        _live.discard(self)
        self._stack.close()

    def rehearse(self) -> None:
        self._begin_sets()
        self._on_each(lambda place: self._guarded[place].rehearse(self._exchange))

    def _set(self, values: tuple[float, ...]) -> None:
        """Each cap is journalled before it is set. A device that is left out keeps what it has."""
        self._begin_sets()
        for step in (GuardedLimit.set_w, GuardedLimit.see_w):  # so that all wait at once until theirs is enforced
            self._on_each(partial(self._carry_out, step, values))
        if self._is_called_off:
            raise GuardError("the limits were put back while caps were being set")
        reloads = self._limits.reloads
        if all(one.reloads == reloads for place, one in enumerate(self._guarded) if place not in self._left_out):
            self._reloads = reloads  # whatever a reload took was set since

    def _begin_sets(self) -> None:
        self._is_called_off = False
        self._late.clear()

    def _on_each(self, act: Callable[[int], None]) -> None:
        """Do something to each device that is not left out, told its place. One whose driver takes its time, or hangs,
        keeps none of the others from theirs."""
        self.failed = None
        self._exchange()
        places = [place for place in range(len(self._guarded)) if place not in self._left_out]
        try:
            self._clock.each(partial(self._in_turn, act), places)
        except GuardError:
            if self._heartbeat is None:  # one may have been set after all were put back
                self.restore()
            raise

    def _in_turn(self, act: Callable[[int], None], place: int) -> None:
        """Unless all limits were put back meanwhile."""
        with self._calling(place):
            if not self._is_called_off:
                act(place)

    @contextmanager
    def _calling(self, place: int, within_s: float = -1.0) -> Iterator[bool]:
        """Inside, nobody else works on that device; yields whether that was had within so many seconds. Where its limit
        was to be put back meanwhile, it is at the end."""
        if not self._in_call[place].acquire(timeout=within_s):
            yield False
            return
        one, self._called_s[place] = self._guarded[place], self._clock.now()
        try:
            yield True
        finally:
            if place in self._late:
                self._late.discard(place)
                one.restore()
            self._in_call[place].release()

    def _carry_out(
        self, step: Callable[[GuardedLimit, float, Callable[[], None]], None], values: tuple[float, ...], place: int
    ) -> None:
        try:
            step(self._guarded[place], values[place], self._exchange)
        except DeviceError:
            self.failed = place if self.failed is None else min(place, self.failed)
            raise

    def leave_out(self, place: int) -> Restored:
        self._require_own_process()
        self._left_out.add(place)
        (restored,) = self._restore([place], DRIVER_S)
        return restored

    def beat(self) -> bool:
        """Tell the watchdog as well. Limits may have been put back also where the driver was loaded again; GuardError
        is raised where there is no watchdog any more, and no other can be started."""
        if self._heartbeat is not None or not self._is_settled():
            self._exchange()
            self._look_aside()
        before, self._reloads = self._reloads, self._limits.reloads
        happened, self._put_back_meanwhile = self._put_back_meanwhile or self._reloads != before, False
        return happened

    def restore(self, within_s: float = DRIVER_S) -> tuple[Restored, ...]:
        """Put the limits found on arrival back. One that fails, or whose driver hangs, does not keep the others. Caps
        may be set again. within_s: the longest that a driver is waited for; its limit is put back once it answers."""
        self._require_own_process()
        self._is_called_off = True
        return self._restore(range(len(self._guarded)), within_s)

    def _restore(self, places: Sequence[int], within_s: float) -> tuple[Restored, ...]:
        def late(place: int) -> Restored:
            self._late.add(place)
            return self._guarded[place].unanswered(self._clock.now() - self._called_s[place])

        def restore(place: int) -> Restored:
            with self._calling(place, within_s) as is_ours:
                return self._guarded[place].restore() if is_ours else late(place)

        return tuple(self._clock.each_within(within_s, restore, places, late))

    def _look_aside(self) -> None:
        """Where time is real, a driver that hangs holds up the next look alone."""
        if not any(one.awaits for one in self._guarded):
            return
        if not self._clock.threads:
            self._look()
            return
        if not self._looks.is_busy:
            self._looks.begin(self._look)
        if self._looks.is_done(_LOOK_S):
            self._looks.take()

    def _look(self) -> None:
        """At what devices have made of their limits."""
        for place, one in enumerate(self._guarded):
            with self._calling(place, 0.0) as is_ours:
                if is_ours:  # else it is being set, which looks for itself
                    one.look(self._exchange)

    def _settle(self, journal: Journal, uuid: str) -> None:
        settled = settle_locked(journal, uuid)
        if settled is None or settled.outcome is Fate.UNCHANGED:
            return
        if settled.outcome is Fate.IN_USE:
            raise DeviceLocked(f"{settled.sentence}, whose lock was removed; wait for it, or end it with SIGTERM")
        if settled.outcome is Fate.FAILED:
            raise GuardError(f"an earlier run left a limit behind; {settled.sentence}")
        self._notes.append(settled.sentence)

    def _found(self, uuid: str) -> Entry:
        found, turned = self._limits.requested_w(uuid), Turned.of(self.knob)
        if found is not None:
            self._require_setting(uuid, found, turned)
        return Entry(
            kind=self._kind,
            uuid=uuid,
            original_w=found,
            boot_id=boot_id(),
            owner=self._owner,
            job=self._job,
            settings=self._limits.settings(uuid),
            knob=turned,
        )

    def _require_setting(self, uuid: str, found: float, turned: Turned) -> None:
        try:
            self.knob.setting(found)
        except ValueError:
            shown = [self.knob.value_text(value) for value in self.knob.values]
            allowed = f"{shown[0]} to {shown[-1]}" if self.knob.ordered else ", ".join(shown)
            raise GuardError(
                f"{uuid} is at {turned.text(found)}, which is none of the settings of the knob {self.knob.name} "
                f"({allowed}); set it to one of them and start again"
            ) from None

    def _exchange(self) -> None:
        """Beat, and take in what the watchdog did; with none, start another. From any thread."""
        self._require_own_process()
        with self._exchanging:
            self._hear()

    def _hear(self) -> None:
        pulse = Pulse.LOST if self._heartbeat is None else self._heartbeat.beat()
        if pulse is Pulse.GUARDING:
            return
        if pulse is Pulse.LOST:
            self._replace_watchdog()
        self._put_back_meanwhile = True
        for one in self._guarded:
            one.maybe_original = True

    def _tell(self, entry: Entry) -> bool:
        """Hand an entry to the watchdog; whether there is one that took it."""
        return self._heartbeat is not None and self._heartbeat.tell(entry)

    def _is_settled(self) -> bool:
        return all(one.settled for one in self._guarded)

    def _start_watchdog(self) -> Watch:
        assert self._state_dir is not None  # since __enter__
        duty = Duty(
            state_dir=self._state_dir,
            kind=self._kind,
            owner=self._owner,
            job=self._job,
            uuids=self._uuids,
            knob=self.knob.name,
        )
        entries = [one.entry for one in self._guarded]
        return self._start_watch(duty, entries=entries, ready_timeout_s=self._ready_timeout_s)

    def _replace_watchdog(self) -> None:
        lost, self._heartbeat = self._heartbeat, None
        if lost is not None:
            lost.kill()
        try:
            with self._spare.lent():
                self._heartbeat = self._start_watchdog()
        except GuardError:
            self.restore()
            raise
        pid = "" if lost is None else f" (PID {lost.pid})"
        self._notes.append(f"the watchdog process{pid} was lost; PID {self._heartbeat.pid} watches instead")

    def _restore_at_exit(self) -> None:
        for restored in self.restore(DRIVER_AT_END_S):
            if restored.note is not None:
                logger.warning("%s", restored.note)

    def _end_watchdog(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            # Where something is left to put back (restoring failed or was interrupted), it has a try before it leaves.
            heartbeat.end(goodbye=self._is_settled())

    def _delete_entries(self) -> None:
        while self._guarded:
            try:
                self._guarded.pop().delete_entry()
            except GuardError as error:  # the limit is back, so the next start only drops the entry
                logger.warning("%s", error)
        self.original_w = ()

    def _release_locks(self) -> None:
        while self._locks:
            try:
                self._locks.pop().release()
            except OSError as error:  # the file stays, the lock does not
                logger.warning("a lock file stays in %s: %s", self._state_dir, error)

    def _forget(self) -> None:
        """In a forked child: close what would keep the parent's heartbeat and locks open beyond its death."""
        self._stack.pop_all()
        for lock in self._locks:
            lock.forget()
        if self._heartbeat is not None:
            self._heartbeat.forget()
        self._locks, self._heartbeat = [], None


_live: "weakref.WeakSet[Guardian]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for guardian in list(_live):
        guardian._forget()


os.register_at_fork(after_in_child=_forget_in_child)
