"""Runs the command once under one cap, guarded, and says what it used.

The cap is set before the command runs: where the devices are there by then, before its process is started, and for an
emulated device, which that process makes, while it waits. Between runs the limits found on arrival are back.
"""

import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from autocap import devices, events
from autocap.clock import Clock
from autocap.config import SAMPLES_PER_UPDATE
from autocap.config.sweep import SweepConfig
from autocap.controller.context import Action, SetCaps
from autocap.devices.base import Device, PowerSource, Tunable
from autocap.errors import AutocapError, DeviceError, SetterDenied
from autocap.events import Event, IdleEstimated, Warned
from autocap.events.sweep import FinishedRun, GpuSet, PlannedRun, SweepPlan, Used
from autocap.job import child
from autocap.job.child import ChildJob
from autocap.job.command_path import JobCommand
from autocap.job.processes import ProcessId
from autocap.job.signals import Reaction, SignalClock, SignalPolicy
from autocap.measurement.energy import EnergyMeter, implausible, node_power_w
from autocap.measurement.metering import RestPower
from autocap.records import NodeReading, Reading, Sample
from autocap.session.guarding import Guarded, guarded
from autocap.session.inbox import SignalInbox
from autocap.session.recorder import Recorder
from autocap.session.roles import Decider, Order
from autocap.session.runner import Runner, follow
from autocap.session.sampling import LocalSampler
from autocap.session.search_space import checker
from autocap.session.via import Actuation, actuation

_SILENT_S = 1.0  # a sensor may be so late with its first reading


class _Filled:
    """The energy of one part of the machine from the start of a run to its end.

    Between the first and the last point that readings give, energy is theirs; the ends before and after are filled
    with the first and the last power known.
    """

    def __init__(self, begin_s: float) -> None:
        self._begin_s = begin_s
        self._meter = EnergyMeter()
        self._points: list[tuple[float, float]] = []  # t_s, energy_j: the first and the newest
        self._power_w: tuple[float, float] | None = None  # the first and the last

    @property
    def known(self) -> bool:
        """Whether any power was read of the run."""
        return self._power_w is not None

    def _power(self, watts: float) -> None:
        """Such a power was read, of the run alone."""
        self._power_w = (self._power_w or (watts,))[0], watts

    def _point(self, sample: Sample) -> None:
        """Add a sample of this part alone."""
        if self._meter.add(sample):
            self._points = [*self._points[:1], (sample.t_s, self._meter.energy_j)]

    def energy_j(self, end_s: float) -> float | None:
        """Joules up to the end of the run; `None` where no power was ever read."""
        if self._power_w is None:
            return None
        first_w, last_w = self._power_w
        if not self._points:
            return first_w * (end_s - self._begin_s)
        (first_s, first_j), (last_s, last_j) = self._points[0], self._points[-1]
        return first_w * (first_s - self._begin_s) + last_j - first_j + last_w * (end_s - last_s)


class GpuMeter(_Filled):
    """One GPU's energy over a run. missing: readings that were, once the first had come.

    window_s: what a reading is the mean of; one whose window reaches back before the run is not of it.
    """

    def __init__(self, begin_s: float, window_s: float) -> None:
        super().__init__(begin_s)
        self._inside_s = begin_s + window_s
        self.missing = 0

    def add(self, t_s: float, reading: Reading) -> None:
        """Add a reading of this GPU, taken at t_s."""
        if reading.power_w is None:
            self.missing += self.known or t_s > self._inside_s + _SILENT_S
        elif reading.t_s >= self._inside_s:
            self._power(reading.power_w)
        elif reading.energy_j is None:
            return
        self._point(Sample(t_s=t_s, readings=(reading,)))


class NodeMeter(_Filled):
    """The energy of the machine around the GPUs over a run, as its source gives it.

    refresh_s: between two fresh readings, each the mean since the last. One that only holds what was read before the
    run, or began to be read then, is not of it. A gap lasts from a reading that is missing to the next.
    """

    def __init__(self, begin_s: float, refresh_s: float) -> None:
        super().__init__(begin_s)
        self._inside_s = begin_s + refresh_s
        self._gap_since_s: float | None = None
        self._gap_s = 0.0
        self._whole = False

    def add(self, t_s: float, node: NodeReading) -> None:
        """Add a reading, as it stands at t_s."""
        self._whole = node.whole
        self._gap_s = self._gap_until_s(t_s)
        self._gap_since_s = t_s if node.power_w is None else None
        if node.power_w is not None:
            if node.t_s < self._inside_s:
                return
            self._power(node.power_w)
        self._point(Sample(t_s=t_s, readings=(), node=node))

    def beside(self, gpus: Used, end_s: float) -> Used | None:
        """What the node used in a run that ended then, with the GPUs' part; `None` where no reading was of the run."""
        energy_j = self.energy_j(end_s)
        if energy_j is None:
            return None
        return replace(
            gpus, node_j=energy_j + (0.0 if self._whole else gpus.gpus_j), node_gap_s=self._gap_until_s(end_s)
        )

    def _gap_until_s(self, t_s: float) -> float:
        return self._gap_s + (0.0 if self._gap_since_s is None else t_s - self._gap_since_s)


