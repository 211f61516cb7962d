"""The watchdog process: puts the limits back when the controller dies, hangs or is stopped. Whoever has one knows of it
what `WatchdogProcess` says.

Its standard input is the controller's heartbeat, a message a packet: beats, each of which is answered; the journal
entry of a device each time that it changes; a goodbye. End of file without a goodbye means that the controller is
dead. It never writes the journal while the controller lives, so there is one writer at any time.

**Which record counts.** The controller writes an entry to the journal, then sends it, then sets the limit; and again
once it is set. What was sent is received even from a controller that is dead by then. So at every moment of being
killed the copy here is the journal's entry or the one before it. Let l be the last value set and v the next:

    journal (l, v), copy (l)     killed before it was sent, and so before the set: the device holds l, which both know
    journal (l, v), copy (l, v)  the device holds l or v: both know both
    journal (v),    copy (l, v)  set: the device holds v, which both know
    journal none,   copy (l)     the original is back: the device holds it, which needs no knowing

Each of the two is enough alone, at every moment. The copy is taken where there is one: it cannot be removed, cut
short or exchanged for an older one. From the journal it is only learnt that another controller has the device by now,
whose entry then stands there; and where no copy came, what is to be done.
"""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Protocol

from autocap.devices import outside_limits
from autocap.devices.base import LimitPort
from autocap.errors import DeviceLocked, GuardError
from autocap.job.processes import ProcessId, SpareDescriptors, import_path
from autocap.job.shared_files import remove_dead
from autocap.job.signals import ignore_signals
from autocap.knobs import POWER_LIMIT
from autocap.limits.background_call import together
from autocap.limits.journal import Entry, Journal, OtherSchema, decode
from autocap.limits.lock import DeviceLock, holder_pid
from autocap.limits.recovery import Fate, dies, put_back, settle_entry
from autocap.limits.state_dir import StateDir
from autocap.limits.times import (
    EAGER_S,
    HANG_S,
    LEAKED_S,
    LINGERS_S,
    PASS_AGAIN_S,
    REFUSED_FOR_S,
    WOKE_LATE_S,
)
from autocap.limits.vital_signs import Look, VitalSigns, is_hung, next_look_s

# What goes over the heartbeat (an entry follows its byte) and what comes back, a byte each. PUT_BACK is said before the
# first limit is changed behind a silent controller's back: whoever finds a changed limit and reads the channel after
# that knows who did it.
BEAT, GOODBYE, ENTRY = b"b", b"q", b"e"
READY, FAILED, ANSWER, PUT_BACK = b"R", b"E", b"g", b"H"

MOST_BYTES = 1 << 16  # of a message
_DESCRIPTORS = 12  # kept for putting limits back: journal, lock, /proc and the device's own files
_PRIORITY = -10  # where it may: under load it must not wait behind the jobs for the CPU of which it needs so little


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What a watchdog watches; it reaches it as words on its command line. knob: the name of what is set."""

    state_dir: Path
    kind: str
    owner: ProcessId
    job: ProcessId | None
    uuids: tuple[str, ...]
    knob: str = POWER_LIMIT.name

    def words(self) -> list[str]:
        job = "-" if self.job is None else f"{self.job.pid}:{self.job.start_ticks}"
        owner = f"{self.owner.pid}:{self.owner.start_ticks}"
        return [str(self.state_dir), self.kind, self.knob, owner, job, *self.uuids]

    @staticmethod
    def from_words(words: list[str]) -> "Duty":
        state_dir, kind, knob, owner, job, *uuids = words
        return Duty(
            state_dir=Path(state_dir),
            kind=kind,
            owner=_process(owner),
            job=None if job == "-" else _process(job),
            uuids=tuple(uuids),
            knob=knob,
        )


def _process(word: str) -> ProcessId:
    pid, _, start_ticks = word.partition(":")
    return ProcessId(int(pid), int(start_ticks))


def main(words: list[str]) -> None:
    """The whole life of a watchdog process. words: the descriptor for its answers, then its duty's."""
    ignore_signals()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    status_fd, duty = int(words[0]), Duty.from_words(words[1:])
    os.set_blocking(status_fd, False)  # a controller that is stopped for a day reads nothing
    try:
        with StateDir(duty.state_dir) as state:
            # The device is reached before a cap is set, not for the first time when its controller is dead.
            dog = Watchdog(duty, state, outside_limits(duty.kind, duty.job, duty.knob), status_fd)
            try:
                dog.run()
            finally:
                dog.close()
    except Exception as error:
        with suppress(OSError):  # the controller sets nothing without a watchdog, and says this
            os.write(status_fd, FAILED + str(error).encode())
        raise


class _Heard(Enum):
    """The last thing of note on the heartbeat."""

    NOTHING = auto()
    BEAT = auto()
    GOODBYE = auto()
    END = auto()  # the controller is dead


