"""A job that runs, joined with its device, guardian, controller and loop. Nothing here decides a cap.

Whatever goes wrong here, the job goes on; whether that is said as a warning or as an error is the caller's to choose.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from autocap import events
from autocap.clock import RunClock
from autocap.config import RunConfig
from autocap.controller.controller import Controller
from autocap.controller.waiting import Remembered
from autocap.devices.base import Device, DeviceSource, PowerSource, Tunable
from autocap.errors import DeviceError
from autocap.job.processes import ProcessId, other_setters
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Guardian
from autocap.limits.times import DRIVER_AT_END_S
from autocap.measurement.metering import IdleWatch
from autocap.metrics import Metric
from autocap.progress.counting import Counting
from autocap.records import Measurement, RelativeCurve, StepReading, Trial
from autocap.session.backend import Backend
from autocap.session.card_memory import NOWHERE, Elsewhere
from autocap.session.guarding import PASSING, TUNED_AFTER_ALL, Asking, Guarded, guarded, untuned_for_now
from autocap.session.pricing import News
from autocap.session.recorder import Recorder
from autocap.session.roles import Inbox, Job, Order
from autocap.session.runner import Runner, attended, follow, follow_until
from autocap.session.search_space import found_at, require_turnable, setting_grid, settings_now
from autocap.session.via import NewGuardian, turning
from autocap.session.warm_start import NOTHING, JobMemory, Recalled, WarmStart, WarmStartData
from autocap.strategies import registry
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import StrategyFactory

_R = TypeVar("_R")

_LOOK_EVERY_S = 0.5  # for the GPUs of a job that has only just started


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The strategy that was asked for, with the value of each of its options. warm_start: the run it is to begin
    from."""

    factory: StrategyFactory
    options: Mapping[str, OptionScalar]
    warm_start: WarmStart | None = None

    @property
    def takes_shares(self) -> bool:
        """Whether the strategy makes use of what was measured on other cards, or of other jobs."""
        return bool(getattr(self.factory, "ELSEWHERE", False))

    @property
    def required_w(self) -> tuple[float, ...]:
        """Caps that its options name, so that they must be on the grid; watts."""
        return registry.required_caps(self.factory, self.options)


class TunedJob(Job, Protocol):
    """A job that runs. identity: `None` where /proc hides it."""

    @property
    def pid(self) -> int: ...

    @property
    def identity(self) -> ProcessId | None: ...


