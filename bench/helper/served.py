"""A helper in a process of its own, started again by a supervisor that holds its socket, as systemd does."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.testing.nvml import FileBoard, environment, plain
from autocap.testing.nvml.board import requested_mw
from bench.helper.people import GROUP

_AGAIN_S = 0.1  # until it is started again; systemd's own RestartSec
_READY_S = 20.0
_FIRST_FD = 3
_NICE = -10  # as the unit has it
# LISTEN_PID is that of the process that is to have the socket, which a shell becomes.
_HAND_OVER = ("/bin/sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh")
OPEN_BOUNDS = (sys.executable, "-P", "-m", "bench.helper.serve")
_FORK_SERVER = b"autocap.limits.fork_server"
KEEPER = b"autocap.limits.keeper.process"
USUAL = (sys.executable, "-P", "-m", "autocap", "helper", "serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """descriptors: open. threads: of the process. rss_mb: resident, megabytes. watchdogs: their PIDs."""

    descriptors: int
    threads: int
    rss_mb: float
    watchdogs: tuple[int, ...]


class Served:
    """A context manager. folder: gets the state directory, the socket, the log and the policy; users may enter it.
    machine_file: of the emulated machine, in a folder of its own, in which users play its jobs. policy: text of the
    administrator's file. command: what serves; `OPEN_BOUNDS` or `USUAL`. supervised: it is started again when it has
    died.
    """

    def __init__(
        self,
        folder: Path,
        machine_file: Path,
        *,
        policy: str | None = None,
        command: Sequence[str] = USUAL,
        supervised: bool = True,
    ) -> None:
        self.folder, self._command, self._supervised = folder, command, supervised
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        self.board = FileBoard(machine_file)
        machine_file.parent.chmod(0o777)
        machine_file.with_suffix(".lock").touch()
        machine_file.with_suffix(".lock").chmod(0o666)
        self.state_dir, self.socket, self.log_file = folder / "state", folder / "socket", folder / "log"
        self.policy = folder / "policy.toml" if policy is not None else None
        if self.policy is not None and policy is not None:
            self.policy.write_text(policy)
            self.policy.chmod(0o644)
        own = {"PYTHONDONTWRITEBYTECODE": "1", "AUTOCAP_HELPER": str(self.socket)}
        self.env = environment(machine_file, plain() | own)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ending = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self) -> "Served":
        self._listener.bind(str(self.socket))
        if os.geteuid() == 0:
            os.chown(self.socket, 0, GROUP)
        self.socket.chmod(0o660)
        self._listener.listen(128)
        self._supervisor.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._ending.set()
        deadline_s, told = time.monotonic() + _READY_S, None
        while self._supervisor.is_alive() and time.monotonic() < deadline_s:
            if self._process is not told:  # once each, as the supervisor may just have started another
                told = self._process
                with suppress(ProcessLookupError):
                    self.signal(signal.SIGCONT)
                    self.signal(signal.SIGTERM)
            self._supervisor.join(0.02)
        self._listener.close()

    @property
    def pid(self) -> int:
        """Of the helper that serves at the moment, or did last."""
        while self._process is None:
            time.sleep(0.005)
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is None or self._process.poll() is None

    def signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def log(self) -> tuple[str, ...]:
        return tuple(self.log_file.read_text(errors="backslashreplace").splitlines()) if self.log_file.exists() else ()

    def vitals(self) -> Vitals:
        """Raises OSError where it has ended."""
        process = Path(f"/proc/{self.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Vitals(
            descriptors=len(os.listdir(process / "fd")),
            threads=int(status["Threads"]),
            rss_mb=int(status["VmRSS"].split()[0]) / 1024,
            watchdogs=watchdogs_of(self.pid),
        )

    def limits_mw(self) -> tuple[int, ...]:
        return self.board.limits_mw()

    def back_after_s(self, gpu: int, since_s: float, found_mw: int) -> float | None:
        """Seconds from a moment of the machine's time until a limit was back, 0 where it was there; `None` where it was
        not since. What comes later does not count: a client may set its caps again."""
        state = self.board.read()
        if requested_mw(state, gpu, since_s) == found_mw:
            return 0.0
        times = (one.t_s for one in state.changes if one.gpu == gpu and one.t_s > since_s and one.limit_mw == found_mw)
        return next((t_s - since_s for t_s in times), None)

    def _supervise(self) -> None:
        while not self._ending.is_set():
            with open(self.log_file, "ab") as log:
                self._process = subprocess.Popen(
                    [*_HAND_OVER, *self._command, *self._words()],
                    env={**self.env, "AUTOCAP_STATE_DIR": str(self.state_dir)}, cwd="/",
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True, preexec_fn=self._hand_over, close_fds=False,
                )  # fmt: skip
            self.starts += 1
            self._process.wait()
            if not self._supervised:
                return
            self._ending.wait(_AGAIN_S)

    def _hand_over(self) -> None:
        """In the child: the socket where systemd puts it, and nothing else."""
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        os.dup2(self._listener.fileno(), _FIRST_FD)
        os.closerange(_FIRST_FD + 1, 4096)

    def _words(self) -> list[str]:
        if self._command is OPEN_BOUNDS:
            return [str(self.state_dir), *((str(self.policy),) if self.policy else ())]
        return ["--policy", str(self.policy)] if self.policy else []


def watchdogs_of(pid: int) -> tuple[int, ...]:
    """The watchdog processes that a process has started, or had forked."""
    own = _children(pid, b"autocap.limits.watchdog") + _children(pid, KEEPER)  # a keeper forks its own
    return (*own, *(child for server in fork_servers_of(pid) for child in _children(server, _FORK_SERVER)))


def fork_servers_of(pid: int) -> tuple[int, ...]:
    """The processes that fork watchdogs for a process."""
    return tuple(_children(pid, _FORK_SERVER))


def _children(pid: int, word: bytes) -> list[int]:
    """Those that have a word on their command line."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                with suppress(OSError):
                    if word in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(child)
    return found
