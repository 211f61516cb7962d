"""A budget between real processes: four jobs on eight emulated GPUs, a manager with its supervisor, perhaps a tuner."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from autocap.errors import AutocapError
from autocap.job.processes import identify
from autocap.plugins.fleet.budget.calling import SOCKET, call
from autocap.plugins.fleet.budget.words import Ask, Change, Done, Standing
from bench.faults.processes import Late
from bench.nvml_emulation import FileBoard, environment, machine
from bench.nvml_emulation.board import timeline
from bench.nvml_emulation.install import shared_clock
from bench.nvml_emulation.physics import Physics

ARRIVALS_MW = (247_123, 251_007, 260_000, 260_000, 233_333, 233_333, 259_001, 240_500)
JOBS = (("0,1", "quadro-rtx-6000/resnet50"), ("2,3", "quadro-rtx-6000/alexnet"),
        ("4,5", "quadro-rtx-6000/resnet50"), ("6,7", "quadro-rtx-6000/vgg19"))  # fmt: skip
BUDGET_W, LESS_W = 1600.0, 1200.0
LOOK_S = 0.01
_PATIENCE_S = 60.0
_AUTOCAP = ("-P", "-m", "autocap")
_PLAYER = ("-m", "bench.nvml_emulation.player")
_SEARCH = ("--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "30%", "--trial-seconds", "3",
           "--no-memory", "--progress", "steps")  # fmt: skip


class Floor:
    """One machine with its processes, in a folder of its own; a context manager that leaves none of them behind.

    arrivals_mw: the limits found, one a card. jobs: (cards, profile) of each.
    """

    def __init__(self, folder: Path, jobs: tuple[tuple[str, str], ...] = JOBS) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        made = machine("quadro-rtx-6000/resnet50", gpus=len(ARRIVALS_MW), arrivals_mw=ARRIVALS_MW)
        self.board = FileBoard.create(folder / "machine.json", replace(made, sensor="v100", start_s=None))
        self.state_dir = folder / "state"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOCAP_", "SUDO_"))}
        self._env = environment(
            folder / "machine.json", {**plain, "AUTOCAP_STATE_DIR": str(self.state_dir), "NO_COLOR": "1"}
        )
        self.jobs = jobs
        self.players: list[subprocess.Popen[bytes]] = []
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.tuner: subprocess.Popen[bytes] | None = None
        self._physics = Physics(shared_clock(self.board))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Kill what is left. A manager and its watchdog leave by themselves, with their supervisor."""
        played = [job.pid for job in self.board.read().jobs]
        for process in (self.supervisor, self.tuner, *self.players):
            if process is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.wait()
        for pid in played:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # Starting.

    def start_jobs(self, count: int | None = None) -> None:
        """Those that nobody tunes; they compute on return."""
        for gpus, profile in self.jobs[:count]:
            words = (*_PLAYER, "--gpus", gpus, "--profile", profile, "--iterations", "1000000")
            self.players.append(self._start(words, "job"))
        self.until(lambda: len(self.board.read().jobs) == len(self.players), "all jobs compute")

    def start_budget(self, watts: float, *words: str) -> None:
        """It is held on return."""
        out = ("--out", str(self.folder / "record"))
        self.supervisor = self._start((*_AUTOCAP, "budget", f"{watts:g}", *out, *words), "budget")
        self.until(lambda: self.has_ended() or self.is_within(watts), "the budget is held")
        self.until(lambda: self.has_ended() or self.standing() is not None, "the manager answers")

    def start_tuner(self, job: int) -> None:
        """One that starts and tunes a job; its caps are set by it on return."""
        gpus, profile = self.jobs[job]
        played = (*_PLAYER, "--gpus", gpus, "--profile", profile, "--iterations", "1000000", "--steps")
        words = ("run", *_SEARCH, "--gpus", gpus, "--out", str(self.folder / "run"), "--", sys.executable, *played)
        self.tuner = self._start((*_AUTOCAP, *words), "tuner")
        self.until(lambda: self.joined(tuned=True) == 1, "it has registered")

    def tell(self, watts: float) -> float:
        """Another budget, said without the start of a command; when that was, on the board's clock. Raises
        AutocapError."""
        with closing(call([self.state_dir / SOCKET])) as there:
            began_s = self.now_s()
            there.ask(Change(watts=watts), Done)
        return began_s

    def autocap(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command, to its end."""
        return subprocess.run(
            [sys.executable, *_AUTOCAP, *words],
            cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip

    def _start(self, words: tuple[str, ...], name: str) -> subprocess.Popen[bytes]:
        with open(self.folder / name, "ab") as said:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder, env=self._env, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    # Looking.

    def standing(self) -> Standing | None:
        """What the manager says; `None` while nobody answers."""
        try:
            with closing(call([self.state_dir / SOCKET])) as there:
                return there.ask(Ask(), Standing)
        except AutocapError:
            return None

    def joined(self, *, tuned: bool | None = None) -> int:
        """How many jobs have joined; of those with, or without, a tuner."""
        standing = self.standing()
        jobs = () if standing is None else standing.jobs
        return sum(tuned is None or job.tuned is tuned for job in jobs)

    def manager_pid(self) -> int:
        """Raises Late where none comes."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [standing.pid for standing in (self.standing(),) if standing is not None]
            return bool(found)

        self.until(look, "a manager answers")
        return found[0]

    def limits_mw(self) -> tuple[int, ...]:
        return tuple(self.board.requested_mw(gpu) for gpu in range(len(ARRIVALS_MW)))

    def is_within(self, watts: float) -> bool:
        """Whether all limits together are within a budget."""
        return sum(self.limits_mw()) <= 1000 * watts

    def are_back(self) -> bool:
        return self.limits_mw() == ARRIVALS_MW

    def power_w(self) -> float:
        """What all cards draw, by the board's own sensors."""
        self._physics.sync(self.board.read())
        return sum(self._physics.shown(gpu).power_w for gpu in range(len(ARRIVALS_MW)))

    def has_ended(self) -> bool:
        return self.supervisor is not None and self.supervisor.poll() is not None

    def leftovers(self) -> list[str]:
        """What lies in the state directory."""
        return sorted(os.listdir(self.state_dir)) if self.state_dir.is_dir() else []

    def said(self) -> tuple[str, ...]:
        """By budget and tuner."""
        texts = [self.folder / name for name in ("budget", "tuner")]
        return tuple(line for text in texts if text.exists() for line in text.read_text(errors="replace").splitlines())

    def now_s(self) -> float:
        """The board's time."""
        return self.board.now_s()

    def above(self, watts: float, from_s: float, to_s: float) -> float:
        """The longest time without a break in which all limits together exceeded a budget, seconds."""
        limits = list(ARRIVALS_MW)
        longest, began_s = 0.0, None
        changes = [change for change in timeline(self.board.read()) if change.t_s <= to_s]
        for change, next_s in zip(changes, [*(one.t_s for one in changes[1:]), to_s], strict=True):
            limits[change.gpu] = change.limit_mw
            at_s = max(change.t_s, from_s)
            if sum(limits) <= 1000 * watts:
                began_s = None
            elif next_s > from_s:
                began_s = at_s if began_s is None else began_s
                longest = max(longest, next_s - began_s)
        return longest

    # Waiting.

    def until(self, condition: Callable[[], bool], what: str, within_s: float = _PATIENCE_S) -> float:
        """Seconds until the condition holds. Raises Late."""
        began_s = time.monotonic()
        while not condition():
            if time.monotonic() - began_s > within_s:
                raise Late(f"not within {within_s:g} s: {what}")
            time.sleep(LOOK_S)
        return time.monotonic() - began_s

    def end(self) -> None:
        """Have it ended by `autocap budget end`. Raises Late."""
        self.autocap("budget", "end")
        self.until(self.has_ended, "the budget ends")

    def harmed(self) -> str | None:
        """What was done to the jobs, that nobody asked for."""
        dead = [str(player.pid) for player in self.players if player.poll() is not None]
        return f"job {', '.join(dead)} has ended" if dead else None


def is_alive(pid: int) -> bool:
    process = identify(pid)
    return process is not None and process.is_alive()
