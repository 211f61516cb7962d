"""A budget between real processes: four jobs on eight emulated GPUs, a manager with its supervisor, perhaps a tuner."""

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from autocap.errors import AutocapError
from autocap.job.processes import identify
from autocap.plugins.fleet.budget.connection import SOCKET, call
from autocap.plugins.fleet.budget.protocol import Ask, Change, Done, Standing
from autocap.testing.nvml import FileBoard, environment, machine, plain
from bench.faults.scene import Boards

ARRIVALS_MW = (247_123, 251_007, 260_000, 260_000, 233_333, 233_333, 259_001, 240_500)
JOBS = (("0,1", "quadro-rtx-6000/resnet50"), ("2,3", "quadro-rtx-6000/alexnet"),
        ("4,5", "quadro-rtx-6000/resnet50"), ("6,7", "quadro-rtx-6000/vgg19"))  # fmt: skip
BUDGET_W, LESS_W = 1600.0, 1200.0
_PATIENCE_S = 60.0
_AUTOCAP = ("-P", "-m", "autocap")
_PLAYER = ("-m", "autocap.testing.nvml.player")
_SEARCH = ("--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "30%", "--trial-seconds", "3",
           "--no-memory", "--progress", "steps")  # fmt: skip


class Budget(ABC):
    """One that runs, on one machine or several. boards: whose limits it holds. socket: of its manager, called who."""

    def __init__(self, boards: Boards, socket: Path, who: str) -> None:
        self._boards, self._socket, self._who = boards, socket, who
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def supervisor(self) -> "subprocess.Popen[bytes]":
        """The process that a user starts."""
        assert self._supervisor is not None
        return self._supervisor

    def has_ended(self) -> bool:
        return self._supervisor is not None and self._supervisor.poll() is not None

    def standing(self, socket: Path | None = None) -> Standing | None:
        """What its manager says, or who listens at another socket; `None` while nobody answers."""
        with suppress(AutocapError), closing(call([socket or self._socket])) as there:
            return there.ask(Ask(), Standing)
        return None

    def manager_pid(self, socket: Path | None = None, who: str | None = None) -> int:
        """Of its manager, or of who listens at another socket. Raises Late where nobody answers."""
        found: list[Standing] = []

        def look() -> bool:
            found[:] = filter(None, [self.standing(socket)])
            return bool(found)

        self._boards.until(look, f"{who or self._who} answers")
        return found[0].pid

    def tell(self, watts: float) -> float:
        """Another budget, said without the start of a command; when that was, on the boards' clock. Raises
        AutocapError."""
        with closing(call([self._socket])) as there:
            began_s = self._boards.now_s()
            there.ask(Change(watts=watts), Done)
        return began_s

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether all that manage it are there."""

    @abstractmethod
    def entries(self) -> list[str]:
        """What of devices lies in state directories; what a manager and its supervisor that were killed have left
        beside is taken by the next."""

    @abstractmethod
    def end(self) -> None:
        """Have it ended. Raises Late, AutocapError."""


class Floor(Boards, Budget):
    """One machine with its processes, in a folder of its own; a context manager that leaves none of them behind.

    arrivals_mw: the limits found, one a card. jobs: (cards, profile) of each.
    """

    def __init__(self, folder: Path, jobs: tuple[tuple[str, str], ...] = JOBS) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        made = machine("quadro-rtx-6000/resnet50", gpus=len(ARRIVALS_MW), arrivals_mw=ARRIVALS_MW)
        board = FileBoard.create(folder / "machine.json", replace(made, sensor="v100", start_s=None))
        Boards.__init__(self, [board], ARRIVALS_MW, patience_s=_PATIENCE_S)
        self.state_dir = folder / "state"
        Budget.__init__(self, self, self.state_dir / SOCKET, "a manager")
        own = {"AUTOCAP_STATE_DIR": str(self.state_dir), "NO_COLOR": "1"}
        self._env = environment(folder / "machine.json", plain() | own)
        self.jobs = jobs
        self.players: list[subprocess.Popen[bytes]] = []
        self._tuner: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Kill what is left. A manager and its watchdog leave by themselves, with their supervisor, and are waited for:
        they write into the folder until then."""
        played, there = [job.pid for job in self.board.read().jobs], self.standing()
        for process in (self._supervisor, self._tuner, *self.players):
            if process is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                process.kill()
                process.wait()
        for pid in played:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if there is not None:
            self.until(lambda: not is_alive(there.pid), "the manager has left")

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
        self._supervisor = self._start((*_AUTOCAP, "budget", f"{watts:g}", *out, *words), "budget")
        self.until(lambda: self.has_ended() or self.is_within(watts), "the budget is held")
        self.until(lambda: self.has_ended() or self.standing() is not None, "the manager answers")

    def start_tuner(self, job: int) -> None:
        """One that starts and tunes a job; its caps are set by it on return."""
        gpus, profile = self.jobs[job]
        played = (*_PLAYER, "--gpus", gpus, "--profile", profile, "--iterations", "1000000", "--steps")
        words = ("run", *_SEARCH, "--gpus", gpus, "--out", str(self.folder / "run"), "--", sys.executable, *played)
        self._tuner = self._start((*_AUTOCAP, *words), "tuner")
        self.until(lambda: self.joined(tuned=True) == 1, "it has registered")

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

    @property
    def tuner(self) -> "subprocess.Popen[bytes]":
        assert self._tuner is not None
        return self._tuner

    def joined(self, *, tuned: bool | None = None) -> int:
        """How many jobs have joined; of those with, or without, a tuner."""
        standing = self.standing()
        jobs = () if standing is None else standing.jobs
        return sum(tuned is None or job.tuned is tuned for job in jobs)

    def is_whole(self) -> bool:
        return self.standing() is not None

    def leftovers(self) -> list[str]:
        """What lies in the state directory."""
        return sorted(os.listdir(self.state_dir)) if self.state_dir.is_dir() else []

    def said(self) -> tuple[str, ...]:
        """By budget and tuner."""
        texts = [self.folder / name for name in ("budget", "tuner")]
        return tuple(line for text in texts if text.exists() for line in text.read_text(errors="replace").splitlines())

    def entries(self) -> list[str]:
        return [name for name in self.leftovers() if not name.startswith("budget.")]

    def end(self) -> None:
        self.autocap("budget", "end")
        self.until(self.has_ended, "the budget ends")

    def harmed(self) -> str | None:
        """What was done to the jobs, that nobody asked for."""
        dead = [str(player.pid) for player in self.players if player.poll() is not None]
        return f"job {', '.join(dead)} has ended" if dead else None


def is_alive(pid: int) -> bool:
    process = identify(pid)
    return process is not None and process.is_alive()
