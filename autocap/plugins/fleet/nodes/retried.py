"""A way to agents that is opened anew for a while, as long as no agent has spoken: Slurm's controller that has just
begun anew refuses steps, or lets them wait for nothing, until its nodes have reported."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.channels import Channels
from autocap.plugins.fleet.nodes.protocol import FromAgent, Lost, Message
from autocap.printing import note

FOR_S = 60.0
_STUCK_S = 12.0  # without a word: agents speak within a second
_APART_S = 1.0
_PASSING = (
    "Memory required by task is not available",
    "Requested nodes are busy",
    "Unable to contact slurm controller",
    "Required node not available",
)


class RetriedChannel:
    """As `Channel`. opened: begins one. now: seconds on any clock."""

    def __init__(
        self,
        opened: Callable[[], Channel | Channels],
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] = note,
    ) -> None:
        self._open, self._now, self._tell = opened, now, tell
        self._channel = opened()
        self._job = self._channel.job
        self._opened_s = now()
        self._end_s = self._opened_s + FOR_S
        self._again_s: float | None = None
        self._said: list[tuple[Message, Sequence[int] | None]] = []  # to nobody, as yet
        self._waits, self._is_told = True, False

    @property
    def job(self) -> EngineJob | None:
        """As Channel has it."""
        return self._job

    @property
    def descriptors(self) -> tuple[int, ...]:
        """As Channel has it."""
        return self._channel.descriptors

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        """As Channel has it."""
        if self._waits:
            self._said.append((message, to))
        self._channel.send(message, to)

    def receive(self) -> list[tuple[int, FromAgent]]:
        """As Channel has it. Raises EngineUnavailable where it cannot be started again."""
        heard = self._channel.receive()
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
                self._leave_this(why)
                self._again_s = now_s + _APART_S
        if self._again_s is None:
            return heard
        if now_s >= self._again_s:
            self._channel, self._opened_s, self._again_s = self._open(), now_s, None
            for message, to in self._said:
                self._channel.send(message, to)
        return []

    def leave(self) -> None:
        """As Channel has it."""
        self._channel.leave()

    def close(self) -> None:
        """As Channel has it."""
        self._channel.close()

    def _leave_this(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(f"Slurm has not taken the step of the agents ({why}); it is tried again for a minute")
        for pid in self._channel.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # on which it withdraws a step that waits
        self._channel.leave()
