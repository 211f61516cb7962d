"""Several ways to agents as one: each child process carries the lines of some, which count from 0 there.

One to a step of Slurm's is opened anew for a while, as long as no agent has spoken: a controller that has just begun
anew refuses steps, or lets them wait for nothing, until its nodes have reported.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.protocol import FromAgent, Lost, Message
from autocap.text import note

FOR_S = 60.0
_STUCK_S = 12.0  # without a word: agents speak within a second
_APART_S = 1.0
_PASSING = (
    "Memory required by task is not available",
    "Requested nodes are busy",
    "Unable to contact slurm controller",
    "Required node not available",
)


class Channels:
    """As `Channel`. parts: of the job's nodes one after the other, as `job` has them all."""

    def __init__(self, parts: Sequence[Channel], job: EngineJob) -> None:
        self._parts = tuple(parts)
        self.job = job
        sizes = [len(part.job.nodes) if part.job is not None else 0 for part in parts]
        self._firsts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]

    @property
    def pids(self) -> tuple[int, ...]:
        """As Channel has it."""
        return tuple(pid for part in self._parts for pid in part.pids)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """As Channel has it."""
        return tuple(fd for part in self._parts for fd in part.descriptors)

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        """As Channel has it."""
        for part, first, end in zip(self._parts, self._firsts, self._firsts[1:], strict=False):
            numbers = None if to is None else [number for number in to if first <= number < end]
            if numbers is None or numbers:
                part.send(message, numbers)

    def receive(self) -> list[tuple[int, FromAgent]]:
        """As Channel has it."""
        pairs = zip(self._parts, self._firsts, strict=False)
        return [(first + number, message) for part, first in pairs for number, message in part.receive()]

    def leave(self) -> None:
        """As Channel has it."""
        for part in self._parts:
            part.leave()

    def close(self) -> None:
        """As Channel has it."""
        self.leave()
        for part in self._parts:
            part.close()


class RetriedChannels(Channels):
    """opened: begins its parts. now: seconds on any clock. `receive` raises EngineUnavailable where they cannot be
    started again."""

    def __init__(
        self,
        opened: Callable[[], Sequence[Channel]],
        job: EngineJob,
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] = note,
    ) -> None:
        super().__init__(opened(), job)
        self._open, self._now, self._tell = opened, now, tell
        self._opened_s = now()
        self._end_s = self._opened_s + FOR_S
        self._again_s: float | None = None
        self._said: list[tuple[Message, Sequence[int] | None]] = []  # to nobody, as yet
        self._waits, self._is_told = True, False

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        if self._waits:
            self._said.append((message, to))
        super().send(message, to)

    def receive(self) -> list[tuple[int, FromAgent]]:
        heard = super().receive()
        if not self._waits:
            return heard
        now_s = self._now()
        lost = [message.why for _, message in heard if isinstance(message, Lost)]
        if len(lost) < len(heard):
            self._waits = False
        elif now_s < self._end_s and self._again_s is None:
            why = next((text for text in _PASSING if any(text in one for one in lost)), None)
            if why is None and now_s > self._opened_s + _STUCK_S:
                why = "it is not started"
            if why is not None:
                self._leave_these(why)
                self._again_s = now_s + _APART_S
        if self._again_s is None:
            return heard
        if now_s >= self._again_s:
            self._parts, self._opened_s, self._again_s = tuple(self._open()), now_s, None
            for message, to in self._said:
                super().send(message, to)
        return []

    def _leave_these(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(f"Slurm has not taken the step of the agents ({why}); it is tried again for a minute")
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # on which it withdraws a step that waits
        self.leave()
