"""The shared file in which the relay process publishes what it has counted."""

import fcntl
import os
import struct
from typing import Self


class Board:
    """The shared file. The relay process publishes in it, and we read.

    The check word is the safety of the reader: what it catches in the middle of a write fails it.
    """

    _SLOT = struct.Struct("@QQQQ")  # count, CLOCK_MONOTONIC when it was reached (ns; 0: never), state, check word
    _SALT = 0x6175746F63617031
    STARTING, COUNTING, GAVE_UP = 0, 1, 2

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._last = (0, 0, self.STARTING)

    @classmethod
    def create(cls) -> Self:
        """Raises OSError."""
        fd = os.memfd_create("autocap-relay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.pwrite(fd, bytes(cls._SLOT.size), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return cls(fd)

    def publish(self, count: int | None, t_ns: int) -> None:
        """Say that the counting is at that count, `None` before the first; t_ns: since when, where it is a new one."""
        before, before_ns, _ = self._last
        if count is None or (count == before and before_ns):
            count, t_ns = before, before_ns
        self._write(count, t_ns, self.COUNTING)

    def give_up(self) -> None:
        """Say that nothing is counted any more."""
        self._write(*self._last[:2], self.GAVE_UP)

    def _write(self, count: int, t_ns: int, state: int) -> None:
        if (count, t_ns, state) != self._last:
            os.pwrite(self.fd, self._SLOT.pack(count, t_ns, state, count ^ t_ns ^ state ^ self._SALT), 0)
            self._last = count, t_ns, state

    def read(self) -> tuple[int, int, int]:
        """Count, nanoseconds (0: nothing counted yet) and state, as last read whole."""
        count, t_ns, state, check = self._SLOT.unpack(os.pread(self.fd, self._SLOT.size, 0))
        if check == count ^ t_ns ^ state ^ self._SALT:
            self._last = count, t_ns, state
        return self._last
