"""One controller a device: an advisory lock on a file that names its holder.

The kernel drops the lock with its holder, however that dies; the file is only the handle, and removed with care.
"""

import fcntl
import os
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from autocap.errors import DeviceLocked, GuardError
from autocap.limits.journal import LOCK, file_name
from autocap.limits.state_dir import StateDir

_RETRY_S = 0.01
_PID_DIGITS = 10  # more than any kernel gives out


class DeviceLock:
    """The lock of one device, held from construction to `release`.

    wait_s: how long to wait for a holder that is about to let go (one that is dying, or that settles an entry).
    Raises DeviceLocked, which names the holder; GuardError where the lock file is not one of ours.
    """

    def __init__(self, state: StateDir, uuid: str, *, wait_s: float = 0.0) -> None:
        self._state = state
        self._name = file_name(uuid, LOCK)
        deadline_s = time.monotonic() + wait_s
        while (fd := self._try()) is None:
            if time.monotonic() >= deadline_s:
                raise DeviceLocked(_whose(uuid, holder_pid(state, uuid)))
            time.sleep(_RETRY_S)
        self._fd = fd
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.release()
            raise GuardError(
                f"the lock of {uuid} cannot be written to {state.path}: {error}; make room there"
            ) from error

    def __enter__(self) -> "DeviceLock":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _try(self) -> int | None:
        """The locked descriptor, or `None` where somebody else holds the lock or the file was removed meanwhile."""
        fd = self._state.open(self._name, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError as error:
            os.close(fd)
            raise GuardError(f"{self._state.path} cannot hold locks ({error}); set AUTOCAP_STATE_DIR") from error
        if not self._state.is_still(self._name, fd):  # its holder removed it between our open and our lock
            os.close(fd)
            return None
        return fd

    def release(self) -> None:
        """Remove the file, then let go: whoever waits on the removed file sees that and begins again."""
        try:
            if self._state.is_still(self._name, self._fd):
                self._state.unlink(self._name)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close the descriptor alone; in a forked child, whose parent goes on holding the lock."""
        os.close(self._fd)


def _whose(uuid: str, pid: int | None) -> str:
    """Who has the device, and what to do. The helper has it for one of its clients, and serves others meanwhile."""
    if pid is not None and _is_helper(pid):
        return (
            f"{uuid} is lent to somebody by the helper (PID {pid}); `autocap helper status` says to whom: wait for "
            "that run, or have it end"
        )
    who = "another autocap" if pid is None else f"autocap with PID {pid}"
    return f"{uuid} is controlled by {who}; wait for it, or end it with SIGTERM"


def _is_helper(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(pair == (b"helper", b"serve") for pair in pairwise(words))
    return False


def holder_pid(state: StateDir, uuid: str) -> int | None:
    """Who wrote itself into the lock file; `None` where nobody did."""
    text = (state.read(file_name(uuid, LOCK)) or b"").strip()
    return int(text) if text.isdigit() and len(text) <= _PID_DIGITS else None
