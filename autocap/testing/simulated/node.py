"""The machine of the simulated device: cards with sensors, the caps that act on them, and the job they run.

A limit that is set takes hold over a lag, in steps, so time falls into pieces of constant caps. Within a piece the
profile gives each card's speed and mean power, the job says how that power runs over time, and the sensors read it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocap.devices.model.sensor import PowerSensor, SensorModel, for_gpu
from autocap.testing.simulated.job import JobProgress, JobStretch, Pace, SimulatedJob, Waveform

_BEFORE_S = 1.5  # idle time before zero, so that the sensor has readings from the start
_TICK_S = 0.025  # the card's control loop moves the cap at these times
_CLOCK_STEP_HZ = 15e6
_OVERSHOOT = 1.05  # how far peaks of power may pass a cap that holds the average down
_WAIT_SHARE = 0.3  # of the power above idle, while a GPU waits for slower ones
_HOST_POWER = 0.7  # of the mean: in phases that draw less the card waits for the host, and no kernel runs
_WARM_UP_S = 120.0
_WARM_UP_STEP_S = 2.0
# The share of the last sixth of a second in which a kernel ran, in whole per cent.
_UTILISATION = SensorModel(update_s=0.2, window_s=1 / 6, noise=0.0, quantum_w=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitChange:
    """Somebody else sets the limit of one GPU."""

    t_s: float
    cap_w: float
    gpu: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """A stretch of time, seconds."""

    start_s: float
    end_s: float

    def holds(self, t_s: float) -> bool:
        return self.start_s <= t_s < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """How many cards there are, and how they behave.

    sensor: `None` for the one measured on the profile's card. sensor_gain_spread, efficiency_spread: relative
    standard deviation from card to card; an efficient card does at a cap what another needs more for. limit_w: found
    on arrival, `None` for the default. ceiling_w: an outside limiter that no request can exceed. call_s, lag_s:
    shortest and longest time of a call, and until a new limit holds fully. leakage: the share of efficiency that is
    lost as the card warms up. changes: limits set by somebody else. may_set: whether we are permitted to. hot: when
    heat holds every card at its lowest cap, whatever its limit. silent: when the sensors give no readings.
    utilisation: whether the cards report it.
    """

    gpus: int = 1
    sensor: SensorModel | None = None
    sensor_gain_spread: float = 0.0
    efficiency_spread: float = 0.0
    energy_counter: bool = True
    utilisation: bool = False
    limit_w: float | None = None
    ceiling_w: float | None = None
    call_s: tuple[float, float] = (0.010, 0.020)
    lag_s: tuple[float, float] = (0.050, 0.200)
    leakage: float = 0.0
    max_clock_hz: float = 1.77e9
    changes: tuple[LimitChange, ...] = ()
    may_set: bool = True
    hot: tuple[Spell, ...] = ()
    silent: tuple[Spell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    """What one card shows over a stretch of time: values in lists, each from its own time on, the first one held
    from before. An empty list means that there was nothing to show yet. average_w: the slow channel, at power_t_s.
    utilisation: empty where the card does not report it.
    """

    power_t_s: list[float]
    power_w: list[float]
    average_w: list[float]
    energy_t_s: list[float]
    energy_j: list[float]
    utilisation_t_s: list[float]
    utilisation: list[float]
    clock_t_s: list[float]
    clock_hz: list[float]
    binding: list[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of time: when it ends, what each card shows in it, and the truth, piece by piece."""

    end_s: float
    cards: tuple[CardView, ...]
    pieces: tuple[JobStretch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RampStep:
    """From t_s on, the cap that really acts on one card."""

    t_s: float
    gpu: int
    cap_w: float


class NodeState:
    """Everything that moves, at one moment: the job, the sensors, and the caps that act on the cards."""

    def __init__(self, job: SimulatedJob, node: SimulatedNode, limit_w: float, seed: np.random.SeedSequence) -> None:
        job_seed, card_seed, *sensor_seeds = seed.spawn(2 + node.gpus)
        cards = np.random.default_rng(card_seed)
        model = node.sensor or for_gpu(job.profile.gpu_name)
        gains = model.gain * (1.0 + node.sensor_gain_spread * cards.standard_normal(node.gpus))
        self.t_s = -_BEFORE_S
        self.job = JobProgress(job, self.t_s, np.random.default_rng(job_seed))
        self.sensors = [
            PowerSensor(replace(model, gain=float(gain)), np.random.default_rng(sensor_seed))
            for gain, sensor_seed in zip(gains, sensor_seeds, strict=True)
        ]
        firmware = np.random.default_rng(seed.spawn(1)[0])
        self.utilisation = [
            PowerSensor(_UTILISATION, firmware.spawn(1)[0]) for _ in range(node.gpus * node.utilisation)
        ]
        self._node = node
        self._profile = job.profile
        self._waveform = job.relative_waveform()
        self._efficiency = (1.0 + node.efficiency_spread * cards.standard_normal(node.gpus)).tolist()
        self._acting_w = [limit_w] * node.gpus
        self._ramp: list[_RampStep] = []

    def fork(self) -> "NodeState":
        """An independent node in the same state, with the same future."""
        twin = object.__new__(NodeState)
        twin.__dict__.update(self.__dict__)
        twin.job = self.job.fork()
        twin.sensors = [sensor.fork() for sensor in self.sensors]
        twin.utilisation = [sensor.fork() for sensor in self.utilisation]
        twin._acting_w = list(self._acting_w)
        twin._ramp = list(self._ramp)
        return twin

    def set_limit(self, gpu: int, cap_w: float, lag_s: float) -> None:
        """Let a limit that was set now take hold, from the control loop's next tick on, evenly over the lag."""
        steps = [step for step in self._ramp if step.gpu != gpu]
        from_w, count = self._acting_w[gpu], max(1, round(lag_s / _TICK_S))
        tick = int(self.t_s // _TICK_S)
        for number in range(1, count + 1):
            step_w = from_w + (cap_w - from_w) * number / count
            steps.append(_RampStep(t_s=_TICK_S * (tick + number), gpu=gpu, cap_w=step_w))
        self._ramp = sorted(steps, key=lambda step: step.t_s)

    def advance(self, until_s: float) -> Stretch:
        """Let time pass up to a later moment."""
        cards = tuple(self._view(gpu) for gpu in range(self._node.gpus))
        pieces = []
        while self.t_s < until_s:
            while self._ramp and self._ramp[0].t_s <= self.t_s:
                step = self._ramp.pop(0)
                self._acting_w[step.gpu] = step.cap_w
            pieces.append(self._piece(min([until_s, *self._next_changes_s()]), cards))
        return Stretch(end_s=until_s, cards=cards, pieces=tuple(pieces))

    def _next_changes_s(self) -> list[float]:
        """When the cap that acts on a card, or its warmth, next changes."""
        changes_s = [step.t_s for step in self._ramp[:1]]
        if self._node.leakage:
            changes_s.append(self._warmth_since_s() + _WARM_UP_STEP_S)
        changes_s += [t_s for spell in self._node.hot for t_s in (spell.start_s, spell.end_s) if t_s > self.t_s]
        return changes_s

    def _warmth_since_s(self) -> float:
        return _WARM_UP_STEP_S * float(np.floor(self.t_s / _WARM_UP_STEP_S + 1e-9))

    def _view(self, gpu: int) -> CardView:
        latest, average_w = self.sensors[gpu].latest(), self.sensors[gpu].average_w()
        busy = self.utilisation[gpu].latest() if self.utilisation else None
        return CardView(
            power_t_s=[latest[0]] if latest else [],
            power_w=[latest[1]] if latest else [],
            average_w=[] if average_w is None else [average_w],
            energy_t_s=[self.t_s],
            energy_j=[self.sensors[gpu].energy_j()],
            utilisation_t_s=[busy[0]] if busy else [],
            utilisation=[busy[1]] if busy else [],
            clock_t_s=[],
            clock_hz=[],
            binding=[],
        )

    def _piece(self, end_s: float, cards: Sequence[CardView]) -> JobStretch:
        """Constant caps up to end_s; what the cards show is added to their views."""
        paces = [self._pace(gpu) for gpu in range(self._node.gpus)]
        piece = self.job.advance(end_s, paces)
        full_hz = self._clock_hz(self._profile.default_time_s)
        for gpu, card in enumerate(cards):
            readings = self.sensors[gpu].advance(piece.edges_s[gpu], piece.power_w[gpu], self._acting_w[gpu])
            card.power_t_s.extend(readings.t_s.tolist())
            card.power_w.extend(readings.power_w.tolist())
            card.average_w.extend(readings.average_w.tolist())
            card.energy_t_s.extend(readings.energy_t_s.tolist())
            card.energy_j.extend(readings.energy_j.tolist())
            if self.utilisation:
                busy = (piece.power_w[gpu] > self._waiting_w(paces[gpu])).astype(np.float64)
                sampled = self.utilisation[gpu].advance(piece.edges_s[gpu], busy)
                card.utilisation_t_s.extend(sampled.t_s.tolist())
                card.utilisation.extend(sampled.power_w.tolist())
            clock_hz = self._clock_hz(paces[gpu].time_s)
            card.clock_t_s.append(self.t_s)
            card.clock_hz.append(clock_hz)
            card.binding.append(clock_hz < full_hz)
        self.t_s = end_s
        return piece

    def _pace(self, gpu: int) -> Pace:
        """How fast a card goes and what it draws at the cap that acts on it.

        A cap that holds the average down holds the peaks down as well, so the waveform flattens under low caps.
        """
        profile, cap_w = self._profile, self._acting_w[gpu]
        if any(spell.holds(self.t_s) for spell in self._node.hot):
            cap_w = profile.cap_range.min_w
        mean_w = profile.power_w(cap_w)
        deviation = self._waveform.power - 1.0
        room = max(0.0, _OVERSHOOT * cap_w / mean_w - 1.0)
        flattened = 1.0 + deviation * min(1.0, room / max(float(deviation.max()), 1e-9))
        return Pace(
            time_s=profile.time_s(self._worth_w(gpu, cap_w)),
            waveform=Waveform(bounds=self._waveform.bounds, power=mean_w * flattened),
            wait_w=profile.idle_w + _WAIT_SHARE * (mean_w - profile.idle_w),
            idle_w=profile.idle_w,
        )

    def _waiting_w(self, pace: Pace) -> float:
        """What a card draws at most while no kernel runs."""
        waits = self._waveform.power < _HOST_POWER
        powers_w = pace.waveform.power
        idlest_w = float(powers_w[waits].max()) if waits.any() else pace.idle_w
        return max(pace.wait_w, 0.5 * (idlest_w + float(powers_w[~waits].min())))

    def _worth_w(self, gpu: int, cap_w: float) -> float:
        """The cap that lets the published card go as fast as this one, which may be better, worse or warmer."""
        warmth = 1.0 - float(np.exp(-max(0.0, self._warmth_since_s()) / _WARM_UP_S))
        worth_w: float = cap_w * self._efficiency[gpu] * (1.0 - self._node.leakage * warmth)
        return min(max(worth_w, self._profile.cap_range.min_w), self._profile.cap_range.max_w)

    def _clock_hz(self, time_s: float) -> float:
        """The SM clock as shown, in the card's steps, taken to be proportional to the speed."""
        share = min(1.0, self._profile.default_time_s / time_s)
        return _CLOCK_STEP_HZ * int(self._node.max_clock_hz * share / _CLOCK_STEP_HZ + 1e-9)
