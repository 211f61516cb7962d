"""The controller's end of a watchdog: starts it, beats, hears what it did, and ends it."""

import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Protocol

from autocap.errors import GuardError
from autocap.job.processes import identify
from autocap.limits.journal import Entry, encode, unset
from autocap.limits.times import MUTE_WATCHDOG_S, OBEYS_S, STUCK_BEATS, STUCK_S
from autocap.limits.vital_signs import VitalSigns
from autocap.limits.watchdog import (
    ANSWER,
    BEAT,
    ENTRY,
    FAILED,
    GOODBYE,
    MOST_BYTES,
    PUT_BACK,
    READY,
    Duty,
    OwnProcess,
    Spawn,
    WatchdogProcess,
)


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

    def tell(self, entry: Entry) -> bool: ...

    def end(self, *, goodbye: bool) -> None: ...

    def kill(self) -> None: ...

    def forget(self) -> None: ...


class StartWatch(Protocol):
    """Starts a watchdog that knows the entries, or raises GuardError."""

    def __call__(self, duty: Duty, *, entries: Sequence[Entry], ready_timeout_s: float) -> Watch: ...


class Heartbeat:
    """One watchdog process, from its start until `end`.

    Neither end of a channel can be inherited by other children of the controller: one that outlived it would hold the
    heartbeat open. entries: of the duty's devices, as they are now. spawn: starts its process. Raises GuardError where
    the watchdog cannot be started, or is not ready within ready_timeout_s.
    """

    def __init__(
        self, duty: Duty, *, entries: Sequence[Entry] = (), ready_timeout_s: float, spawn: Spawn = OwnProcess
    ) -> None:
        clause = self._clause = unset(duty.knob)
        # A socket for the beats, because a send can say MSG_NOSIGNAL: a dead watchdog must not raise SIGPIPE here. One
        # of packets, because each of them goes as a whole or not at all.
        try:
            self._beats, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise GuardError(f"the watchdog process cannot be started: {error}; without it {clause}") from error
        try:
            self._status, status = os.pipe()
        except OSError as error:
            self._beats.close()
            theirs.close()
            raise GuardError(f"the watchdog process cannot be started: {error}; without it {clause}") from error
        self._beats.setblocking(False)
        self._unanswered, self._unanswered_since_s = 0, 0.0
        self._is_deaf = False
        self._signs: VitalSigns | None = None
        try:
            if not all(map(self.tell, entries)):  # before it lives: they wait for it, whatever becomes of us
                raise ValueError("it could not be told of all devices")
            self._process: WatchdogProcess = spawn(duty, theirs, status)
        except (OSError, ValueError) as error:
            self._send(GOODBYE)  # to one that was started after all, by whoever did not say so
            self._hang_up()
            raise GuardError(f"the watchdog process cannot be started with {sys.executable!r}: {error}") from error
        finally:
            theirs.close()
            os.close(status)
        try:
            self._await_ready(ready_timeout_s)
        except BaseException:
            self.kill()
            raise
        process = identify(self.pid)
        self._signs = None if process is None else VitalSigns(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await_ready(self, timeout_s: float) -> None:
        os.set_blocking(self._status, False)
        said = self._hear(until=READY[0], timeout_s=timeout_s)
        if said is None or not said.startswith(READY):
            reason = f"it was not ready within {timeout_s:g} s"
            if said is not None:
                reason = said.removeprefix(FAILED).decode(errors="replace") or "it ended at once"
            raise GuardError(f"the watchdog process does not watch: {reason}; without it {self._clause}")

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
        if self._is_deaf:
            return Pulse.LOST
        try:
            said = os.read(self._status, 4096)
            if not said:
                return Pulse.LOST
        except BlockingIOError:
            said = b""
        if ANSWER in said:
            self._unanswered = 0
        elif self._unanswered and self._is_stuck(now_s - self._unanswered_since_s):
            return Pulse.LOST
        if not self._send(BEAT):
            return Pulse.LOST
        if self._unanswered == 0:
            self._unanswered_since_s = now_s
        self._unanswered += 1
        if PUT_BACK not in said:
            return Pulse.GUARDING
        if said.rfind(ANSWER) < said.rfind(PUT_BACK):  # only after its answer does it leave the limits alone
            heard = self._hear(until=ANSWER[0], timeout_s=OBEYS_S)
            if heard is None or ANSWER not in heard:
                return Pulse.LOST
        return Pulse.PUT_BACK

    def _is_stuck(self, mute_s: float) -> bool:
        """Whether a watchdog does not watch that has not answered for so long: it was stopped, or should have had the
        time. One that waits for a CPU, or for a device that it puts back, is given that time."""
        if mute_s > MUTE_WATCHDOG_S and self._signs is not None and self._signs.is_stopped():
            return True
        return self._unanswered >= STUCK_BEATS and mute_s > STUCK_S

    def tell(self, entry: Entry) -> bool:
        """Hand the watchdog its copy of an entry, which is its own from then on, whatever becomes of us. Never blocks.

        False where it takes none: then it has not read for long, and counts as lost at the next beat.
        """
        message = ENTRY + encode(entry)
        self._is_deaf = self._is_deaf or len(message) > MOST_BYTES or not self._send(message)
        return not self._is_deaf

    def _send(self, message: bytes) -> bool:
        try:
            self._beats.send(message, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def end(self, *, goodbye: bool) -> None:
        """Wait for the watchdog to leave, which it does at once after a goodbye, and without one after it has tried to
        put back what is left; if it does not leave it is killed. Leaves no zombie."""
        with suppress(OSError):
            if goodbye:
                self._beats.send(GOODBYE, socket.MSG_NOSIGNAL)
            self._beats.shutdown(socket.SHUT_WR)
        self._process.ends_within(OBEYS_S)
        self.kill()

    def kill(self) -> None:
        """End a watchdog that is dead or of no use."""
        if not self._process.ends_within(0.0):
            self._process.kill()
            self._process.ends_within(OBEYS_S)  # unless it is in a system call that cannot be interrupted
        self.forget()

    def forget(self) -> None:
        """Close our ends; in a forked child, whose parent goes on beating."""
        self._hang_up()
        self._process.close()
        if self._signs is not None:
            self._signs.close()

    def _hang_up(self) -> None:
        self._beats.close()
        os.close(self._status)
