"""Whole jobs on the simulated device: the real controller, runner and sensors, in virtual time.

`tune` runs one job to its end; the rest says how good the outcome is against the truth that only a simulation knows.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from autocap import events
from autocap.clock import Clock, VirtualClock
from autocap.config import TuneConfig
from autocap.controller.context import Action, Announce
from autocap.controller.controller import Controller
from autocap.controller.search import NewStrategy
from autocap.controller.waiting import Remembered
from autocap.devices.base import LimitPort, PowerSource
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.events import Event
from autocap.events.quote import Quote
from autocap.job import registry as packages
from autocap.limits.guard import LimitSetter
from autocap.metrics import Metric
from autocap.progress import Progress, StepProgress
from autocap.records import Measurement, RelativeCurve, Sample, StepReading, Trial
from autocap.session.runner import Runner
from autocap.session.sampling import LocalSampler
from autocap.session.search_space import cap_grid
from autocap.session.warm_start import NOTHING, WarmStartData
from autocap.strategies import registry
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.registry import StrategyFactory
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.clock import INTERVAL_S, Starvation, StarvedClock, StarvedDevice

# How other tools search, by the names that the benchmarks give them.
COMPARISONS = {
    "depo-linear": "bench.strategies.baselines:DepoLinear",
    "depo-golden": "bench.strategies.baselines:DepoGolden",
    "gpoeo": "bench.strategies.baselines:Gpoeo",
    "zeus-scan": "bench.strategies.baselines:ZeusScan",
}


def every() -> list[str]:
    """The names of all that come with autocap, and of those to compare with."""
    return [*packages.ours("strategies"), *COMPARISONS]


def find(name: str) -> StrategyFactory:
    """As the registry of users, and those to compare with by their names too."""
    return registry.find(COMPARISONS.get(name, name))


def new_strategy(
    factory: StrategyFactory,
    grid: CapGrid,
    seed: int = 0,
    options: Sequence[tuple[str, str]] = (),
    past: Sequence[Trial] = (),
    elsewhere: Sequence[RelativeCurve] = (),
) -> NewStrategy:
    """As a controller takes it. grid: the whole one. options: by name, as on a command line. past: trials of earlier
    runs, which are its history until there are some of this one. elsewhere: what other jobs have shown."""
    values = registry.option_values(factory, options, grid.knob)
    known = registry.knowing(factory, elsewhere)

    def make(baseline: Measurement, before: Sequence[Trial], caps: CapGrid, metric: Metric) -> StrategyLike:
        rng, now = np.random.default_rng(seed), registry.allowed_now(factory, values, grid, caps)
        return known(grid=caps, metric=metric, baseline=baseline, rng=rng, history=before or past, options=now)

    return make


@dataclass
class Log:
    """Keeps the events of a run."""

    events: list[Event] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, sample: Sample) -> None:
        """Samples are not kept."""

    def reason(self, error: Exception) -> str:
        return f"internal fault: {error!r}"


class SimulatedSetter(LimitSetter):
    """Sets simulated limits. Nothing outlives the process, so none is guarded; somebody else's limit stays."""

    def __init__(self, device: SimulatedDevice, original_w: Sequence[float]) -> None:
        self._limits: LimitPort = device.limits()
        self._uuids = [gpu.uuid for gpu in device.gpus]
        self._original_w = tuple(original_w)
        self._ours_w = self._original_w

    def set_caps(self, caps_w: Sequence[float]) -> None:
        self._ours_w = tuple(caps_w)
        for uuid, cap_w in zip(self._uuids, caps_w, strict=True):
            self._limits.set_limit_w(uuid, cap_w)

    def restore(self) -> None:
        for uuid, ours_w, original_w in zip(self._uuids, self._ours_w, self._original_w, strict=True):
            if self._limits.requested_w(uuid) == ours_w:
                self._limits.set_limit_w(uuid, original_w)

    def beat(self) -> bool:
        return False


