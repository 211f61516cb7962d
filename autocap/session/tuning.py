"""A job that runs, joined with its device, guardian, controller and loop. Nothing here decides a cap.

Whatever goes wrong here, the job goes on; whether that is said as a warning or as an error is the caller's to choose.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from autocap import events
from autocap.clock import RunClock
from autocap.config import SAMPLES_PER_UPDATE, RunConfig
from autocap.controller.controller import Controller
from autocap.devices.base import Device, LimitPort, PowerSource, Tunable
from autocap.devices.sources import Source
from autocap.errors import AutocapError, DeviceError
from autocap.guardian import Guardian
from autocap.job.processes import ProcessId
from autocap.measurement.idle import IdleWatch
from autocap.progress import Progress
from autocap.records import GpuInfo, Measurement, SensorInfo, StepReading, Trial
from autocap.session.caps import cap_grid, limits_found, limits_known
from autocap.session.recorder import Recorder
from autocap.session.runner import Actuator, Inbox, Job, Order, Runner, follow
from autocap.session.warm_start import EarlierRun
from autocap.strategies import registry
from autocap.strategies.base import StrategyLike
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import StrategyFactory

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5  # for the GPUs of a job that has only just started


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The strategy that was asked for, with the value of each of its options. earlier: the run it begins from."""

    factory: StrategyFactory
    options: Mapping[str, OptionScalar]
    earlier: EarlierRun | None = None

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


class Counter(Protocol):
    """Counts the job's iterations. cleanup: files that are to go if we are killed. fault: why counting stopped."""

    @property
    def cleanup(self) -> tuple[Path, ...]: ...

    @property
    def fault(self) -> str | None: ...

    def read(self, origin_s: float) -> StepReading | None: ...

    def progress(self, sensor: SensorInfo) -> Progress: ...


class NewGuardian(Protocol):
    """Makes the guardian of a job's devices, as `Guardian` itself does."""

    def __call__(
        self, *, kind: str, gpus: Sequence[GpuInfo], limits: LimitPort, job: ProcessId | None, cleanup: Sequence[Path]
    ) -> Guardian: ...


class GuardingInbox(Inbox, Protocol):
    """Deals with signals; where one asks for an end, `actuator` puts the caps back first."""

    actuator: Actuator | None


