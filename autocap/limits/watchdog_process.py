"""Where a watchdog's process comes from: what a heartbeat knows of it, and one that is started from nothing."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Protocol

from autocap.job.processes import import_path
from autocap.limits.watchdog import Duty


class WatchdogProcess(Protocol):
    """One watchdog's process, until `close`."""

    @property
    def pid(self) -> int: ...

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so in time; an own child leaves no zombie then."""

    def kill(self) -> None:
        """SIGKILL; nothing where it has ended."""

    def close(self) -> None:
        """Let go of it, whether it lives or not."""


class Spawn(Protocol):
    """Starts a watchdog's process that hears its controller on `beats` and answers on `status`, which stay the
    caller's to close. Raises OSError, ValueError."""

    def __call__(self, duty: Duty, beats: socket.socket, status: int) -> WatchdogProcess: ...


class OwnProcess:
    """A child of ours, of an interpreter of its own."""

    def __init__(self, duty: Duty, beats: socket.socket, status: int) -> None:
        words = ["autocap.limits.watchdog", str(status), *duty.words()]
        self._child = interpreter(*words, stdin=beats.fileno(), pass_fds=(status,))

    @property
    def pid(self) -> int:
        return self._child.pid

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        return self._child.poll() is not None

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        pass


# -I and -S keep the environment, the working directory, .pth files and every sitecustomize (the step hook is one) out
# of it; the path it imports from is the controller's own.
_START = "import sys; n = int(sys.argv[1]); sys.path[:] = sys.argv[2 : 2 + n]; module, *words = sys.argv[2 + n :]; "
_START += "from importlib import import_module; import_module(module).main(words)"


def interpreter(module: str, *words: str, stdin: int, pass_fds: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    """Our own interpreter in a process and a session of its own, where a module's `main` is called with these words.
    Raises OSError, ValueError."""
    path = import_path()
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, str(len(path)), *path, module, *words],
        stdin=stdin,
        stdout=subprocess.DEVNULL,  # whoever reads our output to its end must not wait for the watchdog's
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        cwd=os.sep,
        start_new_session=True,
    )