class SimulatedProcess:
    """The job as a process: it ends when its iterations are done, or at a time."""

    def __init__(self, device: SimulatedDevice, clock: VirtualClock, end_s: float) -> None:
        self._device, self._clock, self._end_s = device, clock, end_s

    def poll(self) -> int | None:
        return 0 if self._clock.now() >= self._end_s or self._device.job_ended else None

    def ends(self, after_s: float) -> None:
        """It ends so many seconds from now."""
        self._end_s = self._clock.now() + after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One finished job. final_cap_w: the common cap that was kept at the end, watts. log: all that was announced."""

    final_cap_w: float
    log: Log
    grid: CapGrid
    wall_s: float
    device: SimulatedDevice

    @property
    def trials(self) -> list[events.TrialEnded]:
        return [event for event in self.log.events if isinstance(event, events.TrialEnded)]

    @property
    def decided(self) -> events.Decided | None:
        return next((event for event in self.log.events if isinstance(event, events.Decided)), None)

    @property
    def story(self) -> str:
        """What was set, tried, decided and warned of, for looking into a single seed."""
        return "; ".join(f"{event.t_s:.1f} {text}" for event in self.log.events if (text := _told(event)))


def _told(event: Event) -> str | None:
    match event:
        case events.CapSet():
            return f"set {event.setting[0]:g}"
        case events.TrialStarted():
            return f"try {event.setting:g}"
        case events.Granted():
            return f"up to {event.ceiling_w}"
        case events.StateEntered():
            return event.state.value
        case events.Warned():
            return f"! {event.text}"
        case events.Decided():
            return f"decided {event.setting} {event.reason}"
    return None


def tune(
    job: SimulatedJob,
    config: TuneConfig,
    strategy_name: str,
    *,
    options: Sequence[tuple[str, str]] = (),
    node: SimulatedNode | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    end_s: float = 86400.0,
    stop_when_held: bool = False,
    log: Log | None = None,
    meter: Callable[[SimulatedDevice, Clock], PowerSource] | None = None,
    starvation: Starvation | None = None,
    earlier: WarmStartData = NOTHING,
    grants: Sequence[tuple[float, float | None]] = (),
    quotes: Sequence[tuple[float, str, Quote | None]] = (),
    since: Callable[[Event], bool] | None = None,
    after_s: float | None = None,
    finish_s: float | None = None,
    counter: Callable[[SimulatedDevice, Clock, Controller], Callable[[], StepReading | None]] | None = None,
) -> Outcome:
    """Tune one simulated job to its end, or, with `stop_when_held`, until a cap is held.

    progress: steps unless another is given. log: hears of everything; a new one unless given. meter: makes the source
    of the machine's power. starvation: of autocap, by the other work on its machine. earlier: what is remembered.
    grants: from when on which ceiling of a budget holds, seconds and watts, `None` for none. quotes: when what becomes
    known of prices or of carbon. since: from the first event of which it is true both count, instead of from the job's
    beginning. after_s: the job ends so long after the last of them, not at end_s. finish_s: by when the job is to be
    done. counter: makes what counts the iterations; the job counts them unless given.
    """
    clock, device, starves = _machine(job, node, starvation, seed)
    original_w = tuple(reading.requested_w or 0.0 for reading in device.read())
    grid = cap_grid(config, device.gpus, original_w)
    progress = progress or StepProgress()
    past = earlier.history(config.metric, progress.kind, original_w)
    controller = ToldController(
        config=config,
        sensor=device.sensor,
        original_w=original_w,
        grid=grid,
        progress=progress,
        new_strategy=new_strategy(find(strategy_name), grid, seed, options, past),
        remembered=Remembered.of(earlier.best_w(config.metric, grid, original_w), past, original_w),
        finish_s=finish_s,
        usual_iterations=earlier.job_iterations,
    )
    told = [(t_s, partial(controller.grant, ceiling_w=ceiling_w)) for t_s, ceiling_w in grants]
    told += [(t_s, partial(controller.quote, kind=kind, quote=quote)) for t_s, kind, quote in quotes]
    process = SimulatedProcess(device, clock, end_s)
    controller.listen(told, since, (lambda: None) if after_s is None else partial(process.ends, after_s))
    log = log or Log()
    setter = SimulatedSetter(device, original_w)
    runner = Runner(
        clock=clock,
        sampler=LocalSampler(
            clock=clock,
            device=device,
            steps=(lambda: device.steps(clock.now())) if counter is None else counter(device, clock, controller),
            node=None if meter is None else meter(device, clock),
        ),
        controller=controller,
        job=_Until(process, controller) if stop_when_held else process,
        sink=log,
        pace=lambda: INTERVAL_S if starves() else controller.interval_s,
        setter=setter,
    )
    runner.run()
    setter.restore()
    return Outcome(
        final_cap_w=_held(log, original_w[0]),
        log=log,
        grid=grid,
        wall_s=clock.now(),
        device=device,
    )


def _machine(
    job: SimulatedJob, node: SimulatedNode | None, starvation: Starvation | None, seed: int
) -> tuple[VirtualClock, SimulatedDevice, Callable[[], bool]]:
    """The clock, the devices, and whether autocap is starved now: then samples come as the clock lets them."""
    if starvation is None:
        clock = VirtualClock()
        device = SimulatedDevice(clock, job, node, seed=seed)
        return clock, device, lambda: False
    starved = StarvedClock(starvation, seed)
    device = StarvedDevice(starved, job, node, seed=seed)
    return starved, device, lambda: starved.is_starved


class ToldController(Controller):
    """A controller that is told of ceilings and quotes at times that are known before."""

    def listen(
        self,
        told: Sequence[tuple[float, Callable[[float], list[Action]]]],
        since: Callable[[Event], bool] | None,
        over: Callable[[], None],
    ) -> None:
        """told: what it is told, and when, seconds; from the first event on of which `since` is true, where that is
        given. over: is called after the last of them."""
        self._told = deque(sorted(told, key=lambda one: one[0]))
        self._since, self._over = since, over
        self._from_s = 0.0 if since is None else math.inf

    def feed(self, sample: Sample) -> list[Action]:
        actions: list[Action] = []
        while self._told and self._from_s + self._told[0][0] <= sample.t_s:
            actions += self._told.popleft()[1](sample.t_s)
            if not self._told:
                self._over()
        actions += super().feed(sample)
        if self._since is not None and self._from_s == math.inf:
            announced = (action.event for action in actions if isinstance(action, Announce))
            if sum(map(self._since, announced)):  # it is to hear of all
                self._from_s = sample.t_s
        return actions


class _Until:
    """Ends the run as soon as the controller holds a cap."""

    def __init__(self, process: SimulatedProcess, controller: Controller) -> None:
        self._process, self._controller = process, controller

    def poll(self) -> int | None:
        held = self._controller.state in (events.State.HOLDING, events.State.DONE)
        return 0 if held else self._process.poll()


def _held(log: Log, original_w: float) -> float:
    decided = [event for event in log.events if isinstance(event, events.Decided)]
    return original_w if not decided or decided[-1].setting is None else decided[-1].setting


def true_costs(
    profile: Profile, metric: Metric, caps_w: Sequence[float], original_w: float
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The metric at each cap without any noise, against the original limit; shape (caps,)."""
    base = exact(profile, original_w)
    return np.array([metric.cost(exact(profile, cap), base).value for cap in caps_w])


