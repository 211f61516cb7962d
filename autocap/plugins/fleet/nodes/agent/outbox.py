"""What is to be said, as far as the other side takes it: nothing here ever waits for who reads."""

from autocap.plugins.fleet.nodes.protocol import MOST_BYTES, Heard, Message, line_of
from autocap.plugins.fleet.nodes.rows import Rows
from autocap.plugins.fleet.nodes.sharing import Books
from autocap.wire.stream import LineStream

_MOST_BYTES = 1 << 20  # that wait: hours of what is kept, and minutes of rows


class Outbox(LineStream):
    """Lines to a descriptor. Where too many wait, the oldest rows and answers to words are left out."""

    def __init__(self, fd: int) -> None:
        super().__init__(None, fd, MOST_BYTES, _MOST_BYTES)

    def put(self, message: Message) -> None:
        """Say something, now or once it is taken. What waits already in the very same words is said once."""
        line = line_of(message)
        if not self.says_already(line):
            self.say(line, kept=not isinstance(message, Rows | Heard | Books))
            self.flush()
