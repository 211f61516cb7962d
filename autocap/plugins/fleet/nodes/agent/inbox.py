"""What the controller says, line by line, out of a descriptor that is read only when there is something."""

import os
from collections.abc import Iterator

from autocap.plugins.fleet.nodes.protocol import MOST_BYTES, BadLine, Message, addressed
from autocap.wire.lines import Lines

_AT_ONCE = 1 << 16


class Inbox:
    """Messages for the agent of that number; a line that is none, is too long or is for others is left out.

    fd: the descriptor. has_ended: nothing more will come. speaks: whether the last `read` brought a line that the
    controller said, to whomever.
    """

    def __init__(self, fd: int, number: int) -> None:
        os.set_blocking(fd, False)
        self.fd, self._number = fd, number
        self._lines = Lines(MOST_BYTES)
        self.has_ended = False
        self.speaks = False

    def read(self) -> Iterator[Message]:
        """What has come, for us."""
        self.speaks = False
        try:
            data = os.read(self.fd, _AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.has_ended = not data
        for line in self._lines.feed(data):
            try:
                message, to = addressed(line)
            except BadLine:
                continue
            self.speaks = True
            if to is None or self._number in to:
                yield message
