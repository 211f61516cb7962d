"""Runs the command once under one cap, guarded, and says what it used.

The cap is set before the command runs: where the devices are there by then, before its process is started, and for an
emulated device, which that process makes, while it waits. Between runs the limits found on arrival are back.
"""

import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from autocap import devices, events
from autocap.clock import Clock
from autocap.config import SAMPLES_PER_UPDATE
from autocap.config.sweep import SweepConfig
from autocap.devices.base import Device, PowerSource, Tunable
from autocap.errors import AutocapError, DeviceError
from autocap.events import Event, IdleEstimated, Warned
from autocap.events.sweep import FinishedRun, GpuSet, PlannedRun, SweepPlan, Used
from autocap.job import child
from autocap.job.child import ChildJob
from autocap.job.command_path import JobCommand
from autocap.job.processes import ProcessId
from autocap.job.signals import Reaction, SignalClock, SignalPolicy
from autocap.measurement.energy import implausible, node_power_w
from autocap.measurement.metering import RestPower
from autocap.records import Sample
from autocap.session.actuating import Actuation
from autocap.session.caps import checker
from autocap.session.guarding import Guarded, guarded
from autocap.session.inbox import SignalInbox
from autocap.session.recorder import Recorder
from autocap.session.roles import Order
from autocap.session.runner import Runner, follow
from autocap.session.sampling import LocalSampler
from autocap.sweep.measuring import WholeRun
from autocap.sweep.plan import device_names, required_way

LOOK_EVERY_S = 0.5


class EndingInbox(SignalInbox):
    """Passes signals on to the command, and remembers which of them asked for an end. ended_by: its name."""

    ended_by: str | None = None

    def receive(self, signum: int, t_s: float) -> Order:
        order = super().receive(signum, t_s)
        if order is Order.STOP_TUNING:
            self.ended_by = self.ended_by or signal.Signals(signum).name
        return order


class _EventsOnly:
    """A sweep keeps no samples: its GPU sets differ in their number of columns, and every run is added up at once."""

    def __init__(self, recorder: Recorder) -> None:
        self.event, self.reason = recorder.event, recorder.reason

    def sample(self, sample: Sample) -> None:
        return


@dataclass(slots=True, kw_only=True)
class Resting:
    """Looks at the node's power between runs, while the machine has nothing to do. Where its source tells of the rest
    of the machine alone, each set of GPUs has an estimate of its own, with what those draw.
    """

    node: PowerSource
    clock: Clock
    announce: Callable[[Event], None]
    _seen: dict[str | None, RestPower] = field(default_factory=dict)

    def look(self, run: PlannedRun, device: Device | None) -> None:
        """Read the machine, which waits for that run. device: of the run, `None` where only the command makes it."""
        reading = self.node.read()
        for note in self.node.notes():
            self.announce(Warned(t_s=self.clock.now(), text=note))
        watts = reading.power_w
        if not reading.whole:
            try:
                readings = None if device is None else device.read()
            except DeviceError:  # the run that is to come will say so
                readings = None
            if readings is None:
                return
            watts = node_power_w(Sample(t_s=self.clock.now(), readings=readings, node=reading))
        self._rest(run).see(self.clock.now(), watts)

    def end(self, run: PlannedRun) -> None:
        """The run begins now: say what was seen so far."""
        rest = self._rest(run)
        rest.look_away()
        power_w = rest.estimate()
        if power_w is not None:
            self.announce(
                IdleEstimated(t_s=self.clock.now(), power_w=power_w, seen_s=rest.seen_s, gpus=self._counted_with(run))
            )

    def _rest(self, run: PlannedRun) -> RestPower:
        return self._seen.setdefault(self._counted_with(run), RestPower())

    def _counted_with(self, run: PlannedRun) -> str | None:
        return None if self.node.whole else run.gpus


