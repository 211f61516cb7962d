"""A node of twenty cards under a budget that falls by a quarter while its jobs are tuned: five jobs of four cards, one
of which nobody tunes. The manager's own code sets the limits, through an emulated NVML, and each tuner is a whole
controller with its sensors; only sockets and processes are missing, and time is virtual.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.controller.context import SetCaps
from autocap.devices.model import profile_names, profiles
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.library import open_library
from autocap.events import State
from autocap.limits import Guardian
from autocap.metrics import Metric
from autocap.plugins.fleet.budget.client import known_of
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.shares import Curves, Floats, JobCurve, share
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.allocation import Allocation
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.finding import FoundJob
from autocap.records import Sample
from autocap.testing.nvml import MemoryBoard, emulated, machine, times
from autocap.testing.nvml.board import PlayedJob, requested_mw
from bench.budget.curves import truth
from bench.budget.live import METRIC, controller_of
from bench.faults.virtual import Unwatched

GPUS, JOBS = 4, 5
SAMPLE_S, _LOOK_S = 0.2, 0.5
_PUBLISH_S = 5.0
_DROP = 0.75  # of all limits found, which the budget allows at first
_DROP_S, _UNTIL_S, _LAST_S = (15.0, 60.0), 300.0, 60.0  # when it falls, for how long, and what is judged in the end
_STEP_S = 0.1
_ALLOWED = 0.3  # a slowdown, of every tuner under `energy`
_SLOWER = 0.01  # than what is allowed, as caps come in steps


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """spread: highest less lowest slowdown in the last minute, points. behind: of the tuned job that lost most since
    the drop, beyond the fair share of the true curves, points. untuned: what the one that nobody tunes was slower than
    the tuned ones in the mean since the drop, points; below 0 where it was faster. above_s: longest time above the
    budget. joules: the most that a job took per iteration over a second, over those at its limit found, less 1,
    percent. slow_s: longest time that one was slower than its tuner allows."""

    seed: int
    spread: float
    behind: float
    untuned: float
    above_s: float
    joules: float
    slow_s: float


class _Tuner:
    """A tuner and its job on some of the node's cards, as the manager lends them."""

    def __init__(self, node: "_Node", gpus: Sequence[int], metric: Metric, seed: int) -> None:
        self._node, self._first, self._metric = node, gpus[0], metric
        self.next_s, self._publish_s = node.clock.now(), node.clock.now()
        job = FoundJob(pid=100 + gpus[0], uuids=tuple(node.uuids[gpu] for gpu in gpus))
        self.allocation = node.enforcer.lend(self.next_s, job)
        found_w, _ = node.enforcer.found(self.allocation)
        self._found_w = min(found_w)
        device = NvmlDevice(node.library, job.uuids, node.clock, observe=False, watch_s=0.0)
        self._read, self._is_told = device.read, False
        self.controller = controller_of(TuneConfig(metric=metric), device.gpus, device.sensor, found_w, seed)
        self._act(self.controller.grant(self.next_s, self.allocation.ceiling_w))

    def sample(self) -> None:
        now_s = self._node.clock.now()
        if self._is_told:
            self._is_told = False
            self._act(self.controller.grant(now_s, self.allocation.ceiling_w))
        steps = self._node.cards.physics().steps(self._first)
        self._act(self.controller.feed(Sample(t_s=now_s, readings=self._read(), steps=steps)))
        self.next_s = max(self.next_s + self.controller.interval_s, self._node.clock.now())
        if now_s >= self._publish_s and self.controller.curve is not None:
            self._publish_s = now_s + _PUBLISH_S
            searching = self.controller.state is not State.HOLDING
            known = known_of(self.controller.curve, self._found_w, searching=searching)
            columns = (known.caps_w, known.slowdown, known.energy, known.slowdown_stderr, known.energy_stderr)
            caps_w, slowdown, energy, slowdown_stderr, energy_stderr = map(np.array, columns)
            allowed = self._metric.max_slowdown
            curve = JobCurve(
                caps_w=caps_w, slowdown=slowdown, energy=energy, slowdown_stderr=slowdown_stderr,
                energy_stderr=energy_stderr, devices=GPUS, most_slowdown=np.inf if allowed is None else allowed,
            )  # fmt: skip
            self._node.enforcer.learn(now_s, self.allocation, curve)

    def told(self) -> None:
        """It hears of another ceiling, and heeds it once the manager has set what it is to set."""
        self._is_told, self.next_s = True, self._node.clock.now()

    def _act(self, actions: Sequence[object]) -> None:
        for action in actions:
            if isinstance(action, SetCaps):
                self._node.enforcer.set_caps(self._node.clock.now(), self.allocation, action.settings)


