"""Standard error, written by a thread of its own: whoever says something does not wait until it is read."""

import io
import os
import select
import threading
import time
from collections import deque
from typing import TextIO

from autocap.job.signals import deaf
from autocap.text import PREFIX, beneath

_ROOM_BYTES = 1 << 20  # a pipe holds a sixteenth of it
_MOMENT_S = 0.2


class QueuedStream(io.TextIOBase):
    """Takes text at once and writes it to a descriptor later. What finds no room is dropped, in whole lines, and once
    there is room a line says how many.

    The descriptor stays as it is, blocking: the job has it too. The thread is there from the start, and no signal
    reaches it. Raises RuntimeError where there can be no thread.
    """

    def __init__(self, fd: int, encoding: str, *, room_bytes: int = _ROOM_BYTES) -> None:
        self._fd, self._encoding, self._room_bytes = fd, encoding, room_bytes
        self._begun = ""  # a line, or what draws on a terminal, until it is whole
        self._waiting: deque[bytes] = deque()
        self._held_bytes = 0  # of what waits and what is being written
        self._dropped = 0  # lines, since the last that found room
        self._ended = False
        self._changed = threading.Condition()
        with deaf():
            threading.Thread(target=self._write_all, name="stderr", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there, which is not to be set
        return self._encoding

    def write(self, text: str) -> int:
        with self._changed:
            self._begun += text
            if "\n" in text or len(self._begun) > self._room_bytes:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """What was begun is whole."""
        with self._changed:
            begun, self._begun = self._begun, ""
            if not begun:
                return
            self._say_dropped()
            if not self._put(begun):
                self._dropped += begun.count("\n")
                self._changed.notify_all()

    def drain(self, patience_s: float) -> bool:
        """Wait until all is written, but not for longer than that; whether it is."""
        self.flush()
        deadline_s = time.monotonic() + patience_s
        with self._changed:
            while (self._held_bytes or self._dropped) and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return not self._held_bytes

    def end(self, patience_s: float) -> None:
        """The same, and the thread ends, unless it waits for a reader: then it ends with us."""
        self.drain(patience_s)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def _put(self, text: str) -> bool:
        """Whether there was room for it."""
        data = text.encode(self._encoding, "backslashreplace")
        if self._held_bytes + len(data) > self._room_bytes:
            return False
        self._waiting.append(data)
        self._held_bytes += len(data)
        self._changed.notify_all()
        return True

    def _say_dropped(self) -> None:
        if self._dropped:
            what = "1 line was" if self._dropped == 1 else f"{self._dropped} lines were"
            if self._put(f"{PREFIX}{what} dropped, stderr was not read\n"):
                self._dropped = 0

    def _write_all(self) -> None:
        while (data := self._next()) is not None:
            self._write(data)
            with self._changed:
                self._held_bytes -= len(data)
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        with self._changed:
            while True:
                if self._waiting:
                    return self._waiting.popleft()
                self._say_dropped()
                if self._waiting:
                    continue
                if self._ended:
                    return None
                self._changed.wait()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # somebody who shares it made it so
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()
            except OSError:  # the terminal or pipe has gone, or a disk is full; the run directory has it all
                return


def settle(stream: TextIO) -> None:
    """Give what was said a moment to be written, before somebody else has the terminal or we are stopped."""
    queue = beneath(stream)
    if isinstance(queue, QueuedStream):
        queue.drain(_MOMENT_S)
