"""A job's processes as one thing that uses CPU time and can be stopped and continued. Linux, standard library only."""

import os
import signal
import time
from contextlib import suppress

from autocap.errors import DeviceError
from autocap.job.processes import NO_DESCRIPTORS, ProcessId, identify, spent_ns, status, tree

_SCAN_S = 1.0
_SCAN_SHARE = 0.01  # at most this share of a CPU goes into looking for new processes
_STOP_BIT = 1 << (signal.SIGSTOP - 1)


class _Member:
    """One process, held by a file descriptor where the kernel can, so that a recycled PID is never signalled."""

    def __init__(self, identity: ProcessId) -> None:
        """Raises ProcessLookupError when the process is gone, or its number is another's."""
        self.identity = identity
        self.held = False  # whether it has had a SIGSTOP of ours without a SIGCONT after it
        try:
            self._pidfd: int | None = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            raise
        except (AttributeError, OSError):  # before Linux 5.3, or forbidden in this container
            self._pidfd = None
        if identify(identity.pid) != identity:  # after opening: from here on the descriptor is this very process
            self.close()
            raise ProcessLookupError(identity.pid)
        self._cpu_ns = 0
        self.spent_ns()

    def send(self, signum: int) -> None:
        """Send a signal; nothing happens where the process is gone, or has become another user's."""
        with suppress(ProcessLookupError, PermissionError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signum)
            elif self._is_there(to_go_on=signum == signal.SIGCONT):
                os.kill(self.identity.pid, signum)

    def _is_there(self, *, to_go_on: bool) -> bool:
        """to_go_on: what holds where nobody can tell, because no file can be opened: nothing stays stopped for that."""
        try:
            return self.identity.is_alive()
        except OSError:
            return to_go_on

    def spent_ns(self) -> int:
        """CPU time since the last call."""
        try:
            before_ns, self._cpu_ns = self._cpu_ns, spent_ns(self.identity.pid)
        except OSError:  # gone
            return 0
        return max(0, self._cpu_ns - before_ns)

    def stopped_by_another(self) -> bool:
        """Whether a second stop signal waits in a process that we have stopped: then one of the two is not ours."""
        try:
            said = status(self.identity.pid)
        except OSError:
            return False
        return bool(int(said.get("ShdPnd", "0"), 16) & _STOP_BIT) and said["State"].startswith("T")

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class JobTree:
    """The live processes of a job; new ones are found about once a second."""

    def __init__(self, root: ProcessId) -> None:
        self._root = root
        self._members: dict[ProcessId, _Member] = {}
        self._scan_due_s = 0.0
        self.scan()

    def scan(self) -> None:
        """Look for new processes, and forget those that ended. Not within a stop: it would lengthen it."""
        began_s = time.monotonic()
        live = [identity for identity in tree(self._root) if identity.pid != os.getpid()]
        for identity in self._members.keys() - set(live):
            self._members.pop(identity).close()
        for identity in live:
            if identity not in self._members:
                with suppress(ProcessLookupError):
                    self._members[identity] = _Member(identity)
        ended_s = time.monotonic()
        self._scan_due_s = ended_s + max(_SCAN_S, (ended_s - began_s) / _SCAN_SHARE)

    def scan_if_due(self) -> bool:
        """Scan once a second, or more rarely where it is dear; whether it was done now. Where no file can be opened any
        more, the processes that are known are those that there are, until the next time."""
        if time.monotonic() < self._scan_due_s:
            return False
        try:
            self.scan()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self._scan_due_s = time.monotonic() + _SCAN_S
            return False
        return True

    def spent_s(self) -> float:
        """CPU time that the known processes used since the last call, seconds."""
        return sum(member.spent_ns() for member in self._members.values()) * 1e-9

    def stop(self) -> None:
        """Stop every process, parents before children."""
        for member in self._members.values():
            member.held = True
            member.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue what was stopped here, children before parents, so that no shell finds its child stopped.

        A process that somebody else stopped too, before or since, stays stopped.
        """
        for member in reversed(self._members.values()):
            if member.held:
                if not member.stopped_by_another():
                    member.send(signal.SIGCONT)
                member.held = False

    def close(self) -> None:
        """Continue what is stopped and forget the processes."""
        self.resume()
        for member in self._members.values():
            member.close()
        self._members = {}


def continue_tree(root: ProcessId) -> None:
    """Send SIGCONT to every process of a job, whoever stopped it."""
    for identity in reversed(tree(root)):
        with suppress(ProcessLookupError):
            member = _Member(identity)
            member.send(signal.SIGCONT)
            member.close()


def require_own(root: ProcessId, uid: int | None = None) -> None:
    """Raises DeviceError unless every process of a job may be stopped by us, and we are not part of it.

    uid: whose they must be; `None` for ours, or anybody's where we are root.
    """
    own_uid = os.getuid() if uid is None else uid
    for_root = uid is None and own_uid == 0
    for identity in tree(root):
        if identity.pid == os.getpid():
            raise DeviceError(
                f"autocap (PID {os.getpid()}) belongs to the job of PID {root.pid}, which it would have to stop; "
                "start it outside the job"
            )
        owner = _real_uid(identity.pid)
        if owner is not None and not for_root and own_uid != owner:
            raise DeviceError(
                f"PID {identity.pid} of the job belongs to user {owner}, autocap runs as user {own_uid}; the emulated "
                "device slows only processes of its own user: run autocap as the job's user"
            )


def _real_uid(pid: int) -> int | None:
    try:
        return int(status(pid)["Uid"].split()[0])
    except OSError:  # gone meanwhile
        return None
