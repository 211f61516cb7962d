"""The training command as our child: started, signalled, awaited, its status passed on.

The child leads a session of its own, so the terminal's signals reach it through us alone, in the order in which we
want them, and its process group is the whole job as the terminal would have seen it.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from autocap.errors import TargetError
from autocap.job import own_command
from autocap.job.command_path import diagnosed, executable, is_binary, located, require_named
from autocap.job.keeper import keeper
from autocap.job.processes import identify, status, tree

_SHELL = "/bin/sh"
# Waits until nobody holds the other end of a pipe, so also until we die, and then becomes the command. Python ignores
# two signals that a command expects at their default. before: as `own_command.before`.
_WAITING = """
import errno, os, signal, sys
gate, before, path, *argv = sys.argv[1:]
if before != "-":
    del os.environ["LD_LIBRARY_PATH"]
    os.environ.update({"LD_LIBRARY_PATH": before} if before else {})
os.read(int(gate), 1)
os.close(int(gate))
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execv(path, argv)
except OSError as error:
    if error.errno == errno.ENOEXEC:
        os.execv("/bin/sh", ["/bin/sh", path, *argv[1:]])
    print(f"{ascii(path)}: {error.strerror}", file=sys.stderr)
    sys.exit(126)
"""


class ChildJob:
    """A started command.

    pid: its process number, also that of its session and process group. identity: `None` where /proc hides the
    child (hidepid and a setuid program). Statuses are a shell's: 128 + n for a death by signal n.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self.pid = child.pid
        self.identity = identify(child.pid)  # still ours to see: nobody has reaped it

    def poll(self) -> int | None:
        """The exit status; `None` while the child lives, stopped or not. Reaps it when it has ended."""
        code = self._child.poll()
        return None if code is None else _status(code)

    def wait(self) -> int:
        """The exit status, once there is one."""
        return _status(self._child.wait())

    def forward(self, signum: int, *, from_terminal: bool = False) -> None:
        """Send a signal on: to the job's process group if the terminal sent it, as the terminal would have, else to
        the child alone. Nothing happens after its end. Raises TargetError where the kernel forbids it (a setuid
        child)."""
        if self._child.poll() is not None:
            return  # reaped: the number may be somebody else's by now
        with self._sending(signum):
            if from_terminal:
                os.killpg(self.pid, signum)
            else:
                os.kill(self.pid, signum)

    end = forward

    def kill(self) -> None:
        """SIGKILL to the job's process group. Raises TargetError as `forward` does."""
        self.forward(signal.SIGKILL, from_terminal=True)

    def suspend(self, *, from_terminal: bool = False) -> None:
        """Pass SIGTSTP on, stop ourselves too, and return, with the job continued, when somebody continues us.

        The kernel ignores SIGTSTP in a process group whose leader's parent is in another session, and the child's is
        one, so processes that leave SIGTSTP at its default get SIGSTOP, which is what that default means.
        Put the caps back first. Raises TargetError as `forward` does.
        """
        if self._child.poll() is not None:
            return  # nothing is left to stop, and we are about to end ourselves
        for pid in self._group() if from_terminal else (self.pid,):
            with self._sending(signal.SIGTSTP):
                os.kill(pid, signal.SIGTSTP if _takes(pid, signal.SIGTSTP) else signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.forward(signal.SIGCONT, from_terminal=from_terminal)

    def _group(self) -> tuple[int, ...]:
        if self.identity is None:
            return (self.pid,)
        return tuple(process.pid for process in tree(self.identity) if _group_of(process.pid) == self.pid)

    @contextmanager
    def _sending(self, signum: int) -> Iterator[None]:
        try:
            yield
        except ProcessLookupError:
            pass  # it ended on its own: there is nothing left to tell
        except OSError as error:
            name = signal.Signals(signum).name
            raise TargetError(
                f"{name} could not be passed on to process {self.pid}: {error.strerror}; send it with: "
                f"sudo kill -{name.removeprefix('SIG')} {self.pid}"
            ) from error


def start(command: Sequence[str], env: Mapping[str, str], stdout: int | None = None) -> ChildJob:
    """Start the command in a session of its own; streams and directory are inherited.

    stdout: a descriptor to write to instead of our standard output; the caller closes it afterwards.

    It inherits the calling thread's signal mask: start it inside `SignalClock.lifted()`. Every file descriptor that
    we were given is passed on, as `env` or `nice` would; those that Python opens are not inheritable.

    Raises CommandNotFound or CommandNotExecutable, with the status a shell would give.
    """
    require_named(command)
    environment = own_command.environment_of(env)
    try:
        return ChildJob(_spawn(command, environment, stdout))
    except OSError as error:
        path = located(command[0], environment)
        if error.errno != errno.ENOEXEC or path is None or is_binary(path):
            raise diagnosed(command[0], path, error, under_sudo=keeper() is not None) from error
    try:  # a script without #!, which execvp and shells hand to the shell
        return ChildJob(_spawn((_SHELL, path, *command[1:]), environment, stdout))
    except OSError as error:
        raise diagnosed(_SHELL, _SHELL, error) from error


@contextmanager
def waiting_start(command: Sequence[str], env: Mapping[str, str]) -> Iterator[ChildJob]:
    """The process of a command that is executed when the block is left; until then it waits and has done nothing.

    For what must know the process before the command runs in it. Otherwise as `start`; but what the kernel alone can
    say against executing it is status 126.
    """
    require_named(command)
    environment = own_command.environment_of(env)
    path = executable(command[0], environment, under_sudo=keeper() is not None)
    gate, ours = os.pipe()
    try:
        try:
            os.set_inheritable(gate, True)
            before = own_command.libraries_before()
            waiting = (sys.executable, "-I", "-S", "-c", _WAITING, str(gate), before, path, *command)
            job = ChildJob(_spawn(waiting, {**environment, **own_command.libraries()}, None))
        finally:
            os.close(gate)
        yield job
    finally:
        os.close(ours)


def _spawn(argv: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, env=environment, stdout=stdout, start_new_session=True, close_fds=False)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def _takes(pid: int, signum: int) -> bool:
    """Whether a process catches or ignores a signal, by /proc/PID/status; an unreadable one counts as not."""
    try:
        said = status(pid)
    except OSError:
        return False
    return any(int(said[name], 16) >> (signum - 1) & 1 for name in ("SigCgt", "SigIgn"))


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
