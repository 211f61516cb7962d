"""What the controller costs: CPU seconds and memory of real `autocap` processes above the emulated library."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from autocap.events import State, StateEntered
from autocap.runlog.columns import read_samples
from autocap.runlog.directory import SAMPLES
from autocap.runlog.event_log import EVENTS, EventTail
from autocap.testing.nvml import FileBoard, environment, machine, plain
from autocap.testing.nvml.install import COST_VARIABLE, emulated_s, spent_s
from bench.common import until

_AFTER_S = 12.0  # the job begins so long after its process: what waiting costs
_PLAYER = (sys.executable, "-m", "autocap.testing.nvml.player", "--after", f"{_AFTER_S:g}")
# Caps enough for a search of half a minute.
_SEARCH = ("--strategy", "linear", "--caps", "130,150,170,190,210,230", "--trial-seconds", "6", "--no-memory")
_WITHIN_S = 60.0
_SEARCHED_WITHIN_S = 420.0
_LOOK_S = 0.05
_LEAST_S = 1.0  # of a state, to say what it costs
_WRITTEN_S = 6.0  # after so long the samples from before are in their file


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCost:
    """CPU seconds in one state, without the emulation's, over so many seconds of it with so many samples."""

    state: State
    seconds: float
    cpu_s: float
    samples: int

    @property
    def core_pct(self) -> float:
        return 100 * self.cpu_s / self.seconds

    @property
    def sample_hz(self) -> float:
        return self.samples / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerCost:
    """mode: of autocap. sensor: of the emulated cards. start_s: CPU seconds until the first sample. states: what each
    took from then on, in their order; both without the emulation's. peak_bytes: resident, of the controller;
    watchdog_bytes: in the end, of its watchdog; watchdog_pct: of a core, the watchdog's own. held_bytes_per_hour: that
    the file of samples grows by while a cap is held."""

    mode: str
    gpus: int
    sensor: str
    start_s: float
    states: tuple[StateCost, ...]
    peak_bytes: int
    watchdog_bytes: int
    watchdog_pct: float
    held_bytes_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """At one moment: the controller's CPU seconds, those of the emulation, and the size of its samples."""

    at_s: float
    cpu_s: float
    emulated_s: float
    samples_bytes: int


def measure(sensor: str, hold_s: float, mode: str, gpus: int) -> ControllerCost:
    """Tune a job on that many GPUs from before its first iteration until a cap was held for so many seconds.

    mode: "run", which counts steps, or "attach", which finds the period.
    """
    with tempfile.TemporaryDirectory(prefix="autocap-cost-") as name:
        folder = Path(name)
        arrivals_mw = [247_123 - 1000 * gpu for gpu in range(gpus)]
        made = machine("quadro-rtx-6000/resnet50", gpus=gpus, arrivals_mw=arrivals_mw)
        board = FileBoard.create(folder / "machine.json", replace(made, sensor=sensor, start_s=None))
        env = environment(folder / "machine.json", plain() | {"AUTOCAP_STATE_DIR": str(folder / "state")})
        options = (*_SEARCH, "--out", str(folder / "run"))
        job = controller = None
        try:
            argv = ["run", "--progress", "steps", "--gpus", f"0-{gpus - 1}", *options, "--", *_PLAYER, "--steps"]
            if mode == "attach":
                job = subprocess.Popen(_PLAYER, env=env, start_new_session=True)
                until(lambda: board.read().job_pid is not None, "the job begins", _WITHIN_S)
                argv = ["attach", "--pid", str(job.pid), "--progress", "auto", *options]
            controller = subprocess.Popen(
                [sys.executable, "-m", "autocap", *argv],
                env={**env, COST_VARIABLE: str(folder / "cost")}, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            return _watched(mode, gpus, sensor, hold_s, folder, controller)
        finally:
            for process in (controller, job):
                if process is not None:
                    process.send_signal(signal.SIGTERM)
                    process.wait()


def _watched(
    mode: str, gpus: int, sensor: str, hold_s: float, folder: Path, controller: "subprocess.Popen[bytes]"
) -> ControllerCost:
    run, pid = folder / "run", controller.pid
    log = run / EVENTS
    until(lambda: log.exists() and '"state_entered"' in log.read_text(), "the controller begins", _WITHIN_S)
    children = psutil.Process(pid).children()
    (watchdog,) = [child for child in children if "autocap.limits.watchdog" in " ".join(child.cmdline())]

    def look() -> _Look:
        return _Look(
            at_s=time.monotonic(),
            cpu_s=spent_s(pid),
            emulated_s=emulated_s(folder / "cost", pid),
            samples_bytes=(run / SAMPLES).stat().st_size,
        )

    looks, entered = [look()], list[StateEntered]()
    held: _Look | None = None  # for a moment
    watchdog_before_s, deadline_s = spent_s(watchdog.pid), looks[0].at_s + _SEARCHED_WITHIN_S
    with EventTail(run) as tail:
        while not (entered and entered[-1].state is State.HOLDING and time.monotonic() - looks[-1].at_s >= hold_s):
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{mode} on {gpus} GPUs held no cap for {hold_s:g} s within {_SEARCHED_WITHIN_S:g} s"
                )
            holding_s = time.monotonic() - looks[-1].at_s if entered and entered[-1].state is State.HOLDING else 0.0
            held = look() if held is None and holding_s > _WRITTEN_S else held if holding_s else None
            for event in tail.read():
                if isinstance(event, StateEntered):
                    looks = [*looks, look()] if entered else [look()]
                    entered.append(event)
            time.sleep(_LOOK_S)
    looks.append(look())
    watchdog_pct = 100 * (spent_s(watchdog.pid) - watchdog_before_s) / (looks[-1].at_s - looks[0].at_s)
    peak_bytes, watchdog_bytes = _peak_bytes(pid), watchdog.memory_info().rss
    controller.send_signal(signal.SIGTERM)
    controller.wait()
    assert held is not None  # it was held for longer
    held_bytes = looks[-1].samples_bytes - held.samples_bytes
    return ControllerCost(
        mode=mode,
        gpus=gpus,
        sensor=sensor,
        start_s=looks[0].cpu_s - looks[0].emulated_s,
        states=_by_state(entered, looks, read_samples(run).t_s.tolist()),
        peak_bytes=peak_bytes,
        watchdog_bytes=watchdog_bytes,
        watchdog_pct=watchdog_pct,
        held_bytes_per_hour=3600 * held_bytes / (looks[-1].at_s - held.at_s),
    )


def _by_state(
    entered: Sequence[StateEntered], looks: Sequence[_Look], sampled_s: Sequence[float]
) -> tuple[StateCost, ...]:
    """The cost of each state, of all the times that it was entered; looks: at each of these moments, and at the end."""
    found: dict[State, StateCost] = {}
    for event, begun, ended in zip(entered, looks, looks[1:], strict=False):
        seconds = ended.at_s - begun.at_s
        cost = StateCost(
            state=event.state,
            seconds=seconds,
            cpu_s=ended.cpu_s - begun.cpu_s - (ended.emulated_s - begun.emulated_s),
            samples=sum(event.t_s < t_s <= event.t_s + seconds for t_s in sampled_s),
        )
        before = found.get(event.state)
        if before is not None:
            cost = replace(
                cost,
                seconds=cost.seconds + before.seconds,
                cpu_s=cost.cpu_s + before.cpu_s,
                samples=cost.samples + before.samples,
            )
        found[event.state] = cost
    return tuple(cost for cost in found.values() if cost.seconds >= _LEAST_S)


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
