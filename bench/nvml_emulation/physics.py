"""What the cards of an emulated machine draw and show, from the simulated device.

Every process simulates for itself. That gives all of them the same machine, because the simulation follows from its
seed and from the limits that were set, and those are on the board, each before it takes hold.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from autocap.clock import Clock
from autocap.devices.model import profiles
from autocap.devices.model.logged_sensors import LOGGED
from autocap.devices.model.sensor import PRESETS
from autocap.devices.simulated.device import LimitChange, SimulatedDevice, SimulatedJob, SimulatedNode
from autocap.devices.simulated.node import CardView
from autocap.job.processes import identify
from autocap.records import StepReading
from bench.nvml_emulation.board import State, timeline
from bench.nvml_emulation.machine import Change

_NEVER_S = 1e9
_SENSORS = {**PRESETS, **LOGGED}
_BEFORE_S = -1.5  # where the simulation begins
_BUFFER = 120  # samples that the driver keeps
_LOOK_S = 0.2  # between two looks at whether the job's process lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one card shows. stamp_s: when power was measured."""

    stamp_s: float
    power_w: float
    average_w: float
    energy_j: float
    clock_hz: float
    binding: bool
    busy: bool


class Physics:
    """The cards of one machine in one process, brought up to date by `sync`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_s: float | None = None
        self._devices: list[tuple[SimulatedDevice, int]] = []
        self._known = 0  # how many of the limits that were set the simulation has
        self._profile = ""
        self._samples: list[deque[tuple[float, float]]] = []
        self._looked_s = -_LOOK_S
        self._dead_s: float | None = None
        self._dead_j: list[float] = []

    def sync(self, state: State) -> None:
        """Take in the limits that were set and the job that began since."""
        start_s = state.machine.start_s if state.start_s is None else state.start_s
        if not self._devices or start_s != self._start_s:
            self._start_s = start_s
            self._build(state)
        for change in state.changes[self._known :]:
            device, card = self._devices[change.gpu]
            device.schedule(self._acting(state, change, card))
        self._known = len(state.changes)
        self._look_for_the_job(state)

    def steps(self) -> StepReading | None:
        """The iterations done so far."""
        busiest = max(self._devices, key=lambda one: len(one[0].gpus))
        return busiest[0].steps(self._clock.now())

    def ends_s(self) -> tuple[float, ...]:
        """When each of them really ended."""
        busiest = max(self._devices, key=lambda one: len(one[0].gpus))
        return tuple(busiest[0].true_ends_s().tolist())

    def used_j(self, start_s: float, end_s: float) -> tuple[float, ...]:
        """What each card really used between two times that have passed, joules."""
        energies_j = {id(device): device.true_energy_j(start_s, end_s) for device, _ in self._devices}
        return tuple(energies_j[id(device)][card] for device, card in self._devices)

    def ended(self) -> bool:
        """Whether the job has done all of its iterations."""
        return any(device.job_ended for device, _ in self._devices)

    def shown(self, gpu: int) -> Shown:
        device, card = self._devices[gpu]
        view, now_s = device.view(card), self._clock.now()
        self._collect(gpu, view, now_s)
        power = max(0, bisect_right(view.power_t_s, now_s) - 1)
        clock = max(0, bisect_right(view.clock_t_s, now_s) - 1)
        energy_j = view.energy_j[max(0, bisect_right(view.energy_t_s, now_s) - 1)]
        idle_w = profiles.load(self._profile).idle_w
        if self._dead_s is not None and self._dead_j:
            energy_j = self._dead_j[gpu] + idle_w * (now_s - self._dead_s)
        return Shown(
            stamp_s=view.power_t_s[power],
            power_w=idle_w if self._dead_s is not None else view.power_w[power],
            average_w=idle_w if self._dead_s is not None else view.average_w[power],
            energy_j=energy_j,
            clock_hz=view.clock_hz[clock],
            binding=view.binding[clock] and self._dead_s is None,
            busy=self._is_busy(device, now_s),
        )

    def samples(self, gpu: int) -> list[tuple[float, float]]:
        """The driver's buffer: when, and watts, the oldest first."""
        self.shown(gpu)
        return list(self._samples[gpu])

    def _build(self, state: State) -> None:
        machine = state.machine
        self._profile, self._known = machine.profile, len(state.changes)
        self._samples = [deque(maxlen=_BUFFER) for _ in machine.cards]
        busy = machine.job_gpus if machine.job_gpus is not None else tuple(range(len(machine.cards)))
        idle = tuple(gpu for gpu in range(len(machine.cards)) if gpu not in busy)
        places: dict[int, tuple[SimulatedDevice, int]] = {}
        for gpus, start_s in ((busy, self._start_s), (idle, None)):
            if not gpus:
                continue
            job = SimulatedJob(
                profile=profiles.load(machine.profile),
                jitter=machine.jitter,
                iterations=machine.iterations,
                start_s=_NEVER_S if start_s is None else start_s,
            )
            arrivals = [Change(t_s=_BEFORE_S, gpu=gpu, limit_mw=machine.cards[gpu].arrival_mw) for gpu in gpus]
            changes = [change for change in (*arrivals, *timeline(state)) if change.gpu in gpus]
            node = SimulatedNode(
                gpus=len(gpus),
                sensor=_SENSORS[machine.sensor],
                efficiency_spread=machine.efficiency_spread,
                changes=tuple(self._acting(state, change, gpus.index(change.gpu)) for change in changes),
            )
            device = SimulatedDevice(self._clock, job, node, seed=machine.seed)
            places |= {gpu: (device, card) for card, gpu in enumerate(gpus)}
        self._devices = [places[gpu] for gpu in range(len(machine.cards))]

    def _acting(self, state: State, change: Change, card: int) -> LimitChange:
        """What a requested limit does to the simulated card: the profile knows no other caps than its own."""
        ceiling_mw, caps = state.machine.cards[change.gpu].ceiling_mw, profiles.load(state.machine.profile).cap_range
        cap_w = (change.limit_mw if ceiling_mw is None else min(change.limit_mw, ceiling_mw)) / 1000
        return LimitChange(t_s=change.t_s, gpu=card, cap_w=min(max(cap_w, caps.min_w), caps.max_w))

    def _collect(self, gpu: int, view: CardView, now_s: float) -> None:
        kept = self._samples[gpu]
        newest_s = kept[-1][0] if kept else -_NEVER_S
        for t_s, power_w in zip(view.power_t_s, view.power_w, strict=True):
            if newest_s < t_s <= now_s:
                kept.append((t_s, power_w))

    def _is_busy(self, device: SimulatedDevice, now_s: float) -> bool:
        begun = self._start_s is not None and now_s >= self._start_s and self._dead_s is None
        return begun and not device.job_ended

    def _look_for_the_job(self, state: State) -> None:
        """A job that was killed draws nothing any more."""
        now_s = self._clock.now()
        if self._dead_s is not None or state.job_pid is None or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        process = identify(state.job_pid)
        if process is None or not process.is_alive():
            self._dead_j = [self.shown(gpu).energy_j for gpu in range(len(self._devices))]
            self._dead_s = now_s
