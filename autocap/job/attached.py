"""A process that runs already, as the job to tune: followed by identity, never signalled, left alone at the end."""

import errno
import os
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from autocap.errors import TargetError
from autocap.job import processes

_PROC = Path("/proc")


class FollowedJob(ABC):
    """A job that somebody else has started: it is left, and not ended. command: its command line. left_because: why we
    left it before its end, or `None`."""

    pid: int
    identity: processes.ProcessId
    command: tuple[str, ...]

    def __init__(self) -> None:
        self.left_because: str | None = None

    @abstractmethod
    def poll(self) -> int | None:
        """0 once it has ended or was left; `None` until then."""

    def forward(self, signum: int, *, from_terminal: bool = False) -> None:  # noqa: B027 - not to be overridden
        """Signals to us are not the job's."""

    def end(self, signum: int, *, from_terminal: bool = False) -> None:
        """Follow the process no more."""
        self.left_because = f"{signal.Signals(signum).name} ended autocap, the job goes on"

    def kill(self) -> None:
        """What kills a child only has us leave a job that is not ours."""
        self.end(signal.SIGINT)

    def suspend(self, *, from_terminal: bool = False) -> None:
        """Stop ourselves alone, and return when somebody continues us. Put the caps back first."""
        os.kill(os.getpid(), signal.SIGSTOP)


class AttachedJob(FollowedJob):
    """The process that was attached to, and with it all its descendants.

    pid, identity: the process. command: its command line.
    Held by a pidfd where the kernel has it, so that a recycled PID is never mistaken for the job. Raises TargetError
    where there is no such process, where it cannot be seen, and where it is no process to tune.
    """

    def __init__(self, pid: int) -> None:
        super().__init__()
        if pid == os.getpid():
            raise TargetError(f"process {pid} is this autocap itself; pass the PID of the training job")
        self._pidfd = _open(pid)
        identity = processes.identify(pid)  # after opening: from here on the descriptor is this very process
        if identity is None:
            self.close()
            raise _not_there(pid)
        self.pid, self.identity = pid, identity
        if (leader := _leader_of(pid)) != pid:
            self.close()
            raise TargetError(f"{pid} is a thread of process {leader}; pass --pid {leader}")
        if self._has_ended():
            self.close()
            raise TargetError(f"process {pid} has ended already; only its parent has not noticed yet")
        self.command = _command(pid)

    def __enter__(self) -> "AttachedJob":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def poll(self) -> int | None:
        """0 once the process has ended or was left; `None` until then. Its own exit status is its parent's to know."""
        return 0 if self.left_because is not None or self._has_ended() else None

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _has_ended(self) -> bool:
        if self._pidfd is None:
            try:
                return not self.identity.is_alive()
            except OSError:  # no file can be opened, so nobody can tell: it is asked again
                return False
        return processes.has_ended(self._pidfd)


def _open(pid: int) -> int | None:
    """A pidfd; `None` before Linux 5.3, where a container forbids it, and for what is no process."""
    with suppress(AttributeError, OSError, OverflowError):
        return os.pidfd_open(pid)
    return None


def _not_there(pid: int) -> TargetError:
    try:
        os.kill(pid, 0)  # sends nothing, only asks
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return TargetError(f"there is no process {pid}; look the job's PID up with: ps -ef")
    except OSError as error:
        return TargetError(f"process {pid} cannot be looked at: {errno.errorcode.get(error.errno or 0)}")
    return TargetError(f"process {pid} belongs to another user and /proc hides it; run autocap as that user")


def _leader_of(pid: int) -> int:
    """The process that a number stands for: /proc knows threads by number as well."""
    with suppress(OSError):  # it has just ended, which the next look at it says
        return int(processes.status(pid).get("Tgid", pid))
    return pid


def _command(pid: int) -> tuple[str, ...]:
    """The command line; the name in brackets, as ps shows it, where there is none."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if words != [b""]:
            return tuple(word.decode(errors="replace") for word in words)
        return (f"[{(_PROC / str(pid) / 'comm').read_text().strip()}]",)
    except OSError:
        return ()
