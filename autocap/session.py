"""Builds the concrete parts of a run and joins them; nothing here decides a cap.

Everything that can be refused is refused before the child starts. Once it runs, no fault of ours ends it or changes
its status: it goes on untuned, and the report says why.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from autocap import __version__, events, profiles, registry, target
from autocap.bounds import cap_grid
from autocap.config import EMULATED_PROFILE, SAMPLES_PER_UPDATE, RunConfig
from autocap.controller import Controller
from autocap.counting import Counting
from autocap.devices.emulated import EmulatedDevice
from autocap.errors import AutocapError, DeviceError, DeviceUnavailable, RunDirectoryError, UsageError
from autocap.events import MetricInfo, OptionValue
from autocap.guardian import Guardian, settle
from autocap.inbox import Inbox
from autocap.privileges import InvokingUser, invoking_user
from autocap.recorder import Recorder
from autocap.records import Measurement, StepReading
from autocap.registry import StrategyFactory
from autocap.reporters import summary as summary_report
from autocap.reporters import terminal
from autocap.runlog import RunDirectory, to_json_dict
from autocap.runner import Runner, follow
from autocap.signals import SignalClock
from autocap.strategy import OptionScalar, StrategyLike
from autocap.summarise import summarise
from autocap.target import Target

log = logging.getLogger(__name__)


def run(config: RunConfig, clock: SignalClock) -> int:
    """Start the command, tune it while it runs, report; the child's exit status.

    Raises AutocapError for what is wrong before the child runs.
    """
    user = invoking_user()
    search = _find_strategy(config, user)
    device = _open_device(config, clock, search)
    settled = () if config.tune.observe else settle()
    started = datetime.now().astimezone()
    with ExitStack() as stack:
        counting = Counting(config.progress if device else "none", user)
        stack.enter_context(counting)
        directory = stack.enter_context(RunDirectory.create(config.out, config.force, user, started))
        job = _start(config, clock, directory, user, counting)
        reporter = terminal.for_stream(sys.stderr, quiet=config.quiet, job_output_is_ours_too=sys.stdout.isatty())
        recorder = Recorder(directory, reporter)
        recorder.event(_started(config, search, job, started))
        for fate in settled:
            recorder.warn(clock.now(), fate.sentence)
        run = _Run(config=config, clock=clock, job=job, recorder=recorder, search=search)
        status = run.untuned() if device is None else run.tuned(device, counting)
        counting.drain(clock)
        recorder.event(events.RunEnded(t_s=clock.now(), ended_because=run.ended_because, exit_status=status))
        _report(config, directory, recorder, reporter)
    return status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The strategy that was asked for, with the value of each of its options."""

    factory: StrategyFactory
    options: Mapping[str, OptionScalar]

    @property
    def required_w(self) -> tuple[float, ...]:
        """Caps that its options name, so that they must be on the grid; watts."""
        return registry.required_caps(self.factory, self.options)


@dataclass(slots=True, kw_only=True)
class _Run:
    """A child that runs, and what is known of its tuning."""

    config: RunConfig
    clock: SignalClock
    job: Target
    recorder: Recorder
    search: _Search
    ended_because: str = "the job ended"
    said: str | None = None  # the counter's fault, once it was announced

    def untuned(
        self, why: str = "no device to tune: NVML devices are not available yet, pass --device emulated"
    ) -> int:
        """Only await the child, with one warning that says why."""
        self.ended_because = why
        self.recorder.warn(self.clock.now(), f"the job runs untuned: {why}")
        return follow(self.job, self.clock, Inbox(self.config, self.job, self.recorder))

    def tuned(self, device: EmulatedDevice, counting: Counting) -> int:
        """Tune until the child ends; whatever keeps us from it, the child goes on."""
        with ExitStack() as stack:
            try:
                runner, guardian = self._prepare(device, counting, stack)
            except Exception as error:  # the child runs already
                log.debug("tuning cannot begin", exc_info=True)
                stack.close()
                text = str(error) if isinstance(error, AutocapError) else f"internal fault: {error!r}"
                return self.untuned(text)
            status = runner.run()
            self.ended_because = runner.ended_because
            self._put_back(device, guardian)
        return status

    def _prepare(self, device: EmulatedDevice, counting: Counting, stack: ExitStack) -> tuple[Runner, Guardian | None]:
        if self.job.identity is None:
            raise DeviceError(f"process {self.job.pid} is hidden from /proc, so it cannot play a GPU's job")
        device.bind(self.job.identity)
        stack.callback(device.close)
        observe = self.config.tune.observe
        guardian = None if observe else stack.enter_context(self._guardian(device, counting))
        original_w = _known(guardian.original_w) if guardian else tuple(gpu.cap_range.default_w for gpu in device.gpus)
        for note in guardian.notes if guardian else ():
            self.recorder.warn(self.clock.now(), note)
        self.recorder.event(
            events.DeviceFound(
                t_s=self.clock.now(),
                kind=device.kind,
                emulated=device.emulated,
                gpus=device.gpus,
                original_w=original_w,
            )
        )
        runner = Runner(
            clock=self.clock,
            device=device,
            controller=self._controller(device, counting, original_w),
            job=self.job,
            sink=self.recorder,
            interval_s=self._interval_s(device),
            steps=lambda: self._count(counting),
            actuator=guardian,
            inbox=Inbox(self.config, self.job, self.recorder, guardian),
        )
        return runner, guardian

    def _count(self, counting: Counting) -> StepReading | None:
        if counting.fault is not None and counting.fault != self.said:
            self.said = counting.fault
            self.recorder.warn(self.clock.now(), counting.fault)
        return counting.read(self.clock.origin_s)

    def _guardian(self, device: EmulatedDevice, counting: Counting) -> Guardian:
        return Guardian(
            kind=device.kind,
            gpus=device.gpus,
            limits=device.limits(),
            job=self.job.identity,
            cleanup=counting.cleanup,
        )

    def _controller(self, device: EmulatedDevice, counting: Counting, original_w: tuple[float, ...]) -> Controller:
        grid = cap_grid(self.config.tune, device.gpus, original_w, self.search.required_w)

        def new_strategy(baseline: Measurement) -> StrategyLike:
            return self.search.factory(
                grid=grid,
                metric=self.config.tune.metric,
                baseline=baseline,
                rng=np.random.default_rng(0),  # nothing is gained by a search that cannot be repeated
                history=(),
                options=self.search.options,
            )

        return Controller(
            config=self.config.tune,
            sensor=device.sensor,
            original_w=original_w,
            grid=grid,
            progress=counting.progress(device.sensor),
            new_strategy=new_strategy,
        )

    def _interval_s(self, device: EmulatedDevice) -> float:
        return 1 / self.config.sample_hz if self.config.sample_hz else device.sensor.update_s / SAMPLES_PER_UPDATE

    def _put_back(self, device: EmulatedDevice, guardian: Guardian | None) -> None:
        if guardian is None:  # observed: nothing was set
            for gpu in device.gpus:
                default_w = gpu.cap_range.default_w
                self.recorder.event(
                    events.LimitRestored(t_s=self.clock.now(), uuid=gpu.uuid, final_w=default_w, restored=True)
                )
            return
        for restored in guardian.restore():
            self.recorder.event(
                events.LimitRestored(
                    t_s=self.clock.now(), uuid=restored.uuid, final_w=restored.final_w, restored=restored.restored
                )
            )
            if restored.note is not None:
                self.recorder.warn(self.clock.now(), restored.note)