class WholeRun(Decider):
    """Holds one cap per GPU from the start of a run to its end, and adds up what the run uses. For `Runner`.

    settings: watts, set before the run began. begin_s: when the command was started. window_s: of the sensor.
    node_refresh_s: of the source of the node's power, `None` where the GPUs' is all that counts. trouble: why the run
    is not comparable with others, once something has happened.
    """

    settings: tuple[float, ...] = ()

    def __init__(
        self, settings: tuple[float, ...], begin_s: float, window_s: float, node_refresh_s: float | None = None
    ) -> None:
        self.settings = settings
        self.trouble: str | None = None
        self._begin_s = begin_s
        self._end_s: float | None = None
        self._gpus = tuple(GpuMeter(begin_s, window_s) for _ in settings)
        self._node = None if node_refresh_s is None else NodeMeter(begin_s, node_refresh_s)

    @property
    def ended_because(self) -> str | None:
        """Why the measuring ended before the run."""
        return self.trouble

    @property
    def used(self) -> Used | None:
        """What the run used, once it has ended; `None` before, or where a GPU or the node gave no reading at all."""
        if self._end_s is None:
            return None
        energies_j = [gpu.energy_j(self._end_s) for gpu in self._gpus]
        known_j = tuple(energy_j for energy_j in energies_j if energy_j is not None)
        if len(known_j) < len(energies_j):
            return None
        missing = sum(gpu.missing for gpu in self._gpus)
        used = Used(time_s=self._end_s - self._begin_s, energy_j=known_j, missing=missing)
        return used if self._node is None else self._node.beside(used, self._end_s)

    @property
    def silence(self) -> str:
        """Why there is nothing that a run used, and what to do."""
        if self._node is not None and not self._node.known:
            return (
                "the node's power was not read while it ran; let it run for longer than the meter takes for a reading, "
                "and check that the meter reports it"
            )
        return "no power was read while it ran; let it run for longer than the sensor takes for a reading"

    def feed(self, sample: Sample) -> list[Action]:
        """Add a sample; nothing is ever to be done about it."""
        for gpu, reading in zip(self._gpus, sample.readings, strict=True):
            gpu.add(sample.t_s, reading)
        if self._node is not None and sample.node is not None:
            self._node.add(sample.t_s, sample.node)
        return []

    def interrupted(self, t_s: float) -> list[Action]:
        """The limits were put back for a while: the cap is set again, but the run does not count."""
        self.trouble = self.trouble or "autocap or the command was stopped for a while"
        return [SetCaps(settings=self.settings)]

    def stop(self, t_s: float, why: str) -> list[Action]:
        """The cap is no longer held."""
        self.trouble = self.trouble or why
        return []

    def close(self, t_s: float) -> list[Action]:
        """The run has ended."""
        self._end_s = t_s
        return []


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
        inbox.setter = None if held is None else held.guardian
        fixed_hz = self.config.run.sample_hz
        interval_s = 1 / fixed_hz if fixed_hz else device.sensor.update_s / SAMPLES_PER_UPDATE
        runner = Runner(
            clock=self.clock,
            sampler=LocalSampler(clock=self.clock, device=device, steps=lambda: None, node=self.node),
            controller=whole,
            job=job,
            sink=_EventsOnly(self.recorder),
            pace=lambda: interval_s,
            setter=inbox.setter,
            inbox=inbox,
        )
        try:
            return runner.run()
        finally:
            inbox.setter = None

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


def required_way(config: SweepConfig, device: Tunable) -> Actuation:
    """How the caps of a sweep are set. Raises SetterUnavailable, also under a power budget, whose ceilings would
    change what is measured."""
    way = actuation(config.run.via, device)
    if way.budget is not None:
        raise SetterDenied(f"{way.reason}, and a sweep needs caps of its own choice; end it, or sweep before it begins")
    return way


def device_names(plan: SweepPlan, one: GpuSet) -> tuple[str, ...]:
    """How to name the GPUs of a set in --gpus and to CUDA: by UUID, which no order of devices changes.

    Emulated devices get theirs only with the job.
    """
    return tuple(str(gpu.index) if plan.emulated else gpu.uuid for gpu in one.gpus)
