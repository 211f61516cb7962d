"""Users who take up the connections of a service."""

import os
import signal
from pathlib import Path

from autocap.wire.stream import dialled
from bench.helper import people


class Crowd:
    """A process of a user that opens connections and says nothing on them, or asks something on the last one."""

    def __init__(self, uid: int, path: Path, count: int, ask: bytes = b"") -> None:
        self._reader, writer = os.pipe()
        self.pid = people.forked(uid, lambda: self._act(path, count, ask, writer))
        os.close(writer)

    def ready(self) -> bool:
        """Whether it has what it wanted, once it knows."""
        return os.read(self._reader, 1) == b"+"

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._reader)

    def _act(self, path: Path, count: int, ask: bytes, writer: int) -> None:
        there = [dialled(path, 5.0) for _ in range(count)]
        if ask:
            there[-1].sendall(ask)
            os.write(writer, b"+" if b'"id":1' in there[-1].recv(4096) else b"-")
        else:
            os.write(writer, b"+")
        signal.pause()