class Watchdog:
    """port: the devices as seen from here; opened again when they fail. status_fd: where answers go. beats_fd: where
    the controller is heard."""

    def __init__(self, duty: Duty, state: StateDir, port: LimitPort, status_fd: int, beats_fd: int = 0) -> None:
        self._duty = duty
        self._state = state
        self._journal = Journal(state)
        self._status_fd, self._beats_fd = status_fd, beats_fd
        self._port: LimitPort | None = port
        self._opening = threading.Lock()
        self._has_failed = False  # the port, in this pass
        self._copies: dict[str, Entry] = {}
        self._announced = False
        self._behind: set[str] = set()  # devices put back behind an owner that may be dying
        self._signs = VitalSigns(duty.owner)
        self._spare = SpareDescriptors(_DESCRIPTORS)

    def run(self) -> None:
        """Watch until the controller says goodbye, or is dead and all that it changed is put back."""
        heartbeat = select.poll()
        heartbeat.register(self._beats_fd, select.POLLIN)
        self._say(READY)
        heard, silent = _Heard.BEAT, False
        while heard is not _Heard.END:
            if heard is _Heard.BEAT:
                last_s, seen = time.monotonic(), self._signs.look(threads=False)
                silent, self._announced, wait_s, patient = False, False, HANG_S, True
            began_s = time.monotonic()
            heartbeat.poll(wait_s * 1000)
            heard = self._listen(heartbeat)
            if heard is _Heard.GOODBYE:
                return
            if heard is _Heard.BEAT:
                self._say(ANSWER)
            if heard is not _Heard.NOTHING:
                continue
            now_s = time.monotonic()
            silence_s, is_late = now_s - last_s, now_s - began_s - wait_s > WOKE_LATE_S
            if not silent and is_late and patient:
                wait_s, patient = PASS_AGAIN_S, False
            elif not silent and not self._is_hung(silence_s, seen):
                wait_s = next_look_s(silence_s)
            else:
                silent, wait_s = True, PASS_AGAIN_S
                with self._spare.lent():
                    self._put_all_back()
                if not self._signs.are_there():  # and a process that it forked holds the heartbeat open
                    break
        with self._spare.lent():
            self._settle_all()
            if dies(self._duty.owner):  # and so has let go of its step map
                remove_dead()

    def close(self) -> None:
        """Let go of the devices, and of what is open beside them."""
        self._has_failed = True
        self._reopen()
        self._signs.close()
        self._spare.close()

    def _is_hung(self, silence_s: float, seen: Look | None) -> bool:
        with self._spare.lent():
            return is_hung(silence_s, seen, self._signs.look(threads=True))

    def _listen(self, heartbeat: select.poll) -> _Heard:
        """Take in all that has arrived: a beat that waits here is one, however late it is read."""
        heard = _Heard.NOTHING
        while heartbeat.poll(0):
            message = self._receive()
            kind = message[:1]
            if not message or kind == GOODBYE:
                return _Heard.GOODBYE if message else _Heard.END
            if kind == BEAT:
                heard = _Heard.BEAT
            if kind == ENTRY:
                self._keep(message[1:])
        return heard

    def _keep(self, data: bytes) -> None:
        """Keep the copy of an entry; what is none leaves the former one in force."""
        with suppress(ValueError, OtherSchema):
            entry = decode(data)
            if entry.uuid in self._duty.uuids and self._is_its_own(entry):
                self._copies[entry.uuid] = entry

    def _is_its_own(self, entry: Entry) -> bool:
        """Whether our controller has set that, and by the knob that is ours to put back."""
        return entry.owner == self._duty.owner and entry.knob.name == self._duty.knob

    def _record(self, uuid: str) -> Entry | None:
        """What our controller had set, by the copy or else by the journal; `None` where another one has the device."""
        copy = self._copies.get(uuid)
        try:
            entry = self._journal.load(uuid)
        except (GuardError, OSError):
            if copy is None:
                raise
            return copy
        if entry is not None and not self._is_its_own(entry):
            return None
        return copy or entry

    def _put_all_back(self) -> None:
        """One pass behind the back of a controller that is silent but lives, and so holds the locks."""
        together(self._put_one_back, self._duty.uuids)
        self._reopen()

    def _put_one_back(self, uuid: str) -> None:
        try:
            entry = self._record(uuid)
            if entry is not None:
                put_back(self._open(), entry, before_set=self._announce)
        except Exception:  # noqa: BLE001 - whatever it was, it is tried again
            self._has_failed = True

    def _settle_all(self) -> None:
        """The controller is dead: settle its entries under their locks, as any start would."""
        died_s = time.monotonic()
        left = list(self._duty.uuids)
        while True:
            since_s = time.monotonic() - died_s
            done = together(partial(self._settle, since_s=since_s), left)
            left = [uuid for uuid, is_done in zip(left, done, strict=True) if not is_done]
            self._reopen()
            if not left or since_s > REFUSED_FOR_S:
                return
            time.sleep(0.005 if since_s < EAGER_S else PASS_AGAIN_S)

    def _settle(self, uuid: str, since_s: float) -> bool:
        """Whether nothing is left to do for this device."""
        try:
            if self._record(uuid) is None:
                return True  # somebody else was first
            if since_s > LEAKED_S and self._signs.are_there():  # it has only lost its heartbeat: as good as silent
                if uuid not in self._behind:
                    self._behind.add(uuid)
                    self._put_one_back(uuid)
                return since_s > LINGERS_S
            try:
                with DeviceLock(self._state, uuid):
                    return self._settle_locked(uuid)
            except DeviceLocked:
                # Whoever else holds the lock settles the entry. A lock that the dead owner still seems to hold can be
                # taken by nobody, so there is nobody to disturb.
                leaked = since_s > LEAKED_S and holder_pid(self._state, uuid) == self._duty.owner.pid
                return leaked and self._settle_locked(uuid)
            except (GuardError, OSError):
                # The directory has gone, or takes no lock: nobody else can hold it either.
                return uuid in self._copies and self._settle_locked(uuid)
        except Exception:  # noqa: BLE001 - whatever it was, it is tried again
            self._has_failed = True
            return False

    def _settle_locked(self, uuid: str) -> bool:
        entry = self._record(uuid)
        if entry is None:
            return True
        try:
            settled = settle_entry(self._journal, entry, self._open())
        except GuardError:
            return True  # the limit is back, and the entry cannot be removed: the next start only drops it
        self._has_failed |= settled.outcome is Fate.FAILED
        return settled.outcome not in (Fate.FAILED, Fate.IN_USE)

    def _open(self) -> LimitPort:
        with self._opening:
            if self._port is None:
                self._port = outside_limits(self._duty.kind, self._duty.job, self._duty.knob)
            return self._port

    def _reopen(self) -> None:
        """Drop a port that has failed; the next use opens another."""
        if not self._has_failed:
            return
        port, self._port, self._has_failed = self._port, None, False
        if port is not None:
            with suppress(Exception):
                port.close()

    def _announce(self) -> None:
        """Say PUT_BACK, once for each time that the controller falls silent."""
        if not self._announced:
            self._announced = True
            self._say(PUT_BACK)

    def _say(self, byte: bytes) -> None:
        with suppress(OSError):  # nobody listens any more
            os.write(self._status_fd, byte)

    def _receive(self) -> bytes:
        """One message of the heartbeat; nothing when its other end is gone."""
        try:
            return os.read(self._beats_fd, MOST_BYTES)
        except ConnectionError:
            return b""


