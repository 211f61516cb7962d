"""Three users who take up and storm the connections of a service, while others want to be served by it."""

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from bench.helper.people import USER, forked

UIDS = (USER, USER + 1, USER + 2)
IDLE, STORMING = 300, 100  # connections of all together
_READY_S = 10.0


class Crowd:
    """A context manager; on entering, all are at it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pids: list[int] = []

    def __enter__(self) -> "Crowd":
        for uid in UIDS:
            self._pids.append(forked(uid, lambda: idle(self._path, IDLE // len(UIDS))))
            self._pids.append(forked(uid, lambda: storm(self._path, STORMING // len(UIDS) + 1)))
        time.sleep(1.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def idle(path: Path, count: int) -> None:
    """Have so many connections, say nothing on them, and replace those that are closed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    there: list[socket.socket] = []
    while True:
        while len(there) < count:
            with suppress(OSError):
                there.append(_connected(path))
        time.sleep(0.05)
        there = [one for one in there if _is_open(one)]


def storm(path: Path, count: int) -> None:
    """Connect all the time, with so many connections open at once."""
    there: list[socket.socket] = []
    while True:
        with suppress(OSError):
            there.append(_connected(path))
        if len(there) >= count:
            there.pop(0).close()


def _connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


def _is_open(one: socket.socket) -> bool:
    try:
        if one.recv(4096):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    one.close()
    return False


def answered(ask: Callable[[], object], for_s: float) -> list[float]:
    """Seconds that each of many questions took, one after the other for so long. A refusal is infinitely long."""
    found = []
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        try:
            ask()
        except Exception:  # noqa: BLE001 - whatever it is, there was no answer
            found.append(float("inf"))
        else:
            found.append(time.monotonic() - began_s)
        time.sleep(0.05)
    return found
