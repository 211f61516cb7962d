"""Simulated GPUs under a training job, in the time of whatever clock they are given: the tests' and benchmarks' device;
and a wall meter on their machine.

Time is simulated ahead in stretches of a few seconds. Where a limit is set in the middle of one, that stretch is
simulated again up to there, and what was to come is forgotten. So what a reading shows follows from the seed and from
the limits that were set, not from when it is read.
"""

import math
from bisect import bisect_right, insort

import numpy as np
from numpy.typing import NDArray

from autocap.clock import Clock
from autocap.devices.base import LimitPort, Tunable, require_inside
from autocap.devices.simulated.job import JobStretch, SimulatedJob
from autocap.devices.simulated.node import CardView, LimitChange, NodeState, SimulatedNode, Stretch
from autocap.errors import DeviceError, LimitNotEnforced, LimitRefused
from autocap.records import GpuInfo, NodeReading, Reading, StepReading

Floats = NDArray[np.float64]

_AHEAD_S = 4.0  # longer stretches cost less each second, and more when a limit is set in the middle of one


class SimulatedDevice(Tunable):
    """GPUs that exist in the computer's memory only, all of them used by one training job.

    It also knows the truth that no real device tells: `true_energy_j` and `true_iterations`. The same seed and the
    same limits give the same readings.
    """

    kind = "simulated"
    emulated = True

    def __init__(self, clock: Clock, job: SimulatedJob, node: SimulatedNode | None = None, *, seed: int = 0) -> None:
        self._clock = clock
        self._job = job
        self._node = node or SimulatedNode()
        node_seed, call_seed = np.random.SeedSequence(seed).spawn(2)
        self._calls = np.random.default_rng(call_seed)
        cap_range = job.profile.cap_range
        limit_w = cap_range.default_w if self._node.limit_w is None else self._node.limit_w
        self._requested_w = [limit_w] * self._node.gpus
        self._changes = sorted(self._node.changes, key=lambda change: change.t_s)
        self._past = NodeState(job, self._node, self._enforced_w(limit_w), node_seed)
        self.sensor = self._past.sensors[0].model.info()
        self._history: list[JobStretch] = []
        self._ends_s: list[float] = []  # of iterations, those of the stretch ahead included
        self._accepted = 0  # how many of them lie in the past
        self._future = self._past
        self._ahead: Stretch | None = None
        name = f"simulated {job.profile.gpu_name}"
        self.gpus = tuple(
            GpuInfo(index=index, uuid=f"SIM-{seed:08x}-{index:04x}", name=name, cap_range=cap_range)
            for index in range(self._node.gpus)
        )
        self._settle(clock.now())

    @property
    def job_ended(self) -> bool:
        """Whether the job's last iteration is done."""
        now_s = self._catch_up()
        return self._job.iterations is not None and bisect_right(self._ends_s, now_s) >= self._job.iterations

    def read(self) -> tuple[Reading, ...]:
        """What every GPU shows now."""
        now_s = self._catch_up()
        assert self._ahead is not None  # caught up
        return tuple([self._reading(gpu, card, now_s) for gpu, card in enumerate(self._ahead.cards)])

    def steps(self, t_s: float) -> StepReading | None:
        """The step counter at a time that has passed; `None` before the end of the first iteration."""
        self._catch_up()
        count = bisect_right(self._ends_s, t_s)
        return StepReading(count=count, t_s=self._ends_s[count - 1]) if count else None

    def view(self, gpu: int) -> CardView:
        """What one card shows over the stretch of time that holds the present, some of it yet to come."""
        self._catch_up()
        assert self._ahead is not None  # caught up
        return self._ahead.cards[gpu]

    def schedule(self, change: LimitChange) -> None:
        """Let somebody else set a limit, at a time to come or since the last reading; at one before that, as soon as
        may be."""
        insort(self._changes, change, key=lambda other: other.t_s)
        self._ahead = None  # what was to come is simulated again

    def limits(self) -> "SimulatedLimits":
        """The way to the limits, for the guardian alone."""
        return SimulatedLimits(self)

    def true_energy_j(self, start_s: float, end_s: float) -> tuple[float, ...]:
        """What each GPU really used between two times that have passed, joules."""
        self._truth_until(end_s)
        used = []
        for gpu in range(self._node.gpus):
            edges_s = np.concatenate([self._history[0].edges_s[gpu][:1], *(h.edges_s[gpu][1:] for h in self._history)])
            power_w = np.concatenate([h.power_w[gpu] for h in self._history])
            total_j = np.concatenate(([0.0], np.cumsum(power_w * np.diff(edges_s))))
            used.append(float(np.interp(end_s, edges_s, total_j) - np.interp(start_s, edges_s, total_j)))
        return tuple(used)

    def true_iterations(self, start_s: float, end_s: float) -> float:
        """Iterations between two times that have passed, with fractions (as if each had one speed throughout)."""
        self._truth_until(end_s)
        times_s = np.concatenate([np.append(h.ends_s, h.edges_s[0][-1]) for h in self._history])
        progress = np.concatenate([h.progress for h in self._history])
        return float(np.interp(end_s, times_s, progress) - np.interp(start_s, times_s, progress))

    def true_ends_s(self) -> Floats:
        """When each of the iterations so far really ended, shape (iterations,)."""
        self._catch_up()
        return np.array(self._ends_s[: bisect_right(self._ends_s, self._clock.now())])

    def _truth_until(self, end_s: float) -> None:
        now_s = self._clock.now()
        if end_s > now_s:
            raise DeviceError(f"the truth up to {end_s} s is not known at {now_s} s; ask for a time that has passed")
        self._settle(now_s)

    def _reading(self, gpu: int, card: CardView, now_s: float) -> Reading:
        power = bisect_right(card.power_t_s, now_s) - 1
        clock = bisect_right(card.clock_t_s, now_s) - 1
        busy = bisect_right(card.utilisation_t_s, now_s) - 1
        silent = any(spell.holds(now_s) for spell in self._node.silent)
        has_counter = self._node.energy_counter and not silent
        return Reading(
            t_s=card.power_t_s[power] if power >= 0 else now_s,
            power_w=card.power_w[power] if power >= 0 and not silent else None,
            energy_j=card.energy_j[bisect_right(card.energy_t_s, now_s) - 1] if has_counter else None,
            requested_w=self._requested_w[gpu],
            enforced_w=self._enforced_w(self._requested_w[gpu]),
            utilisation=card.utilisation[busy] if busy >= 0 else None,
            sm_clock_hz=card.clock_hz[clock],
            cap_binding=card.binding[clock],
            throttled=any(spell.holds(now_s) for spell in self._node.hot),
        )

    def _enforced_w(self, requested_w: float) -> float:
        ceiling_w = self._node.ceiling_w
        return requested_w if ceiling_w is None else min(requested_w, ceiling_w)

    def _catch_up(self) -> float:
        """Simulate at least up to now; the present time."""
        now_s = self._clock.now()
        if self._ahead is None or now_s >= self._ahead.end_s:
            self._settle(now_s)
            self._look_ahead()
        return now_s

    def _settle(self, now_s: float) -> None:
        """Make the present the end of the past; others set the limits that they were to set by now."""
        while True:
            if self._ahead is not None and now_s >= self._ahead.end_s:
                self._past = self._future
                self._accept(self._ahead)
            self._ahead = None
            while self._changes and self._changes[0].t_s <= self._past.t_s:
                change = self._changes.pop(0)
                self._apply(change.gpu, change.cap_w)
            if self._past.t_s >= now_s:
                return
            self._accept(self._past.advance(min([now_s, *(change.t_s for change in self._changes[:1])])))

    def _accept(self, stretch: Stretch) -> None:
        self._history.extend(stretch.pieces)
        self._count_ends(stretch)
        self._accepted = len(self._ends_s)

    def _count_ends(self, stretch: Stretch) -> None:
        del self._ends_s[self._accepted :]
        for piece in stretch.pieces:
            self._ends_s.extend(piece.ends_s.tolist())

    def _look_ahead(self) -> None:
        """Simulate the next stretch, at most up to the next change of a limit that is already known."""
        self._future = self._past.fork()
        end_s = self._past.t_s + _AHEAD_S
        self._ahead = self._future.advance(min([end_s, *(change.t_s for change in self._changes[:1])]))
        self._count_ends(self._ahead)

    def _apply(self, gpu: int, cap_w: float) -> None:
        self._requested_w[gpu] = cap_w
        self._past.set_limit(gpu, self._enforced_w(cap_w), float(self._calls.uniform(*self._node.lag_s)))

    def _request(self, gpu: GpuInfo, cap_w: float) -> None:
        """A call of somebody who may set limits: checks, takes its time, and acts at its end."""
        asked, where = f"cap {cap_w:g} W", f"GPU {gpu.index}"
        if not self._node.may_set:
            raise LimitRefused(
                f"{asked} on {where} was not permitted; setting a power limit needs root or CAP_SYS_ADMIN"
            )
        require_inside(cap_w, gpu.cap_range.min_w, gpu.cap_range.max_w, where)
        self._clock.wait_until(self._clock.now() + float(self._calls.uniform(*self._node.call_s)))
        self._settle(self._clock.now())
        self._apply(gpu.index, cap_w)
        enforced_w = self._enforced_w(cap_w)
        if enforced_w < cap_w:
            raise LimitNotEnforced(
                f"{asked} was requested of {where}, but {enforced_w:g} W is enforced; something outside autocap limits "
                f"it, so pass --max-cap {enforced_w:g} or less",
                enforced_w,
            )