def _find_strategy(config: RunConfig, user: InvokingUser | None) -> _Search:
    if user is not None and ":" in config.strategy:
        raise UsageError(
            f"strategy {config.strategy} would run as root under sudo; register it as a plug-in, or run without sudo"
        )
    factory = registry.find(config.strategy)
    return _Search(factory=factory, options=registry.option_values(factory, config.strategy_options))


def _open_device(config: RunConfig, clock: SignalClock, search: _Search) -> EmulatedDevice | None:
    """The device that was asked for, with the caps checked against it; `None` where there is none to tune."""
    kind, _, profile = config.device.partition(":")
    if kind == "auto":
        return None
    if kind != "emulated":
        raise DeviceUnavailable(f"device {kind} is not available yet; pass --device emulated, or leave it out")
    rng = np.random.default_rng(0)
    device = EmulatedDevice(profiles.load(profile or EMULATED_PROFILE), clock, rng, observe=config.tune.observe)
    if config.gpus is not None and config.gpus != ("0",):
        raise DeviceUnavailable(f"--gpus {','.join(config.gpus)}: the emulated device has GPU 0 alone; pass --gpus 0")
    cap_grid(config.tune, device.gpus, [device.cap_range.default_w], search.required_w)
    return device


def _start(
    config: RunConfig, clock: SignalClock, directory: RunDirectory, user: InvokingUser | None, counting: Counting
) -> Target:
    try:
        with clock.lifted(), counting.child_stdout() as stdout:
            return target.start(config.command, counting.environment(os.environ), user, stdout)
    except AutocapError:
        directory.discard()
        raise


def _started(config: RunConfig, search: _Search, job: Target, started: datetime) -> events.RunStarted:
    metric = config.tune.metric
    return events.RunStarted(
        t_s=0.0,
        autocap_version=__version__,
        mode="run",
        command=config.command,
        pid=job.pid,
        started_at=started.isoformat(timespec="seconds"),
        metric=MetricInfo(
            name=metric.name,
            k=metric.k,
            max_slowdown=metric.max_slowdown,
            energy_price=metric.energy_price,
            hour_price=metric.hour_price,
        ),
        strategy=config.strategy,
        strategy_options=tuple(OptionValue(name=name, value=value) for name, value in search.options.items()),
        observe=config.tune.observe,
    )


def _known(limits_w: Sequence[float | None]) -> tuple[float, ...]:
    unknown = [index for index, limit in enumerate(limits_w) if limit is None]
    if unknown:
        raise DeviceError(f"the limit of GPU {unknown[0]} cannot be read, so it could not be put back; not tuned")
    return tuple(limit for limit in limits_w if limit is not None)


def _report(config: RunConfig, directory: RunDirectory, recorder: Recorder, reporter: terminal.Quiet) -> None:
    reporter.close()
    result = summarise(recorder.events)
    try:
        directory.write_result(result)
    except RunDirectoryError as error:
        reporter.say([f"warning: {error}"])
    untuned = result.device is None  # which was said when it began
    told = [] if untuned else summary_report.lines(result, reporter.width)
    reporter.say([*told, f"run directory: {directory.path}"])
    if config.json:
        with suppress(OSError):
            print(json.dumps(to_json_dict(result), allow_nan=False), flush=True)
