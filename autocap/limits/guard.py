"""What guards the limits of a job's devices: `Guardian`, or `PeerGuardian`, where another process does the work: the
helper, a budget's manager, agents on nodes.

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
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.guarded_limit import Restored
from autocap.limits.times import DRIVER_S, LATER_S, SOON_S, WAS_STOPPED_S
from autocap.wire.client import Client


class LimitSetter(ABC):
    """Sets caps, guarded. renewable: where limits are lent no more, they may be lent again."""

    renewable = False

    @abstractmethod
    def set_caps(self, settings: Sequence[float]) -> None:
        """Request a cap of each device, watts, and see that it holds.

        Raises ForeignLimit where somebody else has changed a limit, GuardError where a cap cannot be guarded, and
        LimitRefused where a device does not take it, or it is not permitted. The others may have their cap; `restore`
        covers all.
        """

    @abstractmethod
    def beat(self) -> bool:
        """Say that all is well; at least every half second. Blocks for a moment at most.

        Returns whether limits were, or may have been, put back since the last beat, as we seemed to hang or their guard
        was lost: then set the caps again. Raises GuardError, once, where nobody guards them any more; they are back by
        then, or soon are.
        """

    @abstractmethod
    def restore(self) -> Sequence[Restored] | None:
        """Put the limits found on arrival back; what became of each, `None` where that is not told. One that fails does
        not keep the others. Caps may be set again."""

    def renew(self) -> None:
        """Where `renewable`: have the devices lent once more, after they were lent no more. Raises as entering does,
        and GuardError where other limits are found than before."""
        raise NotImplementedError


class LimitGuard(LimitSetter):
    """Guards limits from `__enter__` to `__exit__`. To be used from one thread; but while limits are set in one, `beat`
    and `restore` may be called from another.

    uuids: the devices, in the order of all caps given and limits returned. knob: what is set; of another one than the
    power limit, caps are settings, and limits values. original_w: the requested limits found on arrival, watts; `None`
    where one cannot be read (none is set there). failed: the place of the device at which the
    latest set raised a DeviceError; `None` where it was none.

    Entering raises AutocapError where they cannot be guarded; then nothing was set.
    """

    def __init__(self, uuids: Sequence[str], knob: Knob = POWER_LIMIT) -> None:
        self.knob = knob
        self._uuids, self._pid = tuple(uuids), os.getpid()
        self._notes: list[str] = []
        self.original_w: tuple[float | None, ...] = ()
        self.failed: int | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What happened that the user should know: sentences, the oldest first."""
        return tuple(self._notes)

    @property
    def found(self) -> tuple[float | None, ...]:
        """The settings found on arrival."""
        return tuple(map(self.knob.setting_or_none, self.original_w))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if os.getpid() == self._pid:  # a forked child unwinds its parent's stack; nothing of this is its own
            self._end()

    @abstractmethod
    def rehearse(self) -> None:
        """Request the limits that are there already: what is not permitted shows before a cap is tried. Raises as
        `set_caps`."""

    def set_caps(self, settings: Sequence[float]) -> None:
        if len(settings) != len(self.original_w):
            raise ValueError(f"{len(settings)} caps for {len(self.original_w)} guarded devices")
        self._set(tuple(map(self._value, settings, self.original_w)))

    def _value(self, setting: float, found: float | None) -> float:
        """What is asked for: of another knob than the limit, to the last digit what was found where that is meant."""
        value = self.knob.value(float(setting))
        if self.knob.is_power_limit or found is None or abs(value - found) > self.knob.tolerance:
            return value
        return found

    @abstractmethod
    def restore(self) -> Sequence[Restored]: ...

    def leave_out(self, place: int) -> Restored:
        """Put the limit found on one device back, as `restore` does, and set none there any more: where we set limits,
        or have a helper set them. Raises GuardError."""
        raise NotImplementedError

    @abstractmethod
    def _set(self, values: tuple[float, ...]) -> None:
        """As `set_caps`, of as many as there are devices, and told the knob's values."""

    @abstractmethod
    def _end(self) -> None:
        """Put the limits back, and guard them no more."""

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise GuardError(f"the guardian belongs to PID {self._pid}, not to its forked child {os.getpid()}")


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