class _Node:
    """The machine, its manager, and its jobs. names: of their curves."""

    def __init__(self, folder: Path, names: Sequence[str], policy: Policy, seed: int) -> None:
        self.clock, self.names = VirtualClock(), names
        made = replace(machine(names[0], gpus=GPUS * JOBS), start_s=None, sensor="v100", seed=seed)
        self.board = MemoryBoard(made)
        self.uuids = tuple(card.uuid for card in made.cards)
        self.found_w = made.cards[0].default_mw / 1000
        self.budget_w = self.found_w * len(made.cards)
        self.jobs = [tuple(range(GPUS * job, GPUS * (job + 1))) for job in range(JOBS)]
        self.tuners = list[_Tuner]()
        self._folder, self._policy = folder, policy
        self._next_s = self._look_s = 0.0

    @contextmanager
    def managed(self) -> Iterator[None]:
        """While it is, its limits are set by a manager."""
        waits = times(self.clock)
        with emulated(self.board, self.clock) as self.cards, open_library(**waits) as self.library:
            device = NvmlDevice(self.library, self.uuids, self.clock, observe=False, watch_s=0.0)
            guardian = Guardian(
                kind="nvml",
                gpus=device.gpus,
                limits=device.limits(),
                job=None,
                state_dir=self._folder / "state",
                sync=lambda fd: None,
                start_watch=Unwatched,
            )
            with guardian:
                self.enforcer = BudgetEnforcer(
                    device=device,
                    guard=guardian,
                    ledger=Ledger(self.budget_w, policy=self._policy),
                    least_w=[_watts(card.min_mw) for card in self.board.read().machine.cards],
                    say=lambda event: None,
                )
                self.enforcer.tell = self._tell
                self.enforcer.begin(self.clock.now())
                yield

    def come(self, untuned: int, metric: Metric, seed: int) -> None:
        """All jobs begin to compute, and the tuners of all but one."""
        for gpus, name in zip(self.jobs, self.names, strict=True):
            played = PlayedJob(gpus=gpus, pid=os.getpid(), start_s=self.clock.now(), profile=name)
            self.board.update(lambda state, played=played: state.with_job(played))  # type: ignore[misc]
        self.pass_time(1.0)
        for number, gpus in enumerate(self.jobs):
            if number != untuned:
                self.tuners.append(_Tuner(self, gpus, metric, seed + number))

    def pass_time(self, seconds: float) -> None:
        """What manager and tuners do meanwhile."""
        end_s = self.clock.now() + seconds
        while True:
            due_s = min(self._next_s, *(one.next_s for one in self.tuners), np.inf)
            if due_s > end_s:
                self.clock.wait_until(end_s)
                return
            self.clock.wait_until(due_s)
            for tuner in self.tuners:
                if tuner.next_s <= due_s:
                    tuner.sample()
            if self._next_s <= due_s:
                self._manage()

    def slowdowns(self) -> Floats:
        """Of all jobs, by the published curves at the caps that are set."""
        return np.array([float(profiles.load(name).slowdown(w)) - 1 for name, w in self._held()])

    def joules(self) -> Floats:
        """Per iteration, of all jobs, over those at the limit found."""
        made = [(profiles.load(name), w) for name, w in self._held()]
        return np.array([one.energy_j(w) / one.energy_j(self.found_w) for one, w in made])

    def power_w(self) -> float:
        """What all draw by the published curves."""
        return float(sum(GPUS * profiles.load(name).power_w(w) for name, w in self._held()))

    def fair(self, budget_w: float) -> Floats:
        """The slowdowns of all under a budget, watts, shared by the true curves."""
        curves = [replace(truth(profiles.load(name)), devices=GPUS) for name in self.names]
        return share(Curves.of(curves), budget_w, self._policy).slowdown

    def _held(self) -> list[tuple[str, float]]:
        state, now_s = self.board.read(), self.clock.now()
        return [
            (name, requested_mw(state, gpus[0], now_s) / 1000) for gpus, name in zip(self.jobs, self.names, strict=True)
        ]

    def _manage(self) -> None:
        now_s = self.clock.now()
        self._next_s = now_s + SAMPLE_S
        self.enforcer.beat(now_s)
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            there = self.board.read().jobs
            found = [FoundJob(pid=100 + job.gpus[0], uuids=tuple(self.uuids[gpu] for gpu in job.gpus)) for job in there]
            self.enforcer.look(now_s, found)
        self.enforcer.sample(now_s)
        self.enforcer.act(self.clock.now())

    def _tell(self, allocation: Allocation) -> None:
        for tuner in self.tuners:
            if tuner.allocation is allocation:
                tuner.told()


