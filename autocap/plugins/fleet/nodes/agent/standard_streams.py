"""The ends of what runs on a node, lines of the protocol alone: its standard input and output. What runs there may be
ready before it is known which of the nodes it is: then a line says it, `NUMBER NODE PIDS…`."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from autocap import __version__
from autocap.plugins.fleet.nodes.agents import machine
from autocap.plugins.fleet.nodes.protocol import (
    MOST_BYTES,
    VERSION,
    BadLine,
    HeartbeatReply,
    Hello,
    Message,
    NodeReport,
    Rows,
    addressed,
    line_of,
)
from autocap.wire.stream import LineStream

_MOST_BYTES = 1 << 20  # that wait: hours of what is kept, and minutes of rows


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


class Outbox(LineStream):
    """Lines to a descriptor. Where too many wait, the oldest rows and answers to words are left out."""

    def __init__(self, fd: int) -> None:
        super().__init__(None, fd, MOST_BYTES, _MOST_BYTES)

    def put(self, message: Message) -> None:
        """Say something, now or once it is taken. What waits already in the very same words is said once."""
        line = line_of(message)
        if not self.says_already(line):
            self.say(line, kept=not isinstance(message, Rows | HeartbeatReply | NodeReport))
            self.flush()


def awaited() -> tuple[int, str, tuple[int, ...]] | None:
    """What the first line of our input says, no byte beyond it; `None` where it ends before: our number, as messages
    have it, our node's name, and the PIDs of the job's processes there, as its engine has them."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return None
        line += byte
    number, node, *pids = line.decode().split()
    return int(number), node, tuple(map(int, pids))


def own_stdout() -> int:
    """Standard output for protocol lines alone: whatever else writes there, writes to standard error."""
    own = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return own


def hello(node: str) -> Hello:
    """What is said first of all. node: its name."""
    boot_id, clock_id = machine()
    return Hello(
        version=VERSION,
        autocap_version=__version__,
        node=node,
        pid=os.getpid(),
        boot_id=boot_id,
        clock_id=clock_id,
    )
