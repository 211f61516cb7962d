"""An agent as a real process on a pretended node: an emulated NVML library, and a controller that says words."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from autocap.plugins.fleet.nodes.protocol import (
    Command,
    CommandKind,
    Done,
    Found,
    Heartbeat,
    Message,
    Rows,
    line_of,
    said,
)
from autocap.testing.nvml import FileBoard, environment, machine
from tests.plugins.fleet.nodes.world import BEGIN

PLAYER = (sys.executable, "-m", "autocap.testing.nvml.player")
AGENT = (sys.executable, "-m", "autocap.plugins.fleet.nodes.agent", "--number", "0")
CAPS_W = (200.0, 190.5)
_WORD_S, _DEED_S = 0.3, 0.2
_SMALL_BYTES = 4096  # the smallest pipe


class Node:
    """A pretended Slurm node with two GPUs and a part of job 7. name: its SLURMD_NODENAME."""

    def __init__(self, folder: Path, name: str = "n1", step_map: Path | None = None) -> None:
        self.folder, self.name, self.step_map = folder / name, name, step_map
        self.folder.mkdir()
        self.board = FileBoard.create(
            self.folder / "board.json",
            machine("quadro-rtx-6000/alexnet", gpus=2, arrivals_mw=[250_123, 249_001]),
        )
        self.arrival_mw = self.limits_mw()
        variables = {
            "AUTOCAP_STATE_DIR": str(self.folder / "state"),
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": name,
        }
        self._env = {**environment(self.folder / "board.json"), **variables}
        self._started: list[subprocess.Popen[bytes]] = []

    def limits_mw(self) -> list[int]:
        return [self.board.requested_mw(gpu) for gpu in (0, 1)]

    @property
    def is_capped(self) -> bool:
        return self.limits_mw() == [round(cap_w * 1000) for cap_w in CAPS_W]

    @property
    def is_back(self) -> bool:
        return self.limits_mw() == self.arrival_mw

    def play(self, step: int = 0) -> "subprocess.Popen[bytes]":
        """Start the job's part, as a step of Slurm."""
        mapped = {} if self.step_map is None else {"AUTOCAP_STEP_MAP": str(self.step_map)}
        return self._start((*PLAYER, "--steps"), {"SLURM_STEP_ID": str(step), **mapped})

    def agent(self) -> "subprocess.Popen[bytes]":
        return self._start(AGENT, {"SLURM_STEP_ID": "9"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _start(self, command: tuple[str, ...], more: Mapping[str, str], **pipes: int) -> "subprocess.Popen[bytes]":
        started = subprocess.Popen(command, env={**self._env, **more}, start_new_session=True, **pipes)  # type: ignore[call-overload]
        self._started.append(started)
        return started  # type: ignore[no-any-return]

    def end(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Controller:
    """Says words to an agent, and hears it if it listens. said: all that it has said so far."""

    def __init__(self, agent: "subprocess.Popen[bytes]", *, listens: bool = True) -> None:
        self.agent, self.said = agent, list[Message]()
        self._listens, self._number, self._deeds = listens, 0, count(100)
        if not listens:
            assert agent.stdout is not None
            fcntl.fcntl(agent.stdout, fcntl.F_SETPIPE_SZ, _SMALL_BYTES)
        self.silent, self._over = threading.Event(), threading.Event()
        self._one = threading.Lock()
        self._threads = [threading.Thread(target=self._speak), threading.Thread(target=self._listen)]
        for thread in self._threads:
            thread.start()

    def tell(self, message: Message) -> None:
        with self._one, suppress(OSError, ValueError):
            os.write(self.agent.stdin.fileno(), line_of(message))

    def raw(self, line: bytes) -> None:
        os.write(self.agent.stdin.fileno(), line)

    def begin(self, step_map: Path | None = None) -> None:
        named = None if step_map is None else str(step_map)
        self.tell(replace(BEGIN, device="nvml", via="direct", wait_s=60.0, step_map=named))

    def set(self, number: int) -> None:
        self.tell(Command(number=number, what=CommandKind.SET, caps_w=CAPS_W))

    def caps(self, node: Node) -> bool:
        """Set once more what is not: an agent leaves it undone until it knows that it is heard. Whether it is."""
        if not node.is_capped:
            self.set(next(self._deeds))
            time.sleep(_DEED_S)
        return node.is_capped

    @property
    def found(self) -> Found | None:
        return next((each for each in self.said if isinstance(each, Found)), None)

    @property
    def is_full(self) -> bool:
        """Whether the agent can say no more, as nobody reads it."""
        waiting = array("i", [0])
        assert self.agent.stdout is not None
        fcntl.ioctl(self.agent.stdout, termios.FIONREAD, waiting)
        return waiting[0] > 0.75 * _SMALL_BYTES

    def done(self, number: int) -> Done | None:
        return next((each for each in self.said if isinstance(each, Done) and each.number == number), None)

    @property
    def count(self) -> int:
        """Steps, as of the last row."""
        rows = [row for each in self.said if isinstance(each, Rows) for row in each.rows]
        return rows[-1].steps.count if rows and rows[-1].steps is not None else 0

    def hang_up(self) -> None:
        """Close the agent's stdin."""
        self._over.set()
        self._threads[0].join()
        with suppress(OSError):
            self.agent.stdin.close()

    def end(self) -> None:
        self.hang_up()
        with suppress(ProcessLookupError):
            self.agent.send_signal(signal.SIGCONT)
            self.agent.kill()
        self._threads[1].join()
        self.agent.stdout.close()

    def _speak(self) -> None:
        while not self._over.wait(_WORD_S):
            if not self.silent.is_set():
                self._number += 1
                self.tell(Heartbeat(number=self._number, interval_s=0.1, counted=True, since=(1,)))

    def _listen(self) -> None:
        assert self.agent.stdout is not None
        for line in self.agent.stdout if self._listens else ():
            self.said.append(said(line))
