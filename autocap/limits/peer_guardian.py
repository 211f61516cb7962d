"""What is the same of all guardians whose work another process does: the helper, a budget's manager, agents on nodes.

That process has the lock, the journal and the watchdog, and puts the limits back whatever becomes of us.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from autocap.errors import GuardError
from autocap.limits.guard import LimitGuard
from autocap.limits.times import DRIVER_S, LATER_S, SOON_S, WAS_STOPPED_S
from autocap.wire.client import Client

A = TypeVar("A")
Q = TypeVar("Q")

MOST_UNANSWERED = 8


class PeerGuardian(LimitGuard):
    """To a session what `autocap.limits.Guardian` is; a beat blocks for longer where that process has to be found
    again."""

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(uuids)
        self._speaking = threading.RLock()
        self._put_back = False  # limits were, or may have been, since the last beat

    def beat(self) -> bool:
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

    def set_caps(self, settings: Sequence[float]) -> None:
        with self._alone():
            super().set_caps(settings)

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
