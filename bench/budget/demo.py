"""`make demo-budget`: two trainings, each under `autocap run`, share a power budget that falls while they run.

Everything is real but the GPUs, which are emulated beneath NVML, and their watts: the processes, the manager of the
budget with its socket and watchdog, the trainings and their steps.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from autocap.testing.nvml import FileBoard, environment, machine, plain
from bench.common import Late
from bench.faults.scene import Boards

PROFILES = ("quadro-rtx-6000/resnet50", "quadro-rtx-6000/alexnet")
BUDGET_W, LESS_W = 380, 270
_SECONDS = 115.0  # of each training
_DROP_S, _TOLD_S = 80.0, 3.0  # when the budget falls, and how long after it is told how it stands
_PATIENCE_S, _LOOK_S = 60.0, 0.02
_AUTOCAP = (sys.executable, "-P", "-m", "autocap")
_SEARCH = ("--metric", "eds", "--k", "1.2", "--target-stderr", "2%", "--trial-seconds", "6", "--retune", "never",
           "--no-memory")  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """The whole of it; the exit status."""
    argparse.ArgumentParser(prog="python -m bench budget demo", description=__doc__).parse_args(argv)
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(128 + signum))  # what was started is ended
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Demo(Path(folder)).play()
        except Late as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1


class Demo(Boards):
    """A machine of two cards with its processes. folder: for what nobody needs afterwards."""

    def __init__(self, folder: Path) -> None:
        made = replace(machine(PROFILES[0], gpus=len(PROFILES)), start_s=None, sensor="v100")
        board = FileBoard.create(folder / "machine.json", made)
        super().__init__([board], board.limits_mw(), patience_s=_PATIENCE_S, look_s=_LOOK_S)
        ours = {"AUTOCAP_STATE_DIR": str(folder / "state"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._env = environment(folder / "machine.json", plain() | ours)

    def play(self) -> int:
        with self._started("budget", "budget", str(BUDGET_W)) as budget:
            self.until(lambda: budget.poll() is not None or self.is_within(BUDGET_W), "the budget is held")
            trainings = [self._training(gpu, profile) for gpu, profile in enumerate(PROFILES)]
            with trainings[0] as first, trainings[1] as second:
                self.until(lambda: len(self.board.read().jobs) == len(PROFILES), "both train")
                time.sleep(_DROP_S)
                self._show("budget", "status")
                self._drop()
                time.sleep(_TOLD_S)
                self._show("budget", "status")
                statuses = [first.wait(), second.wait()]
            record = json.loads(self._ask("budget", "status", "--json"))["record"]
            self._show("budget", "end")
            budget.wait(_PATIENCE_S)
        self._show("report", record)
        back = self.are_back()
        print(f"the trainings ended with {statuses}; the limits found are {'' if back else 'NOT '}back", flush=True)
        print(f"the page is {record}/report.html; `autocap runs` lists the trainings' own", flush=True)
        return 0 if back and not any(statuses) else 1

    def _training(self, gpu: int, profile: str) -> "AbstractContextManager[subprocess.Popen[str]]":
        words = ("--gpu", str(gpu), "--profile", profile, "--seconds", f"{_SECONDS:g}")
        child = (sys.executable, "-m", "bench.budget.training", *words)
        return self._started(profile.partition("/")[2], "run", *_SEARCH, "--", *child)

    def _drop(self) -> None:
        """Another budget, and how soon it was kept, by the board's own limits and sensors."""
        told_s = time.monotonic()
        word = subprocess.Popen(self._said("budget", "set", str(LESS_W)), env=self._env, text=True)
        self.until(lambda: self.is_within(LESS_W), "the limits are lowered")
        lowered_s = time.monotonic() - told_s
        self.until(lambda: self.power_w() <= LESS_W, "the cards draw less")
        drawn_s = time.monotonic() - told_s
        word.wait(_PATIENCE_S)
        print(
            f"{LESS_W} W: all limits were lowered {lowered_s:.1f} s after the command was started, and the cards drew "
            f"less after {drawn_s:.1f} s",
            flush=True,
        )

    @contextmanager
    def _started(self, name: str, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """A command that runs beside us, each of its lines under its name; it is asked to end where we end first."""
        process = subprocess.Popen(
            self._said(*words), env=self._env, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        telling = threading.Thread(target=_tell, args=(name, process), daemon=True)
        telling.start()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(_PATIENCE_S)
            telling.join(_PATIENCE_S)

    def _show(self, *words: str) -> None:
        subprocess.run(self._said(*words), env=self._env, timeout=_PATIENCE_S, check=True)

    def _ask(self, *words: str) -> str:
        return subprocess.run(
            [*_AUTOCAP, *words], env=self._env, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        ).stdout

    def _said(self, *words: str) -> list[str]:
        print(f"$ autocap {' '.join(words)}".replace(sys.executable, "python"), flush=True)
        return [*_AUTOCAP, *words]


def _tell(name: str, process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{name}: {line.rstrip()}", flush=True)