@dataclass(slots=True, kw_only=True)
class Tuning:
    """One job that runs, and what is known of its tuning. node: of the machine's power. memory: of the job, where it is
    to be used. prices: of energy, as they change. place: where it runs. ended_because: once it has ended."""

    config: RunConfig
    clock: RunClock
    job: TunedJob
    inbox: Inbox
    recorder: Recorder
    plan: SearchPlan
    counting: Counting
    node: PowerSource | None = None
    memory: JobMemory | None = None
    prices: News | None = None
    place: Backend = field(default_factory=Backend)
    new_guardian: NewGuardian = Guardian
    ended_because: str = events.JOB_ENDED
    _idle: IdleWatch = field(default_factory=IdleWatch)
    _said: set[str] = field(default_factory=set)  # of the counter
    _knob: Knob = POWER_LIMIT  # once it is known with what it was found at
    _is_asked_to_stop: bool = False  # before there is a loop
    _doubted: bool = False  # whether it was said that the run to begin from counted otherwise

    def untuned(self, why: str) -> int:
        """Only await the job, with one warning that says why; its exit status."""
        self.ended_because = why
        self.recorder.warn(self.clock.now(), f"the job runs untuned: {why}")
        self.inbox.setter = None
        return follow(self.job, self.clock, self.inbox)

    def tuned(self, source: DeviceSource) -> int:
        """Tune from the moment at which the job uses a device until it ends; its exit status.

        Whatever keeps us from it, the job goes on and is awaited; what others keep from us for now is asked for again.
        """
        asking: Asking | None = None
        while True:
            try:
                device = self._await_device(source)
                if device is None:
                    return follow(self.job, self.clock, self.inbox)
                with closing(device):
                    return self.tune(device, late=asking is not None)
            except PASSING as error:
                self.ended_because, now_s = str(error), self.clock.now()
                if asking is None:
                    asking = Asking(now_s)
                    self.recorder.warn(now_s, untuned_for_now(str(error)))
                else:
                    asking.refused(now_s)
                self.inbox.setter = None
                status = follow_until(asking.again_s, self.job, self.clock, self.inbox)
                if status is not None:
                    return status
            except Exception as error:  # noqa: BLE001 - whatever it is, the job runs already
                return self.untuned(self.recorder.reason(error))

    def tune(self, device: Tunable, *, late: bool = False) -> int:
        """Tune on that device until the job ends; its exit status. late: it was said that the job runs untuned.

        Raises AutocapError where tuning cannot begin: nothing is set then.
        """
        with ExitStack() as stack:
            runner, held = self._attended(lambda: self._prepare(device, stack))
            if self._is_asked_to_stop:
                runner.stop()
            if late:
                self.recorder.warn(self.clock.now(), TUNED_AFTER_ALL)
            try:
                status = runner.run()
                self.ended_because = runner.ended_because
            finally:
                if held is None:
                    self._say_untouched(device)
                else:
                    held.put_back()
        return status

    def remember(self) -> None:
        """Keep what the run has shown for the next one of its job; where that fails, with a warning."""
        if self.memory is not None and not self.config.tune.observe:
            memory = self.memory
            self.recorder.record(self.clock.now(), lambda: memory.remember(self.recorder.events, self.ended_because))

    def _await_device(self, source: DeviceSource) -> Tunable | None:
        """The job's devices, opened, once it uses them; `None` when it ends before. Raises DeviceError."""
        if self.job.identity is None:
            raise DeviceError(f"process {self.job.pid} is hidden from /proc, so the GPUs it uses cannot be found")
        began_s, wait_s = self.clock.now(), self.config.tune.wait_s
        while self.job.poll() is None:
            waited_s = self.clock.now() - began_s
            if self.node is not None:
                self._idle.before(self.clock.now(), self.node.read())
            find = partial(source.find, self.job.identity, waited_s if waited_s < wait_s else math.inf)
            device = self._attended(find)
            self._heed()
            if device is not None:
                return device
            if waited_s >= wait_s:
                raise DeviceError(
                    f"the job used no GPU within {wait_s:g} s; pass a larger --wait if it starts slowly, or --gpus"
                )
            self._hear(self.clock.wait_until(self.clock.now() + _LOOK_EVERY_S))
            self._heed()
        return None

    def _attended(self, work: Callable[[], _R]) -> _R:
        """What it yields or raises; where drivers are called, signals are heard meanwhile. Raises DeviceError where one
        does not answer, and the job has ended."""
        if not self.place.attends:
            return work()
        ended_s: list[float] = []

        def turn(signum: int | None) -> None:
            self._hear(signum)
            if self.job.poll() is not None:
                ended_s.append(self.clock.now())
                if ended_s[-1] - ended_s[0] > DRIVER_AT_END_S:
                    raise DeviceError("the job has ended, and the driver has not answered still")

        return attended(work, self.clock, turn)

    def _hear(self, signum: int | None) -> None:
        orders = [] if signum is None else [self.inbox.receive(signum, self.clock.now())]
        self._is_asked_to_stop |= Order.STOP_TUNING in (*orders, self.inbox.due(self.clock.now()))

    def _heed(self) -> None:
        """Raises DeviceError where the end was asked for before the tuning began; a job that was only attached to is
        left."""
        is_asked, self._is_asked_to_stop = self._is_asked_to_stop, False
        if is_asked and self.job.poll() is None:
            raise DeviceError("a signal was passed on to it before it was tuned")

    def _prepare(self, device: Tunable, stack: ExitStack) -> tuple[Runner, Guarded | None]:
        if self.plan.warm_start is not None:
            self.plan.warm_start.require_device(device, as_shares=self.plan.takes_shares)
        knob = require_turnable(self.config, self.plan.factory, device)
        held = None if self.config.tune.observe else self._guard(device, knob, stack)
        knob, original = found_at(device, knob, None if held is None else held.guardian)
        self._knob = knob
        if held is not None:
            held.record_notes()
        if not knob.is_power_limit:  # what options mean of it is only known now
            options = registry.option_values(self.plan.factory, self.config.strategy_options, knob)
            self.plan = replace(self.plan, options=options)
        if self.plan.warm_start is not None:
            self.plan.warm_start.require_knob(knob)
        recalled = self._recalled(device, knob)
        named = self.plan.warm_start or recalled
        elsewhere = self._elsewhere(device)
        is_other = self.plan.warm_start is not None and self.plan.warm_start.elsewhere(device) is not None
        earlier = NOTHING if named is None or is_other else named.earlier
        gpus = device.gpus if held is None else held.actuation.gpus
        grid = setting_grid(self.config.tune, gpus, knob, original, self.plan.required_w)
        best_w = earlier.best_w(self.config.tune.metric, grid, original)
        named_w = self.plan.required_w or grid  # who names caps wants no other
        opening_w = None if self.config.tune.observe or best_w not in named_w else best_w
        controller = self._controller(device, original, grid, earlier, opening_w, elsewhere.curves)
        if held is not None:
            held.rehearse()
        self.recorder.event(
            events.DeviceFound(
                t_s=self.clock.now(),
                kind=device.kind,
                emulated=device.emulated,
                gpus=device.gpus,
                original=original,
                driver=device.driver,
                knob=knob,
            )
        )
        if recalled is not None:
            self.recorder.event(recalled.event(self.clock.now(), best_w))
        if elsewhere.curves:
            self.recorder.event(elsewhere.event(self.clock.now()))
        pace = self._pace(controller)
        runner = Runner(
            clock=self.clock,
            sampler=self.place.sampler(
                clock=self.clock,
                device=device,
                steps=lambda: self._count(controller),
                node=self.node,
                pace=pace,
                is_steady=lambda: controller.is_steady,
                knob=knob,
            ),
            controller=controller,
            job=self.job,
            sink=self.recorder,
            pace=pace,
            setter=None if held is None else held.guardian,
            budget=None if held is None else held.actuation.budget,
            inbox=self.inbox,
            prices=self.prices,
            attends=self.place.attends,
            reloads=lambda: device.reloads,
            knob=knob,
            setters=other_setters,
        )
        return runner, held

    def _guard(self, device: Tunable, knob: Knob, stack: ExitStack) -> Guarded:
        if device.refusal is not None:
            raise DeviceError(device.refusal)
        if knob.is_power_limit:
            way = self.place.actuation(self.config.via, device, self.new_guardian)
        else:
            way = turning(device, knob, self.new_guardian)
        held = guarded(way, self.job.identity, self.recorder, self.clock, stack)
        for chosen in way.chosen(self.clock.now()):
            self.recorder.event(chosen)
        self.inbox.setter = held.guardian
        stack.callback(self._forget_guardian)
        return held

    def _forget_guardian(self) -> None:
        self.inbox.setter = None

    def _count(self, controller: Controller) -> StepReading | None:
        fault = self.counting.fault
        for said in (*self.counting.remarks, *(() if fault is None else (fault,))):
            if said not in self._said:
                self._said.add(said)
                self.recorder.warn(self.clock.now(), said)
        return self.counting.read(self.clock.origin_s, needed=controller.needs_count)

    def _recalled(self, device: Tunable, knob: Knob) -> Recalled | None:
        """What is remembered of the job; `None` as well where another run was named to begin from."""
        if self.memory is None:
            return None
        recalled = self.memory.recall(device, None if self.node is None else self.node.name, knob)
        return recalled if self.plan.warm_start is None else None

    def _elsewhere(self, device: Device) -> Elsewhere:
        """What the strategy is told of other jobs on the cards, and of this one on others."""
        if self.config.tune.observe or not self.plan.takes_shares or not self._knob.is_power_limit:
            return NOWHERE
        found = NOWHERE if self.memory is None else self.memory.elsewhere()
        named = self.plan.warm_start
        return found if named is None else found.with_job(named.elsewhere(device), ", ".join(dict.fromkeys(named.gpus)))

    def _controller(
        self,
        device: Tunable,
        original: tuple[float, ...],
        grid: CapGrid,
        earlier: WarmStartData,
        opening_w: float | None,
        elsewhere: Sequence[RelativeCurve],
    ) -> Controller:
        """opening_w: what to hold from the first sample until the baseline is measured. elsewhere: what the strategy is
        told of other jobs, and other cards."""
        progress = self.counting.progress(device.sensor)
        settle_s = max(device.sensor.settle_s, grid.knob.settle_s)
        remembered = earlier.history(self.config.tune.metric, progress.kind, original)

        factory = registry.knowing(self.plan.factory, elsewhere)

        def new_strategy(baseline: Measurement, before: Sequence[Trial], caps: CapGrid, metric: Metric) -> StrategyLike:
            return factory(
                grid=caps,
                metric=metric,
                baseline=baseline,
                rng=np.random.default_rng(0),  # nothing is gained by a search that cannot be repeated
                history=before or self._history(earlier, progress.kind, baseline),
                options=registry.allowed_now(self.plan.factory, self.plan.options, grid, caps),
            )

        return Controller(
            config=self.config.tune,
            sensor=replace(device.sensor, settle_s=settle_s),
            original_w=original,
            grid=grid,
            progress=progress,
            new_strategy=new_strategy,
            idle=self._idle,
            remembered=Remembered.of(opening_w, remembered, original),
            finish_s=self._finish_s,
            usual_iterations=earlier.job_iterations,
        )

    @property
    def _finish_s(self) -> float | None:
        """When the job is to be done, on the run's clock."""
        finish_by = self.config.tune.finish_by
        return None if finish_by is None else finish_by - time.time() + self.clock.now()

    def _history(self, earlier: WarmStartData, progress: str, baseline: Measurement) -> tuple[Trial, ...]:
        history = earlier.history(self.config.tune.metric, progress, baseline.setting)
        if not history and earlier.curves and self.plan.warm_start is not None and not self._doubted:
            self._doubted = True
            self.recorder.warn(self.clock.now(), self.plan.warm_start.counted_otherwise(progress))
        return history

    def _pace(self, controller: Controller) -> Callable[[], float]:
        """Seconds between samples: as the controller asks, unless the user does."""
        fixed_hz = self.config.sample_hz
        return (lambda: controller.interval_s) if fixed_hz is None else (lambda: 1 / fixed_hz)

    def _say_untouched(self, device: Tunable) -> None:
        """What a device that was observed is at: nothing was set."""
        now: Sequence[float | None] = [None] * len(device.gpus)
        with suppress(DeviceError):
            now = self._attended(lambda: settings_now(device, self._knob))
        for gpu, setting in zip(device.gpus, now, strict=True):
            at_s = self.clock.now()
            self.recorder.event(events.LimitRestored(t_s=at_s, uuid=gpu.uuid, final=setting, restored=True))
