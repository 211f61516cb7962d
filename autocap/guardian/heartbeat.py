"""The controller's end of a watchdog: starts it, beats, hears what it did, and ends it."""

import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from enum import Enum, auto
from typing import Protocol

from autocap.errors import GuardError
from autocap.guardian.watchdog import ANSWER, BEAT, FAILED, GOODBYE, PUT_BACK, READY, Duty
from autocap.job.processes import import_path

_STUCK_S = 5.0  # a watchdog that leaves beats unanswered for so long does not watch
_END_S = 2.0  # to leave after a goodbye
_RESUME_S = 2.0  # to answer the beat after it has put limits back

# -I and -S keep the environment, the working directory, .pth files and every sitecustomize (the step hook is one) out
# of it; the path it imports from is the controller's own.
_START = "import sys; n = int(sys.argv[1]); sys.path[:] = sys.argv[2 : 2 + n]; "
_START += "from autocap.guardian.watchdog import main; main(sys.argv[2 + n :])"


class Pulse(Enum):
    """What a beat tells."""

    GUARDING = auto()
    PUT_BACK = auto()  # the controller was silent for too long: limits were put back meanwhile; it guards again
    LOST = auto()  # there is no watchdog any more, or one that does not answer


class Watch(Protocol):
    """What a guardian knows of its watchdog; `Heartbeat` says what each verb does."""

    @property
    def pid(self) -> int: ...

    def beat(self) -> Pulse: ...

    def end(self, *, goodbye: bool) -> None: ...

    def kill(self) -> None: ...

    def forget(self) -> None: ...


class StartWatch(Protocol):
    """Starts a watchdog, or raises GuardError."""

    def __call__(self, duty: Duty, *, ready_timeout_s: float) -> Watch: ...


class Heartbeat:
    """One watchdog process, from its start until `end`.

    Neither end of a channel can be inherited by other children of the controller: one that outlived it would hold the
    heartbeat open. Raises GuardError where the watchdog is not ready within ready_timeout_s.
    """

    def __init__(self, duty: Duty, *, ready_timeout_s: float) -> None:
        # A socket for the beats, because a send can say MSG_NOSIGNAL: a dead watchdog must not raise SIGPIPE here.
        self._beats, theirs = socket.socketpair()
        self._status, status = os.pipe()
        self._unanswered_s: float | None = None
        path = import_path()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(len(path)), *path, str(status), *duty.words()],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,  # whoever reads our output to its end must not wait for the watchdog's
                stderr=subprocess.DEVNULL,
                pass_fds=(status,),
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.forget()
            raise GuardError(f"the watchdog process cannot be started with {sys.executable!r}: {error}") from error
        finally:
            theirs.close()
            os.close(status)
        try:
            self._await_ready(ready_timeout_s)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await_ready(self, timeout_s: float) -> None:
        os.set_blocking(self._status, False)
        self._beats.setblocking(False)
        said = self._hear(until=READY[0], timeout_s=timeout_s)
        if said is None or not said.startswith(READY):
            reason = f"it was not ready within {timeout_s:g} s"
            if said is not None:
                reason = said.removeprefix(FAILED).decode(errors="replace") or "it ended at once"
            raise GuardError(f"the watchdog process does not watch: {reason}; without it no cap is set")

    def _hear(self, *, until: int, timeout_s: float) -> bytes | None:
        """What the watchdog says up to some byte or its end; `None` when it says neither in time."""
        said = b""
        deadline_s = time.monotonic() + timeout_s
        channel = select.poll()
        channel.register(self._status, select.POLLIN)
        while until not in said:
            if not channel.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                return None
            data = os.read(self._status, 4096)
            if not data:
                return said
            said += data
        return said

    def beat(self) -> Pulse:
        """Say that the controller is well, and hear what the watchdog did since the last beat. Never blocks, but for
        the moment that it takes the watchdog to guard again after it has put limits back."""
        now_s = time.monotonic()
        try:
            said = os.read(self._status, 4096)
            if not said:
                return Pulse.LOST
        except BlockingIOError:
            said = b""
        if ANSWER in said:
            self._unanswered_s = None
        elif self._unanswered_s is not None and now_s - self._unanswered_s > _STUCK_S:
            return Pulse.LOST
        try:
            self._beats.send(BEAT, socket.MSG_NOSIGNAL)
        except OSError:
            return Pulse.LOST
        self._unanswered_s = now_s if self._unanswered_s is None else self._unanswered_s
        if PUT_BACK not in said:
            return Pulse.GUARDING
        if said.rfind(ANSWER) < said.rfind(PUT_BACK):  # only after its answer does it leave the limits alone
            heard = self._hear(until=ANSWER[0], timeout_s=_RESUME_S)
            if heard is None or ANSWER not in heard:
                return Pulse.LOST
        return Pulse.PUT_BACK

    def end(self, *, goodbye: bool) -> None:
        """Wait for the watchdog to leave, which it does at once after a goodbye, and without one after it has tried to
        put back what is left; if it does not leave it is killed. Leaves no zombie."""
        with suppress(OSError):
            if goodbye:
                self._beats.send(GOODBYE, socket.MSG_NOSIGNAL)
            self._beats.shutdown(socket.SHUT_WR)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.kill()

    def kill(self) -> None:
        """End a watchdog that is dead or of no use."""
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # in a system call that cannot be interrupted
                self._process.wait(_END_S)
        self.forget()

    def forget(self) -> None:
        """Close our ends; in a forked child, whose parent goes on beating."""
        self._beats.close()
        os.close(self._status)