class WatchdogProcess(Protocol):
    """One watchdog's process, until `close`."""

    @property
    def pid(self) -> int: ...

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so in time; an own child leaves no zombie then."""

    def kill(self) -> None:
        """SIGKILL; nothing where it has ended."""

    def close(self) -> None:
        """Let go of it, whether it lives or not."""


class Spawn(Protocol):
    """Starts a watchdog's process that hears its controller on `beats` and answers on `status`, which stay the
    caller's to close. Raises OSError, ValueError."""

    def __call__(self, duty: Duty, beats: socket.socket, status: int) -> WatchdogProcess: ...


class OwnProcess:
    """A child of ours, of an interpreter of its own."""

    def __init__(self, duty: Duty, beats: socket.socket, status: int) -> None:
        words = ["autocap.limits.watchdog", str(status), *duty.words()]
        self._child = interpreter(*words, stdin=beats.fileno(), pass_fds=(status,))

    @property
    def pid(self) -> int:
        return self._child.pid

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        return self._child.poll() is not None

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        pass


# -I and -S keep the environment, the working directory, .pth files and every sitecustomize (the step hook is one) out
# of it; the path it imports from is the controller's own.
_START = "import sys; n = int(sys.argv[1]); sys.path[:] = sys.argv[2 : 2 + n]; module, *words = sys.argv[2 + n :]; "
_START += "from importlib import import_module; import_module(module).main(words)"


def interpreter(module: str, *words: str, stdin: int, pass_fds: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    """Our own interpreter in a process and a session of its own, where a module's `main` is called with these words.
    Raises OSError, ValueError."""
    path = import_path()
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, str(len(path)), *path, module, *words],
        stdin=stdin,
        stdout=subprocess.DEVNULL,  # whoever reads our output to its end must not wait for the watchdog's
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        cwd=os.sep,
        start_new_session=True,
    )