@dataclass(slots=True, kw_only=True)
class Tuning:
    """One job that runs, and what is known of its tuning. node: of the machine's power. ended_because: once it has
    ended."""

    config: RunConfig
    clock: RunClock
    job: TunedJob
    inbox: GuardingInbox
    recorder: Recorder
    plan: SearchPlan
    counting: Counter
    node: PowerSource | None = None
    new_guardian: NewGuardian = Guardian
    ended_because: str = "the job ended"
    _idle: IdleWatch = field(default_factory=IdleWatch)
    _said: str | None = None  # the counter's fault, once it was announced
    _notes: int = 0  # how many of the guardian's were

    def untuned(self, why: str) -> int:
        """Only await the job, with one warning that says why; its exit status."""
        self.ended_because = why
        self.recorder.warn(self.clock.now(), f"the job runs untuned: {why}")
        self.inbox.actuator = None
        return follow(self.job, self.clock, self.inbox)

    def tuned(self, source: Source) -> int:
        """Tune from the moment at which the job uses a device until it ends; its exit status.

        Whatever keeps us from it, the job goes on and is awaited.
        """
        try:
            device = self._await_device(source)
            if device is None:
                return self._status()
            with closing(device):
                return self.tune(device)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job runs already
            return self.untuned(_said_of(error))

    def tune(self, device: Tunable) -> int:
        """Tune on that device until the job ends; its exit status.

        Raises AutocapError where tuning cannot begin: nothing is set then.
        """
        with ExitStack() as stack:
            runner, guardian = self._prepare(device, stack)
            try:
                status = runner.run()
                self.ended_because = runner.ended_because
            finally:
                self._put_back(device, guardian)
        return status

    def _status(self) -> int:
        status = self.job.poll()
        assert status is not None  # it has ended
        return status

    def _await_device(self, source: Source) -> Tunable | None:
        """The job's devices, opened, once it uses them; `None` when it ends before. Raises DeviceError."""
        if self.job.identity is None:
            raise DeviceError(f"process {self.job.pid} is hidden from /proc, so the GPUs it uses cannot be found")
        began_s, wait_s = self.clock.now(), self.config.tune.wait_s
        while self.job.poll() is None:
            waited_s = self.clock.now() - began_s
            if self.node is not None:
                self._idle.before(self.clock.now(), self.node.read())
            device = source.find(self.job.identity, waited_s if waited_s < wait_s else math.inf)
            if device is not None:
                return device
            if waited_s >= wait_s:
                raise DeviceError(
                    f"the job used no GPU within {wait_s:g} s; pass a larger --wait if it starts slowly, or --gpus"
                )
            signum = self.clock.wait_until(self.clock.now() + _LOOK_EVERY_S)
            if signum is not None and self.inbox.receive(signum, self.clock.now()) is Order.STOP_TUNING:
                raise DeviceError("a signal was passed on to it before it used a GPU")
            self.inbox.due(self.clock.now())
        return None

    def _prepare(self, device: Tunable, stack: ExitStack) -> tuple[Runner, Guardian | None]:
        if self.plan.earlier is not None:
            self.plan.earlier.require_device(device)
        guardian = None
        if not self.config.tune.observe:
            if device.refusal is not None:
                raise DeviceError(device.refusal)
            guardian = stack.enter_context(self._guardian(device))
            self.inbox.actuator = guardian
            stack.callback(self._forget_guardian)
        original_w = limits_found(device) if guardian is None else limits_known(guardian.original_w)
        self._pass_on_notes(guardian)
        controller = self._controller(device, original_w)
        if guardian is not None:
            guardian.rehearse()
        self.recorder.event(
            events.DeviceFound(
                t_s=self.clock.now(),
                kind=device.kind,
                emulated=device.emulated,
                gpus=device.gpus,
                original_w=original_w,
                driver=device.driver,
            )
        )
        runner = Runner(
            clock=self.clock,
            device=device,
            controller=controller,
            job=self.job,
            sink=self.recorder,
            interval_s=sample_interval_s(self.config, device),
            steps=self._count,
            actuator=guardian,
            inbox=self.inbox,
            node=self.node,
        )
        return runner, guardian

    def _pass_on_notes(self, guardian: Guardian | None) -> None:
        notes = () if guardian is None else guardian.notes
        for note in notes[self._notes :]:
            self.recorder.warn(self.clock.now(), note)
        self._notes = len(notes)

    def _forget_guardian(self) -> None:
        self.inbox.actuator = None

    def _count(self) -> StepReading | None:
        fault = self.counting.fault
        if fault is not None and fault != self._said:
            self._said = fault
            self.recorder.warn(self.clock.now(), fault)
        return self.counting.read(self.clock.origin_s)

    def _guardian(self, device: Tunable) -> Guardian:
        return self.new_guardian(
            kind=device.kind,
            gpus=device.gpus,
            limits=device.limits(),
            job=self.job.identity,
            cleanup=self.counting.cleanup,
        )

    def _controller(self, device: Tunable, original_w: tuple[float, ...]) -> Controller:
        grid = cap_grid(self.config.tune, device.gpus, original_w, self.plan.required_w)

        def new_strategy(baseline: Measurement, before: Sequence[Trial]) -> StrategyLike:
            return self.plan.factory(
                grid=grid,
                metric=self.config.tune.metric,
                baseline=baseline,
                rng=np.random.default_rng(0),  # nothing is gained by a search that cannot be repeated
                history=before or (() if self.plan.earlier is None else self.plan.earlier.history),
                options=self.plan.options,
            )

        return Controller(
            config=self.config.tune,
            sensor=device.sensor,
            original_w=original_w,
            grid=grid,
            progress=self.counting.progress(device.sensor),
            new_strategy=new_strategy,
            idle=self._idle,
        )

    def _put_back(self, device: Tunable, guardian: Guardian | None) -> None:
        now_s = self.clock.now()
        if guardian is None:  # observed: nothing was set
            limits_w: Sequence[float | None] = [None] * len(device.gpus)
            with suppress(DeviceError):
                limits_w = [reading.requested_w for reading in device.read()]
            for gpu, limit_w in zip(device.gpus, limits_w, strict=True):
                self.recorder.event(events.LimitRestored(t_s=now_s, uuid=gpu.uuid, final_w=limit_w, restored=True))
            return
        put_back(guardian, self.recorder, now_s)
        self._pass_on_notes(guardian)


def put_back(guardian: Guardian, recorder: Recorder, now_s: float) -> None:
    """Put the limits found on arrival back, and say what became of each."""
    for one in guardian.restore():
        recorder.event(events.LimitRestored(t_s=now_s, uuid=one.uuid, final_w=one.final_w, restored=one.restored))
        if one.note is not None:
            recorder.warn(now_s, one.note)


def sample_interval_s(config: RunConfig, device: Device) -> float:
    """Seconds between samples."""
    return 1 / config.sample_hz if config.sample_hz else device.sensor.update_s / SAMPLES_PER_UPDATE


def _said_of(error: Exception) -> str:
    log.debug("tuning cannot begin", exc_info=True)
    return str(error) if isinstance(error, AutocapError) else f"internal fault: {error!r}"
