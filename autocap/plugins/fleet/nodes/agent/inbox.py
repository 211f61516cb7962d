"""What the controller says, line by line, out of a descriptor that is read only when there is something."""

from collections.abc import Iterator
from contextlib import suppress

from autocap.plugins.fleet.nodes.protocol import MOST_BYTES, BadLine, Message, addressed
from autocap.wire.stream import LineStream


class Inbox(LineStream):
    """Messages for the agent of that number; a line that is none, is too long or is for others is left out.

    fd: the descriptor. speaks: whether the last `messages` brought a line that the controller said, to whomever.
    """

    def __init__(self, fd: int, number: int) -> None:
        super().__init__(fd, None, MOST_BYTES)
        self.fd, self._number = fd, number
        self.speaks = False

    def messages(self) -> Iterator[Message]:
        """What has come, for us."""
        self.speaks = False
        self.read()
        for line in self.lines():
            with suppress(BadLine):
                message, to = addressed(line)
                self.speaks = True
                if to is None or self._number in to:
                    yield message
