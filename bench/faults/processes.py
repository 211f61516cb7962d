"""A tuned job between real processes: the job, the controller, its watchdog, above one emulated machine in a file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from autocap.job.processes import ProcessId, identify
from autocap.testing.nvml import FileBoard, environment, machine, plain
from bench.faults.boards import Boards
from bench.faults.outcome import Outcome
from bench.helper.people import Rights
from bench.helper.served import watchdogs_of
from bench.waiting import Late

ARRIVALS_MW = (247_123, 251_007)
LOOK_S = 0.004
_PLAYER = ("-m", "autocap.testing.nvml.player", "--lines")
# Not from the directory it is started in: under sudo that is the user's, and its modules would be root's code.
_AUTOCAP = ("-P", "-m", "autocap")
_SEARCH = ("--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "30%", "--trial-seconds", "3",
           "--no-memory")  # fmt: skip
_PATIENCE_S = 40.0  # for what takes a few seconds on a machine of its own
_CHILD_ENDS_S = 60.0


class Missed(Exception):
    """The job had ended before the fault was injected."""


S = TypeVar("S")


def carried_out(
    inject: Callable[[S, Random, Outcome], Outcome], scene: S, rng: Random, result: Outcome
) -> Outcome | None:
    """What an injection into a scene came to; `None` where the job had ended before. result: so far."""
    try:
        return inject(scene, rng, result)
    except Missed:
        return None
    except Late as error:
        return replace(result, hung=str(error))


class Scene(Boards):
    """One job with its controller, in a folder of its own; a context manager that leaves no process behind.

    iterations: of the job; one takes 0.11 s.
    """

    def __init__(self, folder: Path, iterations: int) -> None:
        self.folder, self.iterations = folder, iterations
        folder.mkdir()
        made = machine("quadro-rtx-6000/alexnet", gpus=2, arrivals_mw=ARRIVALS_MW)
        made = replace(made, sensor="v100", start_s=None, iterations=iterations)
        board = FileBoard.create(folder / "machine.json", made)
        super().__init__([board], ARRIVALS_MW, patience_s=_PATIENCE_S, look_s=LOOK_S)
        self.state_dir = folder / "state"
        self.python, self.rights = sys.executable, Rights()  # of the controller, and of the job unless it has its own
        self.job_python: Sequence[str] = ()
        self.job_rights: Rights | None = None
        # Where a file may hold a few bytes only, a compiled module would be cut short, and every later run would fail.
        own = {"PYTHONDONTWRITEBYTECODE": "1", "AUTOCAP_STATE_DIR": str(self.state_dir), "NO_COLOR": "1"}
        self.env = environment(folder / "machine.json", plain() | own)
        self.controller: subprocess.Popen[bytes] | None = None
        self._own_job: subprocess.Popen[bytes] | None = None
        self._job: ProcessId | None = None  # once it was seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill what is left. A watchdog leaves by itself, with its controller."""
        for process in (self.controller, self._own_job):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        job = self.job
        if job is not None and job.is_alive():
            with suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGKILL)

    # Starting.

    def start(
        self,
        mode: str,
        *words: str,
        prepare: Callable[[], None] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """Start the controller: `attach` to a job that runs already, or `run`, which starts it.

        prepare: called in the controller's process before it is one. command: of `run`, the job
        unless given.
        """
        command = command or (*(self.job_python or [self.python]), *_PLAYER, "--steps")
        out = ("--out", str(self.folder / "run"))
        if mode == "attach":
            self.start_job()
            assert self.job is not None
            argv = ["attach", "--pid", str(self.job.pid), "--progress", "period", *_SEARCH, *out, *words]
        else:
            argv = ["run", "--progress", "steps", "--gpus", "0,1", *_SEARCH, *out, *words, "--", *command]
        with open(self.folder / "out", "ab") as printed, open(self.folder / "err", "ab") as errors:
            self.controller = subprocess.Popen(
                [self.python, *_AUTOCAP, *argv],
                cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=printed, stderr=errors,
                start_new_session=True, preexec_fn=prepare, **self.rights,
            )  # fmt: skip

    def start_job(self) -> None:
        """Start the job by itself, as it runs before `attach`."""
        with open(self.folder / "out", "ab") as printed:
            self._own_job = subprocess.Popen(
                [*(self.job_python or [self.python]), *_PLAYER],
                env=self.env, stdin=subprocess.DEVNULL, stdout=printed, start_new_session=True,
                **(self.rights if self.job_rights is None else self.job_rights),
            )  # fmt: skip
        self.until(self.computes, "the job computes")

    def autocap(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of autocap, to its end."""
        return subprocess.run(
            [self.python, *_AUTOCAP, *words],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip

    # Looking.

    @property
    def job(self) -> ProcessId | None:
        """The process that computes; `None` where there is none yet, or none that was seen before it ended."""
        pid = self.board.read().job_pid
        if self._job is None and pid is not None:
            self._job = identify(pid)
        return self._job

    def computes(self) -> bool:
        return self.job is not None

    def is_capped(self) -> bool:
        """Whether each GPU has a cap of ours."""
        return not set(self.limits_mw()) & set(ARRIVALS_MW)

    def said(self) -> tuple[str, ...]:
        err = self.folder / "err"
        return tuple(err.read_text(errors="replace").splitlines()) if err.exists() else ()

    def leftovers(self) -> list[str]:
        """What lies in the state directory."""
        return sorted(os.listdir(self.state_dir)) if self.state_dir.is_dir() else []

    def done(self) -> int:
        """Iterations that the job has finished."""
        return (self.folder / "out").read_bytes().count(b"iteration ")

    # Waiting.

    def until_capped(self) -> None:
        """Raises Missed where the job ends before, as on a machine that has little time for us."""
        self.until(lambda: self.is_capped() or self.has_ended(), "a cap is set")
        if self.has_ended():
            raise Missed

    def has_ended(self) -> bool:
        return self.controller is not None and self.controller.poll() is not None

    def changes(self, count: int) -> bool:
        """Whether that many limits were set, or nothing more is to come."""
        return len(self.board.read().changes) >= count or self.has_ended()

    def ended_with(self) -> int:
        """The controller's status, once it has ended. Raises Late."""
        self.until(self.has_ended, "the controller ends", _CHILD_ENDS_S)
        assert self.controller is not None
        return self.controller.returncode

    def harm(self) -> str | None:
        """Wait for the job's end; what is wrong with it, `None` also where none was started. Raises Late."""
        if self.board.read().job_pid is None:
            return None
        job = self.job
        self.until(lambda: job is None or not job.is_alive(), "the job ends", _CHILD_ENDS_S)
        if self.done() != self.iterations:
            return f"the job ended after {self.done()} of {self.iterations} iterations"
        status = None if self._own_job is None else self._own_job.wait(_CHILD_ENDS_S)
        return f"the job ended with status {status}" if status else None

    def watchdogs(self) -> Sequence[int]:
        """PIDs of the watchdog of whoever sets limits."""
        return [pid for guard in self.guards() for pid in watchdogs_of(guard)]

    def guards(self) -> Sequence[int]:
        """PIDs of whoever sets limits: the controller."""
        assert self.controller is not None
        return [self.controller.pid]
