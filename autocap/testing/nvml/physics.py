"""What the cards of an emulated machine draw and show, from the simulated device.

Every process simulates for itself. That gives all of them the same machine, because the simulation follows from its
seed and from the limits that were set, and those are on the board, each before it takes hold.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from autocap.clock import Clock
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.job.processes import identify
from autocap.records import StepReading
from autocap.testing.logged_sensors import LOGGED
from autocap.testing.nvml.board import State, by_firmware, timeline
from autocap.testing.nvml.machine import Change
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import CardView, LimitChange, SimulatedNode

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Cards that work together, or, with no start, rest."""

    gpus: tuple[int, ...]
    profile: str
    iterations: int | None = None
    start_s: float | None = None
    pid: int | None = None


@dataclass(slots=True, kw_only=True)
class _Player:
    """A group as it is simulated. dead_s: when its process was seen to have ended, and what its cards had used by
    then."""

    group: _Group
    device: SimulatedDevice
    looked_s: float = -_LOOK_S
    dead_s: float | None = None
    dead_j: tuple[float, ...] = ()


class Physics:
    """The cards of one machine in one process, brought up to date by `sync`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: State | None = None  # the last one that was taken in
        self._players: list[_Player] = []
        self._places: dict[int, tuple[_Player, int]] = {}  # by card: who plays it, and which of its cards that is
        self._known = 0  # how many of the limits that were set the simulation has
        self._by_firmware: list[Change] = []  # what the cards make of limits, as far as these were set
        self._stepped_s = _BEFORE_S  # up to when it has what the cards' firmware made of them
        self._samples: dict[int, deque[tuple[float, float]]] = {}

    def sync(self, state: State) -> None:
        """Take in the limits that were set and the jobs that began since."""
        if state is not self._state:
            self._take_in(state)
            self._state = state
        self._step(state)
        for player in self._players:
            self._look_for_the_job(player)

    def _take_in(self, state: State) -> None:
        groups = _groups(state)
        known = {player.group: player for player in self._players}
        self._by_firmware = by_firmware(state)
        self._schedule(state)
        if list(known) != groups:
            self._players = [known.get(group) or self._player(state, group) for group in groups]
            for player in self._players:
                for card, gpu in enumerate(player.group.gpus):
                    if self._places.get(gpu, (None,))[0] is not player:
                        self._samples[gpu] = deque(maxlen=_BUFFER)
                    self._places[gpu] = (player, card)
            self._known = len(state.changes)

    def steps(self, gpu: int | None = None) -> StepReading | None:
        """The iterations done so far by the job on a card, by the largest one unless given."""
        busiest = max(self._players, key=lambda one: len(one.group.gpus)) if gpu is None else self._places[gpu][0]
        return busiest.device.steps(self._clock.now())

    def ends_s(self) -> tuple[float, ...]:
        """When each of them really ended."""
        busiest = max(self._players, key=lambda one: len(one.group.gpus))
        return tuple(busiest.device.true_ends_s().tolist())

    def used_j(self, start_s: float, end_s: float) -> tuple[float, ...]:
        """What each card really used between two times that have passed, joules."""
        energies_j = {id(player): player.device.true_energy_j(start_s, end_s) for player in self._players}
        return tuple(energies_j[id(player)][card] for _, (player, card) in sorted(self._places.items()))

    def ended(self, gpu: int | None = None) -> bool:
        """Whether the job on a card, or any, has done all of its iterations."""
        players = self._players if gpu is None else [self._places[gpu][0]]
        return any(player.device.job_ended for player in players)

    def shown(self, gpu: int) -> Shown:
        player, card = self._places[gpu]
        view, now_s = player.device.view(card), self._clock.now()
        self._collect(gpu, view, now_s)
        power = max(0, bisect_right(view.power_t_s, now_s) - 1)
        clock = max(0, bisect_right(view.clock_t_s, now_s) - 1)
        energy_j = view.energy_j[max(0, bisect_right(view.energy_t_s, now_s) - 1)]
        idle_w = profiles.load(player.group.profile).idle_w
        dead = player.dead_s is not None
        if player.dead_s is not None and player.dead_j:
            energy_j = player.dead_j[card] + idle_w * (now_s - player.dead_s)
        return Shown(
            stamp_s=view.power_t_s[power],
            power_w=idle_w if dead else view.power_w[power],
            average_w=idle_w if dead else view.average_w[power],
            energy_j=energy_j,
            clock_hz=view.clock_hz[clock],
            binding=view.binding[clock] and not dead,
            busy=self._is_busy(player, now_s),
        )

    def power_w(self) -> float:
        """What all cards show."""
        return sum(self.shown(gpu).power_w for gpu in self._places)

    def samples(self, gpu: int) -> list[tuple[float, float]]:
        """The driver's buffer: when, and watts, the oldest first."""
        self.shown(gpu)
        return list(self._samples[gpu])

    def _schedule(self, state: State) -> None:
        """Limits that were set since, to those who play their cards."""
        if not self._places:
            return
        for change in state.changes[self._known :]:
            player, card = self._places[change.gpu]
            player.device.schedule(_acting(state, player.group.profile, change, card))
        self._known = len(state.changes)

    def _step(self, state: State) -> None:
        """What the cards' firmware has made of limits since: only now is it known that no other came before."""
        now_s = self._clock.now()
        for change in self._by_firmware:
            if self._stepped_s < change.t_s <= now_s:
                player, card = self._places[change.gpu]
                player.device.schedule(_acting(state, player.group.profile, change, card))
        self._stepped_s = now_s

    def _player(self, state: State, group: _Group) -> _Player:
        machine, gpus = state.machine, group.gpus
        job = SimulatedJob(
            profile=profiles.load(group.profile),
            jitter=machine.jitter,
            iterations=group.iterations,
            start_s=_NEVER_S if group.start_s is None else group.start_s,
        )
        arrivals = [Change(t_s=_BEFORE_S, gpu=gpu, limit_mw=machine.cards[gpu].arrival_mw) for gpu in gpus]
        to_come = [change for change in self._by_firmware if change.t_s > self._stepped_s]
        known = [change for change in timeline(state) if change not in to_come]
        changes = [change for change in (*arrivals, *known) if change.gpu in gpus]
        node = SimulatedNode(
            gpus=len(gpus),
            sensor=_SENSORS[machine.sensor],
            efficiency_spread=machine.efficiency_spread,
            changes=tuple(_acting(state, group.profile, change, gpus.index(change.gpu)) for change in changes),
        )
        return _Player(group=group, device=SimulatedDevice(self._clock, job, node, seed=machine.seed))

    def _collect(self, gpu: int, view: CardView, now_s: float) -> None:
        kept = self._samples[gpu]
        newest_s = kept[-1][0] if kept else -_NEVER_S
        for t_s, power_w in zip(view.power_t_s, view.power_w, strict=True):
            if newest_s < t_s <= now_s:
                kept.append((t_s, power_w))

    def _is_busy(self, player: _Player, now_s: float) -> bool:
        start_s = player.group.start_s
        return start_s is not None and now_s >= start_s and player.dead_s is None and not player.device.job_ended

    def _look_for_the_job(self, player: _Player) -> None:
        """A job that was killed draws nothing any more."""
        now_s, pid = self._clock.now(), player.group.pid
        if player.dead_s is not None or pid is None or now_s - player.looked_s < _LOOK_S:
            return
        player.looked_s = now_s
        process = identify(pid)
        if process is None or not process.is_alive():
            player.dead_j = tuple(self.shown(gpu).energy_j for gpu in player.group.gpus)
            player.dead_s = now_s


