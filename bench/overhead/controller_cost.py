"""What the controller costs: CPU seconds and memory of real `autocap` processes above the emulated library."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench.nvml_emulation import FileBoard, environment, machine
from bench.nvml_emulation.metered import COST_VARIABLE

SAMPLE_HZ = 20.0
_PLAYER = (sys.executable, "-m", "bench.nvml_emulation.player")
_SEARCH = ("--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "2%", "--trial-seconds", "10",
           "--no-memory")  # fmt: skip
_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerCost:
    """mode: of autocap. start_s: CPU seconds until the first sample, cpu_s: those of the seconds after it, both without
    the emulation's, which are in emulation_s. calls: of the library. peak_bytes: resident, of the controller;
    watchdog_bytes: in the end, of its watchdog; watchdog_s: the watchdog's own CPU seconds meanwhile."""

    mode: str
    gpus: int
    seconds: float
    start_s: float
    cpu_s: float
    emulation_s: float
    calls: int
    peak_bytes: int
    watchdog_bytes: int
    watchdog_s: float

    @property
    def core_pct(self) -> float:
        return 100 * self.cpu_s / self.seconds


def measure(mode: str, gpus: int, seconds: float) -> ControllerCost:
    """Tune a job on that many GPUs and look at the controller from its first sample on, for so many seconds: the period
    is being learned then, and every cap is tried.

    mode: "run", which counts steps, or "attach", which finds the period.
    """
    with tempfile.TemporaryDirectory(prefix="autocap-cost-") as name:
        folder = Path(name)
        arrivals_mw = [247_123 - 1000 * gpu for gpu in range(gpus)]
        made = machine("quadro-rtx-6000/alexnet", gpus=gpus, arrivals_mw=arrivals_mw)
        board = FileBoard.create(folder / "machine.json", replace(made, sensor="v100", start_s=None))
        own = {name: value for name, value in os.environ.items() if not name.startswith("AUTOCAP_")}
        env = environment(folder / "machine.json", {**own, "AUTOCAP_STATE_DIR": str(folder / "state")})
        job = controller = None
        try:
            argv = [
                "run",
                "--progress",
                "steps",
                "--gpus",
                f"0-{gpus - 1}",
                *_options(folder),
                "--",
                *_PLAYER,
                "--steps",
            ]
            if mode == "attach":
                job = subprocess.Popen(_PLAYER, env=env, start_new_session=True)
                _until(lambda: board.read().job_pid is not None)
                argv = ["attach", "--pid", str(job.pid), "--progress", "period", *_options(folder)]
            controller = subprocess.Popen(
                [sys.executable, "-m", "autocap", *argv],
                env={**env, COST_VARIABLE: str(folder / "cost")}, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            return _watched(mode, gpus, seconds, folder, controller.pid)
        finally:
            for process in (controller, job):
                if process is not None:
                    process.send_signal(signal.SIGTERM)
                    process.wait()


def _options(folder: Path) -> Sequence[str]:
    return (*_SEARCH, "--sample-hz", f"{SAMPLE_HZ:g}", "--out", str(folder / "run"))


def _watched(mode: str, gpus: int, seconds: float, folder: Path, pid: int) -> ControllerCost:
    events = folder / "run" / "events.jsonl"
    _until(lambda: events.exists() and '"state_entered"' in events.read_text())
    process, cost = psutil.Process(pid), folder / f"cost.{pid}"
    _, emulated_before_s = _told(cost)
    (watchdog,) = [child for child in process.children() if "autocap.guardian.watchdog" in " ".join(child.cmdline())]
    before_s, watchdog_before_s = _cpu_s(process), _cpu_s(watchdog)
    time.sleep(seconds)
    calls, emulated_s = _told(cost)
    spent_s = _cpu_s(process) - before_s
    emulation_s = emulated_s - emulated_before_s
    return ControllerCost(
        mode=mode,
        gpus=gpus,
        seconds=seconds,
        start_s=before_s - emulated_before_s,
        cpu_s=spent_s - emulation_s,
        emulation_s=emulation_s,
        calls=calls,
        peak_bytes=_peak_bytes(pid),
        watchdog_bytes=watchdog.memory_info().rss,
        watchdog_s=_cpu_s(watchdog) - watchdog_before_s,
    )


def _told(cost: Path) -> tuple[int, float]:
    """The calls of the library so far and their CPU seconds, at most half a second old."""
    calls, _, spent_s = cost.read_text().partition(" ")
    return int(calls), float(spent_s)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the controller did not begin within {_WITHIN_S:g} s")
        time.sleep(0.02)
