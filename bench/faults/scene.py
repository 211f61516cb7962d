"""A tuned job between real processes: the job, the controller, its watchdog, above one emulated machine in a file; when
a fault of it happens, and what must come of it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Protocol, Self, TypeVar

from autocap.job.processes import ProcessId, identify
from autocap.testing.nvml import FileBoard, environment, machine, plain
from autocap.testing.nvml.board import timeline
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.physics import Physics
from bench import common
from bench.common import Late
from bench.faults.outcome import Outcome, difference, silence
from bench.helper.people import Rights
from bench.helper.served import watchdogs_of


class Boards:
    """The machines, for those who start the processes. boards: in their order. found_mw: the limits found, of all cards
    in theirs. patience_s, look_s: how long something is awaited, and how often it is looked at meanwhile."""

    def __init__(
        self, boards: Sequence[FileBoard], found_mw: Sequence[int], *, patience_s: float, look_s: float = common.LOOK_S
    ) -> None:
        self.boards, self.found_mw = boards, tuple(found_mw)
        self._patience_s, self._look_s = patience_s, look_s

    @property
    def board(self) -> FileBoard:
        """The first one, of which there may be no other."""
        return self.boards[0]

    @cached_property
    def _physics(self) -> list[Physics]:
        return [Physics(shared_clock(board)) for board in self.boards]

    def now_s(self) -> float:
        """By the clock of the boards."""
        return self.board.now_s()

    def limits_mw(self) -> tuple[int, ...]:
        return tuple(limit_mw for board in self.boards for limit_mw in board.limits_mw())

    def are_back(self) -> bool:
        """Whether all limits are as they were found."""
        return self.limits_mw() == self.found_mw

    def is_within(self, watts: float) -> bool:
        """Whether all limits together are within a budget."""
        return sum(self.limits_mw()) <= 1000 * watts

    def power_w(self) -> float:
        """What all cards draw, by the boards' own sensors."""
        for board, physics in zip(self.boards, self._physics, strict=True):
            physics.sync(board.read())
        return sum(physics.power_w() for physics in self._physics)

    def above(self, watts: float, from_s: float, to_s: float) -> float:
        """The longest time without a break in which all limits together exceeded a budget, seconds."""
        limits = list(self.found_mw)
        firsts = accumulate((len(board.read().machine.cards) for board in self.boards), initial=0)
        changes = sorted(
            (change.t_s, first + change.gpu, change.limit_mw)
            for board, first in zip(self.boards, firsts, strict=False)
            for change in timeline(board.read())
            if change.t_s <= to_s
        )
        longest_s, began_s = 0.0, None
        for (t_s, gpu, limit_mw), next_s in zip(changes, [*(one[0] for one in changes[1:]), to_s], strict=True):
            limits[gpu] = limit_mw
            if sum(limits) <= 1000 * watts:
                began_s = None
            elif next_s > from_s:
                began_s = max(t_s, from_s) if began_s is None else began_s
                longest_s = max(longest_s, next_s - began_s)
        return longest_s

    def until(self, condition: Callable[[], object], what: str, within_s: float | None = None) -> float:
        """Seconds until it holds. Raises Late."""
        return common.until(condition, what, self._patience_s if within_s is None else within_s, self._look_s)


ARRIVALS_MW = (247_123, 251_007)
LOOK_S = 0.004
LOOKED_AT_S = 0.05  # the emulated call that puts a limit back takes 13 ms a GPU, a look at the machine 4 ms
ITERATIONS = 300  # of a job, 0.11 s each
_PLAYER = ("-m", "autocap.testing.nvml.player", "--lines")
# Not from the directory it is started in: under sudo that is the user's, and its modules would be root's code.
_AUTOCAP = ("-P", "-m", "autocap")
_SEARCH = ("--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "30%", "--trial-seconds", "3",
           "--no-memory")  # fmt: skip
_PATIENCE_S = 40.0  # for what takes a few seconds on a machine of its own
_CHILD_ENDS_S = 60.0


class Missed(Exception):
    """The job had ended before the fault was injected."""