class SimulatedLimits(LimitPort):
    """The LimitPort of a simulated device: reads and sets its requested limits, by UUID."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def requested_w(self, uuid: str) -> float | None:
        """The limit that was last requested, by anybody, watts. Raises DeviceError for an unknown UUID."""
        gpu = self._gpu(uuid)
        self._device._catch_up()
        return self._device._requested_w[gpu.index]

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a limit. Raises LimitRefused where it is out of range, not permitted or not enforced."""
        self._device._request(self._gpu(uuid), cap_w)

    def _gpu(self, uuid: str) -> GpuInfo:
        known = {gpu.uuid: gpu for gpu in self._device.gpus}
        if uuid not in known:
            raise DeviceError(f"no simulated GPU has the UUID {uuid}; there are {', '.join(known)}")
        return known[uuid]


class SimulatedMeter:
    """A PowerSource of the whole machine, to be read at least once a second of simulated time.

    rest_w: what all but the device's GPUs draws, while the job runs and before. refresh_s: between readings, each of
    which is the mean since the last. noise: of a reading, relative standard deviation. Equal seeds give equal readings.
    """

    name = "a simulated meter"
    whole = True

    def __init__(
        self,
        device: SimulatedDevice,
        clock: Clock,
        *,
        rest_w: float,
        refresh_s: float = 0.1,
        noise: float = 0.001,
        seed: int = 0,
    ) -> None:
        self._device, self._clock, self._rest_w = device, clock, rest_w
        self.refresh_s, self._noise = refresh_s, noise
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
        self._tick = math.floor(clock.now() / refresh_s)
        self._gpu_j = self._counted_j(self._tick * refresh_s)
        self._reading = NodeReading(t_s=self._tick * refresh_s, power_w=None, whole=True)

    def read(self) -> NodeReading:
        tick = math.floor(self._clock.now() / self.refresh_s + 1e-9)
        if tick > self._tick:
            now_s = tick * self.refresh_s
            gpu_j = self._counted_j(now_s)
            power_w = (gpu_j - self._gpu_j) / (now_s - self._tick * self.refresh_s) + self._rest_w
            noise = float(self._rng.standard_normal(tick - self._tick)[-1])
            self._tick, self._gpu_j = tick, gpu_j
            self._reading = NodeReading(t_s=now_s, power_w=power_w * (1 + self._noise * noise), whole=True)
        return self._reading

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def _counted_j(self, t_s: float) -> float:
        """What the GPUs have used up to a moment of late, by their counters, between whose updates power is even."""
        views = [self._device.view(gpu) for gpu in range(len(self._device.gpus))]
        return sum(float(np.interp(t_s, view.energy_t_s, view.energy_j)) for view in views)
