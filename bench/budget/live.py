"""A few jobs with everything real but time: each has its own controller, sensors and simulated cards, and the ledger
sets its ceiling. A grant reaches a job with the next round of the manager, four times a second."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.context import Action, SetCaps
from autocap.controller.known_curve import KnownCurve
from autocap.devices.model.profiles import Profile
from autocap.metrics import Metric
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.orders import Order
from autocap.plugins.fleet.budget.shares import prior
from autocap.plugins.fleet.config import Policy
from autocap.progress import StepProgress
from autocap.records import GpuInfo, Sample, SensorInfo
from autocap.session.search_space import cap_grid
from autocap.strategies import registry
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from bench.budget.curves import job_curve, seed_kinds
from bench.simulation.jobs import Log, SimulatedSetter, new_strategy

METRIC = Metric(name="eds", k=1.2)  # time above all, so that a budget is felt
_ROUND_S = 0.25
_FREE_S, _UNDER_S, _DROPPED_S = 300.0, 300.0, 30.0  # before the budget binds, under it, and after its drop
_COLD_S = 600.0  # under one that binds from the first second: until all were lent what their baselines take, and more
_SHARE, _DROP = 0.85, 0.75
_JUDGED_S = 60.0
_END_W = 1.0


def controller_of(
    config: TuneConfig, gpus: Sequence[GpuInfo], sensor: SensorInfo, found_w: Sequence[float], seed: int
) -> Controller:
    """That tunes a job whose steps are counted, with the strategy `model`. found_w: the limits found, watts."""
    grid = cap_grid(config, gpus, found_w)
    return Controller(
        config=config,
        sensor=sensor,
        original_w=tuple(found_w),
        grid=grid,
        progress=StepProgress(),
        new_strategy=new_strategy(registry.find("model"), grid, seed),
    )


class LiveJob:
    """One job on one card, tuned. seed: of its sensors and its iterations."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile, self.clock = profile, VirtualClock()
        self.device = SimulatedDevice(self.clock, SimulatedJob(profile=profile), seed=seed)
        self.found_w = profile.cap_range.default_w
        self._setter = SimulatedSetter(self.device, [self.found_w])
        config = TuneConfig(metric=METRIC)
        self.controller = controller_of(config, self.device.gpus, self.device.sensor, (self.found_w,), seed)
        self.log = Log()
        self.set_w = self.drawn_w = self.found_w
        self._next_s = 0.0

    def run_until(self, t_s: float) -> None:
        """Take samples and do what follows from them."""
        while self._next_s <= t_s:
            self.clock.wait_until(max(self._next_s, self.clock.now()))
            now_s = self.clock.now()
            steps, readings = self.device.steps(now_s), self.device.read()
            self.drawn_w = readings[0].power_w or self.drawn_w
            self._act(self.controller.feed(Sample(t_s=now_s, readings=readings, steps=steps)))
            self._next_s = max(self._next_s + self.controller.interval_s, self.clock.now())
        self.clock.wait_until(max(t_s, self.clock.now()))

    def grant(self, cap_w: float) -> None:
        self._act(self.controller.grant(self.clock.now(), cap_w))

    @property
    def power_w(self) -> float:
        """What it draws in the mean by the published curve at the cap that is set, watts."""
        return float(self.profile.power_w(self.set_w))

    @property
    def slowdown(self) -> float:
        """By the published curve, at the cap that was set."""
        return float(self.profile.slowdown(self.set_w)) - 1

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SetCaps):
                self._setter.set_caps(action.settings)
                self.set_w = action.settings[0]
            else:
                self.log.event(action.event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """spread_pct: as of a fleet, at the end and in the median since a minute after the budget began. over_s: longest
    time above the budget. lowered_s, below_s: from the drop to caps, and power, within it. judged: how many jobs
    neither their lowest cap nor their own wish holds at the end."""

    spread_pct: tuple[float, float]
    judged: int
    budget_w: float
    over_s: float
    lowered_s: float
    below_s: float


class Manager:
    """What the manager of a budget does, without processes. cold: the budget holds from the first second."""

    def __init__(self, policy: Policy, seed: int, *, cold: bool) -> None:
        self.jobs = {
            profile.name: LiveJob(profile, seed + number) for number, profile in enumerate(seed_kinds().profiles)
        }
        self._ledger = Ledger(sum(job.found_w for job in self.jobs.values()), policy=policy)
        self._cold, self._t_s = cold, 0.0
        self._known: dict[str, KnownCurve] = {}
        self._lowering: dict[str, Order] = {}
        for name, job in self.jobs.items():
            self._ledger.join(0.0, name, prior(job.profile.cap_range.min_w, job.found_w), job.found_w)

    def play(self, *, free_s: float = _FREE_S, under_s: float | None = None, dropped_s: float = _DROPPED_S) -> Live:
        """So long under a budget with room for all, where that is not cold, under one without, and after its drop,
        seconds."""
        under_s = under_s or (_COLD_S if self._cold else _UNDER_S)
        if not self._cold:
            self._until(free_s)
        asked_w = sum(float(self._ledger[name].curve.caps_w[-1]) for name in self.jobs)
        budget_w, begun_s = _SHARE * asked_w, self._t_s
        self._ledger.budget(self._t_s, budget_w)
        spreads, over_s, longest_s = list[float](), 0.0, 0.0
        while self._t_s < begun_s + under_s:
            power_w = self._round()
            over_s = over_s + _ROUND_S if power_w > budget_w and self._t_s > begun_s + 5 else 0.0
            longest_s = max(longest_s, over_s)
            if self._t_s >= begun_s + _JUDGED_S:
                spreads.append(self._spread_pct()[0])
        end, judged = self._spread_pct()
        lowered_s, below_s = self._drop(_DROP * budget_w, dropped_s)
        return Live(
            spread_pct=(end, float(np.nanmedian(spreads)) if spreads else end),
            judged=judged,
            budget_w=budget_w,
            over_s=longest_s,
            lowered_s=lowered_s,
            below_s=below_s,
        )

    def _drop(self, budget_w: float, until_s: float) -> tuple[float, float]:
        begin_s, lowered_s, below_s = self._t_s, np.inf, np.inf
        self._ledger.budget(self._t_s, budget_w)
        while self._t_s < begin_s + until_s:
            power_w = self._round()
            passed_s = self._t_s - begin_s
            if sum(job.set_w for job in self.jobs.values()) <= budget_w:
                lowered_s = min(lowered_s, passed_s)
            if power_w <= budget_w:
                below_s = min(below_s, passed_s)
        return float(lowered_s), float(below_s)

    def _spread_pct(self) -> tuple[float, int]:
        """Of the jobs that the budget holds; and how many these are."""
        held = [
            100 * job.slowdown
            for name, job in self.jobs.items()
            if name in self._known
            and job.set_w > job.profile.cap_range.min_w + _END_W
            and job.set_w < float(self._ledger[name].curve.caps_w[-1]) - _END_W
        ]
        return (max(held) - min(held) if len(held) > 1 else float("nan")), len(held)

    def _until(self, t_s: float) -> None:
        while self._t_s < t_s:
            self._round()

    def _round(self) -> float:
        """A quarter of a second; the power of it, watts: a cap takes up to 0.22 s to hold, so that the higher of the
        two counts where it was changed."""
        before_w = [job.power_w for job in self.jobs.values()]
        for name, job in self.jobs.items():
            known = job.controller.curve
            if known is not None and known is not self._known.get(name):
                self._known[name] = known
                self._ledger.curve(name, job_curve(known.published(job.found_w), job.profile))
            order = self._lowering.get(name)
            if order is not None and job.set_w <= order.cap_w and job.drawn_w <= 1.03 * order.cap_w + 3:
                self._ledger.confirm(name, order.serial)
                del self._lowering[name]
        for order in self._ledger.decide(self._t_s).orders:
            self.jobs[order.name].grant(order.cap_w)
            if self._ledger[order.name].standing_w <= order.cap_w:
                self._ledger.confirm(order.name, order.serial)
            else:
                self._lowering[order.name] = order
        self._t_s += _ROUND_S
        for job in self.jobs.values():
            job.run_until(self._t_s)
        return sum(map(max, before_w, (job.power_w for job in self.jobs.values())))
