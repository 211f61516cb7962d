"""The core of `autocap sweep` on the simulated device, in virtual time: its schedule, its meter and the real runner."""

import signal
import zlib
from dataclasses import dataclass

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.devices.model.profiles import Profile
from autocap.events.sweep import FinishedRun, PlannedRun, SweepPlan
from autocap.metrics import Metric
from autocap.session.runner import Runner
from autocap.session.sampling import LocalSampler
from autocap.sweep.running import WholeRun
from autocap.sweep.schedule import Schedule
from autocap.sweep.session import gpu_set
from autocap.sweep.summary import Panel, panels
from autocap.testing.simulated.device import SimulatedDevice, SimulatedMeter
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import Log, SimulatedProcess, SimulatedSetter

INTERVAL_S = 0.5  # between samples, as StEP takes them (Krzywaniak et al. 2022, section 5.1)
_START_S = 1.0  # of the command: by then its cap holds
_LOOK_S = 0.02  # how late the end of a run is noticed, at most
_METRIC = Metric(name="energy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is run: so many iterations of a profile's job, with their relative jitter.

    rest_w: what the machine draws around the GPU, as a wall meter shows it; `None` where only the GPU counts.
    """

    profile: Profile
    iterations: int
    jitter: float
    rest_w: float | None = None


def sweep(command: Command, repeats: int, seed: int, step_w: float | None = None) -> Panel:
    """Every cap of the card, as often as asked for. step_w: from cap to cap, `None` for 5 W."""
    device = _device(command, VirtualClock(), seed)
    one = gpu_set(TuneConfig(metric=_METRIC, step_w=step_w), device.gpus, [device.gpus[0].cap_range.default_w])
    name = command.profile.name
    plan = SweepPlan(command=(name,), name=name, device="simulated", emulated=True, sets=(one,), repeats=repeats,
                     seed=seed, discard=False)  # fmt: skip
    schedule, finished = Schedule(plan), list[FinishedRun]()
    while (run := schedule.next()) is not None:
        finished.append(measure(command, run, seed))
        schedule.add(finished[-1])
    (panel,) = panels(plan, _METRIC, finished)
    return panel


def measure(command: Command, run: PlannedRun, seed: int) -> FinishedRun:
    """One whole run under one cap."""
    clock = VirtualClock()
    device = _device(command, clock, zlib.crc32(f"{command.profile.name} {run} {seed}".encode()))
    node = None if command.rest_w is None else SimulatedMeter(device, clock, rest_w=command.rest_w, seed=seed)
    setter = SimulatedSetter(device, [device.gpus[0].cap_range.default_w])
    caps_w = (run.cap_w,)
    setter.set_caps(caps_w)
    clock.wait_until(_START_S)
    whole = WholeRun(caps_w, clock.now(), device.sensor.window_s, None if node is None else node.refresh_s)
    child_clock = _ChildClock(clock, device)
    runner = Runner(
        clock=child_clock,
        sampler=LocalSampler(clock=child_clock, device=device, steps=lambda: None, node=node),
        controller=whole,
        job=SimulatedProcess(device, clock, float("inf")),
        sink=Log(),
        pace=lambda: INTERVAL_S,
        setter=setter,
    )
    status = runner.run()
    return FinishedRun(run=run, used=whole.used, exit_status=status, trouble=whole.trouble)


class _ChildClock:
    """A clock whose wait ends with the job, as SIGCHLD ends that of a real run."""

    def __init__(self, clock: VirtualClock, device: SimulatedDevice) -> None:
        self._clock, self._device = clock, device

    def now(self) -> float:
        return self._clock.now()

    def wait_until(self, t_s: float) -> int | None:
        while self._clock.now() < t_s:
            self._clock.wait_until(min(t_s, self._clock.now() + _LOOK_S))
            if self._device.job_ended:
                return signal.SIGCHLD
        return None


def _device(command: Command, clock: VirtualClock, seed: int) -> SimulatedDevice:
    job = SimulatedJob(profile=command.profile, jitter=command.jitter, iterations=command.iterations, start_s=_START_S)
    return SimulatedDevice(clock, job, seed=seed)
