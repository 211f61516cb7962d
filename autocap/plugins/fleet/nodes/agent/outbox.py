"""What is to be said, as far as the other side takes it: nothing here ever waits for who reads."""

import os
import select
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from autocap.plugins.fleet.nodes.protocol import Heard, Message, line_of
from autocap.plugins.fleet.nodes.rows import Rows
from autocap.plugins.fleet.nodes.sharing import Books

_MOST_BYTES = 1 << 20  # that wait: hours of what is kept, and minutes of rows
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Line:
    text: bytes
    kept: bool  # whatever happens


class Outbox:
    """Lines to a descriptor, which is made non-blocking. Where too many wait, the oldest rows and answers to words are
    left out, never anything else. is_broken: nobody reads any more."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waiting: deque[_Line] = deque()
        self._bytes = 0
        self._begun = b""  # the rest of a line that was taken in part
        self.is_broken = False

    @property
    def is_empty(self) -> bool:
        """Whether all was taken."""
        return not self._waiting and not self._begun

    def put(self, message: Message) -> None:
        """Say something, now or once it is taken. What waits already in the very same words is said once."""
        line = _Line(line_of(message), not isinstance(message, Rows | Heard | Books))
        if line in self._waiting:
            return
        self._waiting.append(line)
        self._bytes += len(line.text)
        while self._bytes > _MOST_BYTES and (old := next((each for each in self._waiting if not each.kept), None)):
            self._waiting.remove(old)
            self._bytes -= len(old.text)
        self.flush()

    def flush(self) -> None:
        """Hand over what is taken at once."""
        while not self.is_empty and not self.is_broken:
            if not self._begun:
                line = self._waiting.popleft()
                self._bytes -= len(line.text)
                self._begun = line.text
            try:
                self._begun = self._begun[os.write(self._fd, self._begun[:_AT_ONCE]) :]
            except BlockingIOError:
                return
            except OSError:
                self.is_broken = True

    def drain(self, seconds: float) -> None:
        """Hand over the rest, for as long at most."""
        until_s = time.monotonic() + seconds
        self.flush()
        while not self.is_empty and not self.is_broken and (left_s := until_s - time.monotonic()) > 0:
            with suppress(InterruptedError):
                select.select([], [self._fd], [], left_s)
            self.flush()