def _watts(milliwatts: int) -> float:
    """Watts."""
    return milliwatts / 1000


def play(policy: Policy, seed: int, *, drop_s: float | None = None, until_s: float = _UNTIL_S) -> NodeRow:
    """One node through its story, drawn from a seed: which curves, who is not tuned, when the budget falls, unless
    that is given, seconds. until_s: for how long it has."""
    rng = np.random.default_rng([seed, 24])
    kinds = sorted({name.split("/")[0] for name in profile_names()})
    kind = kinds[int(rng.integers(len(kinds)))]
    names = [name for name in profile_names() if name.startswith(kind)]
    names = [names[one] for one in rng.permutation(len(names))[:JOBS]]
    untuned, drawn_s = int(rng.integers(JOBS)), float(rng.uniform(*_DROP_S))
    metric = replace(METRIC, max_slowdown=_ALLOWED if policy is Policy.ENERGY else None)
    with TemporaryDirectory() as folder:
        node = _Node(Path(folder), names, policy, seed)
        with node.managed():
            node.pass_time(1.0)
            node.come(untuned, metric, seed)
            node.pass_time(drawn_s if drop_s is None else drop_s)
            return _judged(node, seed, untuned, until_s)


def _judged(node: _Node, seed: int, untuned: int, until_s: float) -> NodeRow:
    budget_w, tuned = _DROP * node.budget_w, np.arange(JOBS) != untuned
    node.enforcer.ledger.budget(node.clock.now(), budget_w)
    begun_s = node.clock.now()
    node.enforcer.act(begun_s)
    slowdowns, joules = list[Floats](), list[Floats]()
    above_s = longest_s = node.clock.now() - begun_s  # as if none had a lower cap before all have
    slow_s, slowest_s = np.zeros(JOBS), 0.0
    while node.clock.now() < begun_s + until_s:
        node.pass_time(_STEP_S)
        slowdowns.append(node.slowdowns())
        joules.append(node.joules())
        above_s = above_s + _STEP_S if node.power_w() > budget_w else 0.0
        longest_s = max(longest_s, above_s)
        slow_s = np.where(tuned & (slowdowns[-1] > _ALLOWED + _SLOWER), slow_s + _STEP_S, 0.0)
        slowest_s = max(slowest_s, float(slow_s.max()))
    of_all, fair = 100 * np.array(slowdowns), 100 * node.fair(budget_w)
    mean, second = of_all.mean(axis=0), min(round(1 / _STEP_S), len(joules))
    taken = np.array(joules)
    means = np.array([taken[at : at + second].mean(axis=0) for at in range(0, len(taken) - second + 1, second)])
    return NodeRow(
        seed=seed,
        spread=float(np.ptp(of_all[-round(_LAST_S / _STEP_S) :].mean(axis=0))),
        behind=float((mean - fair)[tuned].max()),
        untuned=float(mean[untuned] - mean[tuned].mean()),
        above_s=longest_s,
        joules=100 * float(means.max() - 1),
        slow_s=slowest_s,
    )


def table(policies: Sequence[Policy], seeds: Sequence[int]) -> Iterator[str]:
    """A line for each policy and seed."""
    yield (
        "| policy | seed | spread | behind the fair share | the untuned beside the tuned | above, s | joules | "
        "slower than allowed, s |"
    )
    yield "|" + "---|" * 8
    for policy in policies:
        for row in (play(policy, seed) for seed in seeds):
            even = policy is Policy.FAIR
            slow = f"{row.slow_s:.1f}" if policy is Policy.ENERGY else "–"
            yield (
                f"| {policy} | {row.seed} | {f'{row.spread:.1f}' if even else '–'} | "
                f"{f'{row.behind:+.1f}' if even else '–'} | {f'{row.untuned:+.1f}' if even else '–'} | "
                f"{row.above_s:.1f} | {row.joules:+.1f} % | {slow} |"
            )
