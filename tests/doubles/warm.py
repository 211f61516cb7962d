"""Python processes that begin with autocap imported: forks of one that waits, the same for all tests of a worker.

An interpreter that imports what a session needs computes for half a second before it does anything; such a fork begins
at once. It is a process like any other: it has a PID of its own, the streams, the directory and the environment that it
is given, signals do to it what they do to any, it ends as any interpreter does, and is a zombie until it is waited for.
Only its parent, its command line and what it does of signals from its start are those of the process that waits. How
autocap starts from nothing is seen where tests use `subprocess`.
"""

import atexit
import gc
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO

IMPORTED = (
    "autocap.cli.run", "autocap.cli.settings", "autocap.devices.emulated.device",
    "autocap.devices.nvml", "autocap.reports.html", "autocap.session.modes", "autocap.strategies.model",
    "autocap.sweep.session", "autocap.testing.nvml.install",
)  # fmt: skip
_ROOT = str(Path(__file__).resolve().parents[2])
WAITING: set[int] = set()  # the PIDs of those that wait
_REQUEST_BYTES, _NUMBER_BYTES = 1 << 17, 16


class WarmProcess:
    """What `subprocess.Popen` is to a process: the same names mean the same. stdout, stderr: where they are read."""

    def __init__(
        self, argv: Sequence[str], conversation: socket.socket, stdout: IO[str] | None, stderr: IO[str] | None
    ) -> None:
        self._nursery = conversation
        self.args, self.stdout, self.stderr = argv, stdout, stderr
        self.pid = int(conversation.recv(_NUMBER_BYTES))
        self.returncode: int | None = None

    def __enter__(self) -> "WarmProcess":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in filter(None, (self.stdout, self.stderr)):
            stream.close()
        self.wait()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._nursery], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._nursery.recv(_NUMBER_BYTES))
            self._nursery.shutdown(socket.SHUT_WR)  # it may be buried,
            assert self._nursery.recv(1) == b""  # and has been
            self._nursery.close()
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | str = _ROOT,
    stdout: int = 1,
    stderr: int = 2,
    start_new_session: bool = False,
) -> WarmProcess:
    """What `Popen` does with text, for `[PREFIX] python -m MODULE …` and `[PREFIX] python -c CODE …`. A prefix, such as
    one that becomes another user, has a process that waits of its own. There is nothing on its standard input."""
    at = argv.index(sys.executable)
    program = Program(tuple(argv[at + 1 :]), str(cwd), dict(env), start_new_session)
    conversation, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, ExitStack() as stack:
        streams = [_stream(given, stack) for given in (subprocess.DEVNULL, stdout, stderr)]
        fds = [*(writing for _, writing in streams), its.fileno()]
        socket.send_fds(_waiting(tuple(argv[:at])), [pickle.dumps(program)], fds)
    return WarmProcess(argv, conversation, *(reading for reading, _ in streams[1:]))


def run(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | str = _ROOT, timeout: float = 60.0
) -> "subprocess.CompletedProcess[str]":
    """What `subprocess.run` does where it captures text; here it goes to files."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        made = start(argv, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno())
        try:
            status = made.wait(timeout)
        finally:
            made.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(argv, status, out.read(), err.read())


def _stream(given: int, stack: ExitStack) -> tuple[IO[str] | None, int]:
    """Where it is read, and what the process is to have."""
    reading = None
    if given == subprocess.PIPE:
        read, writing = os.pipe()
        reading = os.fdopen(read)
    else:
        writing = os.open(os.devnull, os.O_RDWR) if given == subprocess.DEVNULL else os.dup(given)
    stack.callback(os.close, writing)
    return reading, writing


@cache
def _waiting(prefix: tuple[str, ...]) -> socket.socket:
    """Where a process that waits is asked for others; it ends when nobody holds this end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        words, nothing = [*prefix, sys.executable, "-m", __name__, str(its.fileno())], subprocess.DEVNULL
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(words, cwd=_ROOT, env=env, pass_fds=[its.fileno()], stdin=nothing, stdout=nothing)
    WAITING.add(process.pid)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


@dataclass(frozen=True)
class Program:
    """What a fork is to be. words: those behind `python`."""

    words: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    new_session: bool

    def run(self) -> None:
        """In the fork, for good."""
        from autocap.testing.nvml.install import STATE_VARIABLE, install

        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        if self.new_session:
            os.setsid()
        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.env)
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.path[:] = [self.cwd, *given, *sys.path]
        if STATE_VARIABLE in os.environ:
            install(sys.modules["pynvml"])
        how, what, *rest = self.words
        sys.orig_argv, sys.argv = [sys.executable, *self.words], [how, *rest]
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(main))


class Nursery:
    """The process that waits. asked: where it is asked for others."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked, self._events = asked, select.poll()
        self._events.register(asked, select.POLLIN)
        self._living: dict[int, tuple[int, int]] = {}  # by a descriptor of the process: its PID, and whom to tell
        self._dead: dict[int, int] = {}  # by who was told: the PID

    def serve(self) -> Program | None:
        """What to be, in each fork; `None` when nobody asks any more."""
        while True:
            for fd, _ in self._events.poll():
                if fd in self._living:
                    self._tell(fd)
                elif fd in self._dead:
                    self._bury(fd)
                else:
                    message, given, _, _ = socket.recv_fds(self._asked, _REQUEST_BYTES, 4)
                    if not message:
                        return None
                    if self._fork(given):
                        program: Program = pickle.loads(message)
                        return program

    def _fork(self, given: list[int]) -> bool:
        """Whether this is the fork. given: its three streams, and who is told of it."""
        pid = os.fork()
        if pid == 0:
            for fd, stream in enumerate(given[:3]):
                os.dup2(stream, fd)
            self._asked.close()
            for fd in (*self._living, *(tells for _, tells in self._living.values()), *self._dead, *given):
                os.close(fd)
            return True
        *streams, tells = given
        for stream in streams:
            os.close(stream)
        os.write(tells, str(pid).encode())
        pidfd = os.pidfd_open(pid)
        self._living[pidfd] = (pid, tells)
        self._events.register(pidfd, select.POLLIN)
        return False

    def _tell(self, pidfd: int) -> None:
        """That a process has ended. It stays as a zombie until that was heard."""
        pid, tells = self._living.pop(pidfd)
        self._events.unregister(pidfd)
        os.close(pidfd)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with suppress(BrokenPipeError):
            os.write(tells, str(status).encode())
        self._dead[tells] = pid
        self._events.register(tells, select.POLLIN)

    def _bury(self, tells: int) -> None:
        os.waitpid(self._dead.pop(tells), 0)
        self._events.unregister(tells)
        os.close(tells)


def main(fd: int) -> None:
    for name in IMPORTED:
        import_module(name)
    sys.path.remove(_ROOT)  # a fork has the places of its own environment
    gc.freeze()  # what is never looked through stays shared with every fork
    program = Nursery(socket.socket(fileno=fd)).serve()
    if program is not None:
        program.run()


if __name__ == "__main__":
    import_module("tests.doubles.warm").main(int(sys.argv[1]))  # the module that tests import, by which they ask