def _groups(state: State) -> list[_Group]:
    """The jobs of a machine, each with its cards, and the cards that are left."""
    machine = state.machine
    groups = [
        _Group(
            gpus=job.gpus,
            profile=job.profile or machine.profile,
            iterations=job.iterations or machine.iterations,
            start_s=job.start_s,
            pid=job.pid,
        )
        for job in state.jobs
    ]
    every = tuple(range(len(machine.cards)))
    if not groups:
        start_s = machine.start_s if state.start_s is None else state.start_s
        gpus = machine.job_gpus if machine.job_gpus is not None else every
        one = _Group(
            gpus=gpus, profile=machine.profile, iterations=machine.iterations, start_s=start_s, pid=state.job_pid
        )
        groups = [one] if gpus else []
    taken = {gpu for group in groups for gpu in group.gpus}
    rest = tuple(gpu for gpu in every if gpu not in taken)
    # One by one, so that those that rest are the same whoever works beside them.
    return groups + [_Group(gpus=(gpu,), profile=machine.profile) for gpu in rest]


def _acting(state: State, profile: str, change: Change, card: int) -> LimitChange:
    """What a requested limit does to the simulated card: the profile knows no other caps than its own."""
    caps = profiles.load(profile).cap_range
    cap_w = state.machine.cards[change.gpu].acts_mw(change.limit_mw) / 1000
    return LimitChange(t_s=change.t_s, gpu=card, cap_w=min(max(cap_w, caps.min_w), caps.max_w))