@dataclass(slots=True, kw_only=True)
class Running:
    """Carries out the runs of a plan. command: the plan's, as it is to be started. node: of the machine's power, `None`
    where only the GPUs' counts. ended_by: the name of the signal that asked for the end.
    """

    config: SweepConfig
    plan: SweepPlan
    command: JobCommand
    clock: SignalClock
    recorder: Recorder
    node: PowerSource | None = None
    ended_by: str | None = None
    _doubted: bool = False
    _set_by: tuple[str, str] | None = None  # who sets limits, once it was said
    _signals: SignalPolicy = field(default_factory=SignalPolicy)
    _resting: Resting | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.node is not None:
            self._resting = Resting(node=self.node, clock=self.clock, announce=self.recorder.event)

    def run(self, run: PlannedRun, one: GpuSet, device: Tunable | None) -> FinishedRun:
        """One run. device: opened before, `None` where the command makes it.

        Raises AutocapError where the cap cannot be set before the command, or the command cannot be started. Whatever
        fails once it runs does not end it: it is awaited at the limits found on arrival, and does not count.
        """
        with ExitStack() as stack, ExitStack() as waiting:
            held = None if device is None else self._hold(device, run, None, stack)
            job = self._start(one, waiting if device is None else None)
            inbox = EndingInbox(job, self.recorder, self.config.run.kill_after_s)
            try:
                if device is None:
                    device = stack.enter_context(self._made_by(job, one))
                    held = self._hold(device, run, job.identity, stack)
                waiting.close()
                caps_w = (run.cap_w,) * len(device.gpus)
                refresh_s = None if self.node is None else self.node.refresh_s or 0.0
                whole = WholeRun(caps_w, self.clock.now(), device.sensor.window_s, refresh_s)
                self.recorder.event(events.SweepRunStarted(t_s=self.clock.now(), run=run))
                status = self._measure(job, device, held, whole, inbox)
            except Exception as error:  # noqa: BLE001 - whatever it is, the command runs already
                why = self.recorder.reason(error)
                waiting.close()
                stack.close()  # its limits, before it is awaited
                return self._finished(run, inbox, None, follow(job, self.clock, inbox), why)
            return self._finished(run, inbox, whole, status, whole.trouble)

    def rest(self, run: PlannedRun, device: Tunable | None, seconds: float) -> None:
        """Wait before that run, and look at what the machine draws meanwhile, where that counts.

        A signal that asks for an end ends the wait as well.
        """
        end_s, next_s = self.clock.now() + seconds, self.clock.now()
        while self.ended_by is None:
            if self._resting is not None and self.clock.now() >= next_s:
                self._resting.look(run, device)
                next_s = self.clock.now() + LOOK_EVERY_S
            signum = self.clock.wait_until(end_s if self._resting is None else min(end_s, next_s))
            if signum is not None:
                self._obey(signum)
            elif self.clock.now() >= end_s:
                break
        if self._resting is not None:
            self._resting.end(run)

    def _obey(self, signum: int) -> None:
        """A signal while no command runs."""
        match self._signals.receive(signum, self.clock.now()):
            case Reaction.RESTORE_AND_FORWARD | Reaction.KILL:
                self.ended_by = signal.Signals(signum).name
            case Reaction.SUSPEND:
                os.kill(os.getpid(), signal.SIGSTOP)
            case _:
                pass

    def _start(self, one: GpuSet, waiting: ExitStack | None) -> ChildJob:
        """Start the command; with a stack, it runs once that closes."""
        environment = self.command.environment(os.environ)
        if self.config.gpu_sets is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(device_names(self.plan, one))
        with self.clock.lifted():
            if waiting is None:
                return child.start(self.command.argv, environment)
            return waiting.enter_context(child.waiting_start(self.command.argv, environment))

    @contextmanager
    def _made_by(self, job: ChildJob, one: GpuSet) -> Iterator[Tunable]:
        """The device that a command makes once it runs."""
        if job.identity is None:
            raise AutocapError(f"process {job.pid} is hidden from /proc, so it can make no device")
        config = self.config.run_on(device_names(self.plan, one))
        with devices.open_source(config, self.clock, checker(config.tune)) as source:
            device = source.find(job.identity, math.inf)
            if device is None:
                raise AutocapError(f"process {job.pid} uses no device that a cap could be set on")
            with closing(device):
                yield device

    def _hold(self, device: Tunable, run: PlannedRun, job: ProcessId | None, stack: ExitStack) -> Guarded | None:
        """Guard the devices and set the cap; `None` under --observe. The limits are put back when the stack closes."""
        if self.plan.observe:
            return None
        way = required_way(self.config, device)
        held = guarded(way, job, self.recorder, self.clock, stack)
        self._tell_of(way)
        stack.callback(held.put_back)
        caps_w = (run.cap_w,) * len(device.gpus)
        held.set_caps(caps_w)
        self.recorder.event(events.CapSet(t_s=self.clock.now(), setting=caps_w))
        return held

    def _tell_of(self, way: Actuation) -> None:
        """Say who sets limits, where that is news."""
        if (way.name, way.where) != self._set_by:
            self._set_by = (way.name, way.where)
            for chosen in way.chosen(self.clock.now()):
                self.recorder.event(chosen)

    def _measure(
        self, job: ChildJob, device: Tunable, held: Guarded | None, whole: WholeRun, inbox: "EndingInbox"
    ) -> int:
        inbox.actuator = None if held is None else held.guardian
        fixed_hz = self.config.run.sample_hz
        interval_s = 1 / fixed_hz if fixed_hz else device.sensor.update_s / SAMPLES_PER_UPDATE
        runner = Runner(
            clock=self.clock,
            sampler=LocalSampler(clock=self.clock, device=device, steps=lambda: None, node=self.node),
            controller=whole,
            job=job,
            sink=_EventsOnly(self.recorder),
            pace=lambda: interval_s,
            actuator=inbox.actuator,
            inbox=inbox,
        )
        try:
            return runner.run()
        finally:
            inbox.actuator = None

    def _finished(
        self, run: PlannedRun, inbox: "EndingInbox", whole: WholeRun | None, status: int, trouble: str | None
    ) -> FinishedRun:
        self.ended_by = inbox.ended_by
        if inbox.ended_by is not None:
            trouble = f"{inbox.ended_by} was passed on to it"
        elif trouble is None and status != 0:
            trouble = f"the command ended with status {status}"
        elif trouble is None and whole is not None and whole.used is None:
            trouble = whole.silence
        used = whole.used if whole else None
        if used is not None:
            self._doubt(used)
        return FinishedRun(run=run, used=used, exit_status=status, trouble=trouble)

    def _doubt(self, used: Used) -> None:
        """Say once what no meter of the whole machine can have read."""
        why = implausible(used.counted_j / used.time_s, used.gpus_j / used.time_s)
        if why is not None and not self._doubted:
            self._doubted = True
            self.recorder.warn(self.clock.now(), why)
