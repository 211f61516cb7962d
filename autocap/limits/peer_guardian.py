"""What is the same of all guardians whose work another process does: the helper, a budget's manager, agents on nodes.

That process has the lock, the journal and the watchdog, and puts the limits back whatever becomes of us.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from autocap.errors import GuardError
from autocap.limits.times import DRIVER_S, LATER_S, SOON_S, WAS_STOPPED_S
from autocap.wire.client import Client

A = TypeVar("A")
Q = TypeVar("Q")

MOST_UNANSWERED = 8


class PeerGuardian(ABC):
    """To a session what `autocap.limits.Guardian` is, from `__enter__` to `__exit__`. To be used from one thread; but
    while limits are set in one, `beat` and `restore` may be called from another.

    uuids: the devices, in the order of all caps given and limits returned. original_w: the requested limits found on
    arrival, watts; `None` where one cannot be read.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids, self._pid = tuple(uuids), os.getpid()
        self._notes: list[str] = []
        self._speaking = threading.RLock()
        self._put_back = False  # limits were, or may have been, since the last beat
        self.original_w: tuple[float | None, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What happened that the user should know: sentences, the oldest first."""
        return tuple(self._notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if os.getpid() == self._pid:  # a forked child unwinds its parent's stack; nothing of this is its own
            self._end()

    def beat(self) -> bool:
        """Say that all is well; at least every half second. Blocks for a moment at most, unless the other process has
        to be found again.

        Returns whether limits were, or may have been, put back since the last beat: then set the caps again. Raises
        GuardError, once, where nobody guards them any more; they are back by then, or soon are.
        """
        self._require_own_process()
        if not self._speaking.acquire(blocking=False):
            return False  # what is being asked is a sign of life as well
        try:
            if not self._listen():
                return False
        finally:
            self._speaking.release()
        happened, self._put_back = self._put_back, False
        return happened

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Have a cap requested of each device, watts, and see that it holds.

        Raises ForeignLimit where somebody else has changed a limit, GuardError where a cap cannot be guarded or nobody
        guards the limits any more, and LimitRefused where a device does not take it, or it is not permitted.
        """
        if len(caps_w) != len(self._uuids):
            raise ValueError(f"{len(caps_w)} caps for {len(self._uuids)} guarded devices")
        with self._alone():
            self._set(tuple(map(float, caps_w)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Inside, no other thread speaks with that process. Raises GuardError where one goes on to."""
        if not self._speaking.acquire(timeout=DRIVER_S):
            raise GuardError(f"a limit is being set still, after {DRIVER_S:g} s; whoever sets it puts it back")
        try:
            yield
        finally:
            self._speaking.release()

    @property
    def _found(self) -> tuple[tuple[str, float | None], ...]:
        return tuple(zip(self._uuids, self.original_w, strict=True))

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise GuardError(f"the guardian belongs to PID {self._pid}, not to its forked child {os.getpid()}")

    @abstractmethod
    def _end(self) -> None:
        """Have the limits put back, and guarded no more."""

    @abstractmethod
    def _set(self, caps_w: tuple[float, ...]) -> None:
        """As `set_caps`, of as many as there are devices."""

    @abstractmethod
    def _listen(self) -> bool:
        """Beat, and take in what was done; `False` where nobody guards the limits, as was said. Raises GuardError."""


def beaten(there: Client[Q, A], beat: Q) -> list[A]:
    """Post a beat, unless many wait for their answers; what is answered soon, or, after we seem to have been stopped,
    by and by. Raises PeerLost."""
    within_s = LATER_S if time.monotonic() - there.heard_s > WAS_STOPPED_S else SOON_S
    if there.unanswered < MOST_UNANSWERED:
        there.post(beat)
    return there.drain(within_s)
