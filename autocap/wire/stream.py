"""The other end of a socket or of pipes: nothing here ever waits for it, unless for as long as is said."""

import os
import random
import select
import socket
import time
from collections import deque
from pathlib import Path

from autocap.wire.json_lines import NotALine
from autocap.wire.lines import Lines

_READ_BYTES = 1 << 16
_PAUSES_S = (0.005, 0.05)  # between tries; by chance, so that those who wait do not all try at once


def dialled(path: Path, within_s: float) -> socket.socket:
    """A connection, whose calls wait for so many seconds at most. A queue that is full is tried again for as long: a
    flood of others fills it, and it is empty again in a moment. Raises OSError."""
    deadline_s = time.monotonic() + within_s
    while True:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(within_s)
            made.connect(os.fspath(path))
        except BlockingIOError:  # EAGAIN: a socket of a path is never connected later
            made.close()
            if time.monotonic() > deadline_s:
                raise
            time.sleep(random.uniform(*_PAUSES_S))
        except BaseException:
            made.close()
            raise
        else:
            return made


class LineStream:
    """Lines in, lines out. reads, writes: a socket, or descriptors of pipes, where there are such; they are made
    non-blocking, and stay whoever's they are. most_bytes: of a line that arrives, with its newline. most_waiting: bytes
    that wait to be taken; where more do, the oldest lines that need not be kept are left out, never any other.

    ended: nothing more arrives. broken: nothing more is taken. waiting: bytes that wait to be taken.
    """

    def __init__(
        self,
        reads: socket.socket | int | None,
        writes: socket.socket | int | None,
        most_bytes: int,
        most_waiting: int = 1 << 20,
    ) -> None:
        for end in (reads, writes):
            if isinstance(end, socket.socket):
                end.setblocking(False)
            elif end is not None:
                os.set_blocking(end, False)
        self._reads, self._writes = reads, writes
        self._most_bytes, self._most_waiting = most_bytes, most_waiting
        self._lines, self._whole = Lines(most_bytes - 1), deque[bytes]()
        self._queue: deque[tuple[bytes, bool]] = deque()  # with whether it is kept
        self._begun = b""  # the rest of a line that was taken in part
        self.ended = self.broken = False
        self.waiting = 0

    def read(self, most_bytes: int = _READ_BYTES) -> bool:
        """Take in what has arrived, up to so many bytes; whether there was anything, the end too."""
        got = 0
        while not self.ended and got < most_bytes:
            try:
                data = os.read(_fileno(self._reads), min(_READ_BYTES, most_bytes - got))
            except BlockingIOError:
                break
            except OSError:  # killed while something was unread
                data = b""
            self.ended = not data
            self._whole += self._lines.feed(data)
            got += len(data)
        return self.ended or got > 0

    def lines(self) -> list[bytes]:
        """Those that are whole, without their newlines; of one that is too long as `Lines` has it."""
        found = list(self._whole)
        self._whole.clear()
        return found

    def take(self) -> bytes | None:
        """The next whole line, without its newline; `None` while there is none. Raises NotALine for one that is too
        long, even before its end has come."""
        line = self._whole.popleft() if self._whole else None
        if self._lines.is_too_long if line is None else len(line) >= self._most_bytes:
            raise NotALine(f"a line is longer than {self._most_bytes} bytes")
        return line

    def is_readable(self, within_s: float) -> bool:
        """Whether something arrives in so many seconds, or the end."""
        return _polled(self._reads, select.POLLIN, within_s)

    def say(self, line: bytes, *, kept: bool = True) -> None:
        """Have a line sent, by `flush`."""
        self._queue.append((line, kept))
        self.waiting += len(line)
        while self.waiting > self._most_waiting and (old := next((one for one in self._queue if not one[1]), None)):
            self._queue.remove(old)
            self.waiting -= len(old[0])

    def says_already(self, line: bytes) -> bool:
        """Whether the very same words wait, and none of them was taken yet."""
        return any(one == line for one, _ in self._queue)

    def flush(self) -> bool:
        """Hand over what is taken at once; whether that was all."""
        while self.waiting and not self.broken:
            if not self._begun:
                self._begun = self._queue.popleft()[0]
            try:
                taken = self._send(self._begun[:_READ_BYTES])
            except BlockingIOError:
                break
            except OSError:
                self.broken = True
                break
            self._begun = self._begun[taken:]
            self.waiting -= taken
        return not self.waiting

    def deliver(self, within_s: float) -> bool:
        """Hand over what waits, within so many seconds; whether that was all."""
        deadline_s = time.monotonic() + within_s
        while not self.flush() and not self.broken:
            if not _polled(self._writes, select.POLLOUT, deadline_s - time.monotonic()):
                break
        return not self.waiting

    def _send(self, data: bytes) -> int:
        if isinstance(self._writes, socket.socket):  # in somebody's script SIGPIPE may be deadly
            return self._writes.send(data, socket.MSG_NOSIGNAL)
        return os.write(_fileno(self._writes), data)


def _fileno(end: socket.socket | int | None) -> int:
    assert end is not None  # as was said when it was made
    return end if isinstance(end, int) else end.fileno()


def _polled(end: socket.socket | int | None, events: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(_fileno(end), events)
    return bool(poll.poll(1000 * max(0.0, within_s)))
