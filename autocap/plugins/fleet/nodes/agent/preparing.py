"""The job's part on this node, its devices, their guardian, its steps and the machine's power, and the way there from
the first message, in steps between which messages are answered."""

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.clock import Clock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.base import DeviceSource, PowerSource, Tunable
from autocap.errors import DeviceError
from autocap.job.processes import ProcessId
from autocap.limits import Restored
from autocap.metrics import Metric
from autocap.plugins.fleet.nodes.agent.finding import JobHere
from autocap.plugins.fleet.nodes.protocol import Begin, Found, Row
from autocap.plugins.fleet.nodes.transport import reached_by
from autocap.records import GpuInfo

if TYPE_CHECKING:  # heavy: imported by and by, once the controller knows that we are there
    from autocap.limits.guard import LimitGuard
    from autocap.progress.counter import IterationCounter
    from autocap.session.sampling import LocalSampler
    from autocap.session.via import Actuation

_LOOK_EVERY_S = 0.5
# One by one: the controller takes who is silent for 2 s for lost.
HEAVY = (
    "autocap.limits.guardian",
    "numpy",
    "autocap.devices",
    "autocap.progress.counter",
    "autocap.controller.controller",
    "autocap.session.via",
    "autocap.session.preparing",
)


@dataclass(slots=True, kw_only=True)
class NodeJob:
    """The job's part on this node, and what is done with it. job: its processes. way, guardian: `None` where the job is
    only observed."""

    clock: Clock
    job: JobHere
    device: Tunable
    counting: "IterationCounter"
    meter: PowerSource | None
    way: "Actuation | None" = None
    guardian: "LimitGuard | None" = None
    _counted: bool = True  # whether iterations need be, now
    _sampler: "LocalSampler" = field(init=False)
    _noted: int = 0  # of the guardian's notes

    def __post_init__(self) -> None:
        from autocap.session.sampling import LocalSampler

        self._sampler = LocalSampler(
            clock=self.clock,
            device=self.device,
            steps=lambda: self.counting.read(0.0, needed=self._counted),
            node=self.meter,
        )

    def found(self) -> Found:
        """As the controller is told of it."""
        from autocap.session.search_space import limits_found

        original_w = limits_found(self.device) if self.guardian is None else self.guardian.original_w
        return Found.of(self.device, original_w, self.way, self.meter)

    def read(self, *, counted: bool) -> Row:
        """All there is to read, as a session reads it. counted: whether iterations need be. Raises DeviceError."""
        self._counted = counted
        (sample,) = self._sampler.samples()
        return Row(t_s=sample.t_s, readings=sample.readings, steps=sample.steps, node=sample.node)

    def notes(self) -> tuple[str, ...]:
        """What the user should know, as far as it was not told yet; of how iterations are counted again and again."""
        guarded = () if self.guardian is None else self.guardian.notes
        new, self._noted = guarded[self._noted :], len(guarded)
        counting = self.counting
        fault = () if counting.fault is None else (counting.fault,)
        return (*new, *self._sampler.notes(), *counting.remarks, *fault)

    def rehearse(self) -> None:
        """Raises AutocapError where limits cannot be set, with all reasons."""
        way, guardian = self._held()
        with way.explained():
            guardian.rehearse()

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Request a cap of each device, watts. Raises as `rehearse`."""
        way, guardian = self._held()
        with way.explained():
            guardian.set_caps(caps_w)

    def restore(self) -> tuple[Restored, ...]:
        """Put the limits found on arrival back."""
        return () if self.guardian is None else tuple(self.guardian.restore())

    def beat(self) -> bool:
        """As LimitGuard has it."""
        return self.guardian is not None and self.guardian.beat()

    def _held(self) -> "tuple[Actuation, LimitGuard]":
        if self.way is None or self.guardian is None:
            raise DeviceError("a job that is only observed has no limits to set; leave out --observe to tune it")
        return self.way, self.guardian


class Preparation:
    """What is asked for by `begin`, prepared step by step. stack: closes what was opened. say: takes sentences for the
    user. workers: of the job, as its engine has them. next_s: when the next step is due."""

    def __init__(
        self,
        begin: Begin,
        clock: Clock,
        stack: ExitStack,
        say: Callable[[str], None],
        workers: Collection[ProcessId] = (),
    ) -> None:
        self._begin, self._clock, self._stack, self._say = begin, clock, stack, say
        self._job = reached_by(begin.target.engine)[0].job_here(begin.target, workers)
        self._steps = self._prepare()
        self.next_s = clock.now()

    def step(self) -> NodeJob | None:
        """Do the next step; what was prepared, once that was the last. Raises AutocapError where that cannot be."""
        done = next(self._steps)
        if isinstance(done, float):
            self.next_s = done
            return None
        return done

    def _prepare(self) -> Iterator[float | NodeJob]:
        """Yields when to go on, and at last what was prepared."""
        begin, now = self._begin, self._clock.now
        config = _config(begin)
        for module in HEAVY:
            import_module(module)
            yield now()
        from autocap import devices
        from autocap.devices import node as node_power
        from autocap.session.preparing import settle_leftovers
        from autocap.session.via import actuation, require_setter

        require_setter(config)
        for note in settle_leftovers(observe=begin.observe):
            self._say(note)
        yield now()
        source = self._stack.enter_context(devices.open_source(config, self._clock, _any_caps, os.geteuid()))
        yield now()
        meter = None
        if begin.node_power != "none":
            meter = node_power.open_source(begin.node_power, self._clock)
            self._stack.callback(meter.close)
            yield now()
        counting = self._counter()
        yield now()
        began_s = now()
        while (device := self._look(source, now() - began_s)) is None:
            yield now() + _LOOK_EVERY_S
        self._stack.callback(device.close)
        roots = self._job.roots()
        if not roots:
            raise DeviceError("the job ended on this node before its devices were guarded")
        counting.follow(roots)
        ready = NodeJob(clock=self._clock, job=self._job, device=device, counting=counting, meter=meter)
        if not begin.observe:
            if device.refusal is not None:
                raise DeviceError(device.refusal)
            yield now()
            ready.way = actuation(begin.via, device)
            if ready.way.budget is not None:
                raise DeviceError(
                    f"{ready.way.reason}, under which a job on several nodes is not tuned as one; end the budget, or "
                    "tune without --nodes"
                )
            ready.guardian = self._stack.enter_context(ready.way.guardian(roots[0]))
            yield now()
            ready.rehearse()
        yield ready

    def _counter(self) -> "IterationCounter":
        from autocap.progress.counter import IterationCounter
        from autocap.progress.steps.map import StepMap

        name = self._begin.step_map
        step_map = None if name is None else StepMap.of_name(Path(name), self._job.has)
        return self._stack.enter_context(  # which closes the map
            IterationCounter(self._begin.progress, ours=step_map is not None, step_map=step_map)
        )

    def _look(self, source: DeviceSource, waited_s: float) -> Tunable | None:
        """The job's devices, once it uses some here. Raises DeviceError once it has not for too long."""
        is_last = waited_s >= self._begin.wait_s
        roots = self._job.roots()
        device = source.find(roots, math.inf if is_last else waited_s) if roots else None
        if device is None and is_last:
            who = f"{self._begin.target.engine} job {self._begin.target.job}"
            used = "used no GPU" if roots else "had no process"
            raise DeviceError(
                f"{who} {used} on {os.uname().nodename} within {self._begin.wait_s:g} s; "
                "pass a larger --wait if it starts slowly, or --gpus"
            )
        return device


def _config(begin: Begin) -> RunConfig:
    return RunConfig(
        command=(),
        tune=TuneConfig(metric=Metric(name="energy"), observe=begin.observe, wait_s=begin.wait_s),
        device=begin.device,
        via=begin.via,
        gpus=begin.gpus,
        progress=begin.progress,
        node_power=begin.node_power,
        shared_gpu=begin.shared_gpu,
    )


def _any_caps(gpus: Sequence[GpuInfo], found_w: Sequence[float] = ()) -> None:
    """The controller knows the devices of all nodes, and judges by them."""