def regret_pct(profile: Profile, metric: Metric, grid: CapGrid, cap_w: float, original_w: float) -> float:
    """How much worse the kept cap truly is than the best of its grid, percent."""
    best = true_costs(profile, metric, grid, original_w).min()
    return 100 * float(true_costs(profile, metric, [cap_w], original_w)[0] / best - 1)


def exact(profile: Profile, cap_w: float) -> Measurement:
    """What a cap truly costs by the profile, without any error."""
    time_s, power_w = float(profile.time_s(cap_w)), float(profile.power_w(cap_w))
    return certain((cap_w,), time_s, time_s * power_w)


def certain(caps_w: tuple[float, ...], period_s: float, energy_j: float) -> Measurement:
    """What caps truly cost per iteration, as a measurement without any error."""
    return Measurement(
        setting=caps_w,
        start_s=0.0,
        duration_s=period_s,
        iterations=1,
        period_s=period_s,
        period_rel_stderr=0.0,
        power_w=energy_j / period_s,
        power_rel_stderr=0.0,
        energy_per_iteration_j=energy_j,
        energy_rel_stderr=0.0,
        time_energy_corr=0.0,
    )


def seed_profiles() -> list[Profile]:
    """The twelve profiles fitted to the published tables."""
    return [profiles.load(name) for name in profile_names()]
