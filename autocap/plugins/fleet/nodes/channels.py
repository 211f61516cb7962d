"""Several ways to agents as one: each child process carries the lines of some, which count from 0 there."""

from collections.abc import Sequence

from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.protocol import FromAgent, Message


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