class Injected(Protocol):
    """What faults are injected into: a context manager that leaves no process behind."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def told(self, result: Outcome) -> Outcome:
        """What came of an injection, with what was said and seen at its end."""


S = TypeVar("S", bound=Injected)
Inject = Callable[[S, Random, Outcome], Outcome]


def inject_into(inject: Inject[S], kind: str, seed: int, scene_in: Callable[[Path], S]) -> Outcome | None:
    """The outcome of one injection into a scene of its own; `None` where the job had ended before. scene_in: makes it,
    in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="autocap-faults-") as name:
        Path(name).chmod(0o755)
        with scene_in(Path(name)) as scene:
            result = Outcome(kind=kind, seed=seed)
            try:
                result = inject(scene, Random(f"{kind} {seed}"), result)
            except Missed:
                return None
            except Late as error:
                result = replace(result, hung=str(error))
            return scene.told(result)


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
        self._controller: subprocess.Popen[bytes] | None = None
        self._own_job: subprocess.Popen[bytes] | None = None
        self._job: ProcessId | None = None  # once it was seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def told(self, result: Outcome) -> Outcome:
        return replace(result, said=self.said())

    def close(self) -> None:
        """Kill what is left. A watchdog leaves by itself, with its controller."""
        for process in (self._controller, self._own_job):
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
            self._controller = subprocess.Popen(
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

    def capped(self, rng: Random, most_s: float = 1.5, mode: str | None = None) -> "subprocess.Popen[bytes]":
        """Start tuning, and return up to so long after caps were set; the controller. Raises Missed."""
        self.start(mode or rng.choice(("run", "attach")))
        self.until_capped()
        time.sleep(rng.uniform(0.0, most_s))
        return self.controller

    def become(self, **changes: object) -> None:
        """Let the machine be another from now on."""
        self.board.update(lambda state: replace(state, machine=replace(state.machine, **changes)))  # type: ignore[arg-type]

    # Looking.

    @property
    def controller(self) -> "subprocess.Popen[bytes]":
        """Which was started."""
        assert self._controller is not None
        return self._controller

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
        return self._controller is not None and self._controller.poll() is not None

    def changes(self, count: int) -> bool:
        """Whether that many limits were set, or nothing more is to come."""
        return len(self.board.read().changes) >= count or self.has_ended()

    def ended_with(self) -> int:
        """The controller's status, once it has ended. Raises Late."""
        self.until(self.has_ended, "the controller ends", _CHILD_ENDS_S)
        return self.controller.returncode

    def failure(self, *right: int, what: str = "autocap") -> str | None:
        """Once the controller has ended: that its status is none of the right ones. Raises Late."""
        status = self.ended_with()
        return None if status in right else f"{what} ended with {status}"

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
        return [self.controller.pid]


BACK_WITHIN_S, HUNG_BACK_WITHIN_S = 1.0, 2.0  # guarantee 1 of the contract
LATEST_S = 18.0  # of a random moment; the first cap is set after 7 to 11 s
CHANGES = 12  # limits that a controller sets in that time


def random_moment(scene: Scene, rng: Random, after_s: float = 0.0) -> None:
    """Some time after the start; or right after one of the limits was set, also in the middle of the next."""
    if rng.random() < 0.5:
        time.sleep(rng.uniform(after_s, LATEST_S))
    else:
        count = rng.randint(1, CHANGES)
        scene.until(lambda: scene.changes(count), f"limit {count} is set")
        time.sleep(rng.uniform(0.0, 0.06))


def send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def kill(scene: Scene, result: Outcome) -> Outcome:
    """SIGKILL to the controller, and what must come of it."""
    scene.controller.kill()
    scene.controller.wait()
    changed, back_s = put_back(scene, within_s=BACK_WITHIN_S)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def put_back(scene: Scene, within_s: float) -> tuple[str | None, float | None]:
    """What is wrong with how the limits come back from now on, and the seconds it takes; `None` for either where they
    are there already, or never come."""
    began_s = time.monotonic()
    if scene.are_back():
        return None, None
    try:
        scene.until(scene.are_back, "the limits are back", 10.0)
    except Late:
        return difference(ARRIVALS_MW, scene.limits_mw()), None
    back_s = time.monotonic() - began_s
    return (f"back only after {back_s:.2f} s" if back_s > within_s else None), back_s


def ended(
    scene: Scene, result: Outcome, pattern: str | None = None, expected: tuple[int, ...] = ARRIVALS_MW
) -> Outcome:
    """The job goes on to its end, and the limits stay."""
    harmed = scene.harm()
    with_message = silence(scene.said(), pattern)
    changed = result.changed or difference(expected, scene.limits_mw())
    try:
        scene.until(lambda: not scene.leftovers(), "the journal is empty", 5.0)
    except Late:
        changed = changed or f"the journal still holds {', '.join(scene.leftovers())}"
    return replace(result, harmed=result.harmed or harmed, silent=with_message, changed=changed)
