"""The watchdog process: puts the limits back when the controller dies, hangs or is stopped.

Its standard input is the controller's heartbeat. Each beat is answered; end of file without a goodbye means that the
controller is dead. It never writes the journal while the controller lives, so there is one writer at any time.
"""

import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.devices import outside_limits
from autocap.devices.base import LimitPort
from autocap.errors import DeviceLocked
from autocap.guardian.journal import Journal
from autocap.guardian.lock import DeviceLock, holder_pid
from autocap.guardian.recovery import Fate, dies, settle_locked
from autocap.guardian.restore import put_back
from autocap.guardian.state_dir import StateDir
from autocap.job.processes import ProcessId
from autocap.job.shared_files import remove_dead

# What goes over the heartbeat and what comes back, a byte each. PUT_BACK is said before the first limit is changed
# behind a silent controller's back: whoever finds a changed limit and reads the channel after that knows who did it.
BEAT, GOODBYE = b"b", b"q"
READY, FAILED, ANSWER, PUT_BACK = b"R", b"E", b"g", b"H"

HANG_S = 1.5  # without a beat; the rest of the two seconds that are promised is for putting back
_AGAIN_S = 0.25  # between passes while the controller is silent: it may wake in the middle of a set, and stop again
_LEAKED_S = 0.3  # a lock that a dead owner seems to hold this long is held by a process it forked
_RETRY_S = 60.0  # how long a device that refuses is tried; `autocap restore` can do it later
_EAGER_S = 1.0  # of which this long without a pause to speak of

_IGNORED = (
    *(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What a watchdog watches; it reaches it as words on its command line."""

    state_dir: Path
    kind: str
    owner: ProcessId
    job: ProcessId | None
    uuids: tuple[str, ...]

    def words(self) -> list[str]:
        job = "-" if self.job is None else f"{self.job.pid}:{self.job.start_ticks}"
        owner = f"{self.owner.pid}:{self.owner.start_ticks}"
        return [str(self.state_dir), self.kind, owner, job, *self.uuids]

    @staticmethod
    def from_words(words: list[str]) -> "Duty":
        state_dir, kind, owner, job, *uuids = words
        return Duty(
            state_dir=Path(state_dir),
            kind=kind,
            owner=_process(owner),
            job=None if job == "-" else _process(job),
            uuids=tuple(uuids),
        )


def _process(word: str) -> ProcessId:
    pid, _, start_ticks = word.partition(":")
    return ProcessId(int(pid), int(start_ticks))


def main(words: list[str]) -> None:
    """The whole life of a watchdog process. words: the descriptor for its answers, then its duty's."""
    for signum in _IGNORED:  # what is sent to the controller, its terminal or its group is not for us
        signal.signal(signum, signal.SIG_IGN)
    status_fd, duty = int(words[0]), Duty.from_words(words[1:])
    os.set_blocking(status_fd, False)  # a controller that is stopped for a day reads nothing
    try:
        with StateDir(duty.state_dir) as state:
            # The device is reached before a cap is set, not for the first time when its controller is dead.
            Watchdog(duty, state, outside_limits(duty.kind, duty.job), status_fd).run()
    except Exception as error:
        with suppress(OSError):  # the controller sets nothing without a watchdog, and says this
            os.write(status_fd, FAILED + str(error).encode())
        raise


class Watchdog:
    """port: the devices as seen from here; opened again when they fail. status_fd: where answers go."""

    def __init__(self, duty: Duty, state: StateDir, port: LimitPort, status_fd: int) -> None:
        self._duty = duty
        self._state = state
        self._journal = Journal(state)
        self._status_fd = status_fd
        self._port: LimitPort | None = port
        self._announced = False

    def run(self) -> None:
        """Watch until the controller says goodbye, or is dead and all that it changed is put back."""
        heartbeat = select.poll()
        heartbeat.register(0, select.POLLIN)
        self._say(READY)
        last_s, silent = time.monotonic(), False
        while True:
            wait_s = _AGAIN_S if silent else max(0.0, last_s + HANG_S - time.monotonic())
            if heartbeat.poll(wait_s * 1000):
                data = _receive()
                if GOODBYE in data:
                    return
                if not data:
                    break
                last_s, silent, self._announced = time.monotonic(), False, False
                self._say(ANSWER)
                continue
            silent = True
            self._put_all_back()
            if not self._duty.owner.is_alive():  # and a process that it forked holds the heartbeat open
                break
        self._settle_all()
        if dies(self._duty.owner):
            remove_dead()

    def _put_all_back(self) -> None:
        """One pass behind the back of a controller that is silent but lives, and so holds the locks."""
        for uuid in self._duty.uuids:
            try:
                entry = self._journal.load(uuid)
                if entry is not None and entry.owner == self._duty.owner:
                    put_back(self._open(), entry, before_set=self._announce)
            except Exception:  # noqa: BLE001 - whatever it was, the other devices come next, and this one again
                self._reopen()

    def _settle_all(self) -> None:
        """The controller is dead: settle its entries under their locks, as any start would."""
        died_s = time.monotonic()
        left = list(self._duty.uuids)
        while True:
            since_s = time.monotonic() - died_s
            left = [uuid for uuid in left if not self._settle(uuid, since_s)]
            if not left or since_s > _RETRY_S:
                return
            time.sleep(0.005 if since_s < _EAGER_S else _AGAIN_S)

    def _settle(self, uuid: str, since_s: float) -> bool:
        """Whether nothing is left to do for this device."""
        try:
            entry = self._journal.load(uuid)
            if entry is None or entry.owner != self._duty.owner:
                return True  # somebody else was first
            if since_s > _LEAKED_S and entry.owner.is_alive():  # it has only lost its heartbeat: as good as silent
                self._put_all_back()
                return True
            try:
                with DeviceLock(self._state, uuid):
                    return self._settle_locked(uuid)
            except DeviceLocked:
                # Whoever else holds the lock settles the entry. A lock that the dead owner still seems to hold can be
                # taken by nobody, so there is nobody to disturb.
                leaked = since_s > _LEAKED_S and holder_pid(self._state, uuid) == entry.owner.pid
                return leaked and self._settle_locked(uuid)
        except Exception:  # noqa: BLE001 - whatever it was, the other devices come next, and this one again
            self._reopen()
            return False

    def _settle_locked(self, uuid: str) -> bool:
        settled = settle_locked(self._journal, uuid, self._open())
        if settled is not None and settled.outcome is Fate.FAILED:
            self._reopen()
        return settled is None or settled.outcome not in (Fate.FAILED, Fate.IN_USE)

    def _open(self) -> LimitPort:
        if self._port is None:
            self._port = outside_limits(self._duty.kind, self._duty.job)
        return self._port

    def _reopen(self) -> None:
        """Drop a port that failed; the next use opens another."""
        port, self._port = self._port, None
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


def _receive() -> bytes:
    """What has arrived on the heartbeat; nothing when its other end is gone."""
    try:
        return os.read(0, 4096)
    except ConnectionError:
        return b""
