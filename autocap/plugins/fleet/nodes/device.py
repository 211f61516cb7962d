"""The devices of all nodes as one device, where it comes from, and its samples. It is read and set by the agents."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from autocap.devices.base import DeviceSource, LimitPort, Tunable
from autocap.errors import DeviceError
from autocap.plugins.fleet.nodes.fleet import Fleet
from autocap.plugins.fleet.nodes.protocol import Begin
from autocap.records import GpuInfo, Reading, Sample, SensorInfo, StepReading

# A cap is in force on the last node somewhat after the sample at which it was decided.
_ACROSS_S = 0.5
_LOOK_S = 0.02
_GPUS = "nvml"  # the kind of what an engine calls GPUs


class ClusterDevice(Tunable):
    """What all agents have found, node by node in the order of their numbers."""

    def __init__(self, fleet: Fleet) -> None:
        every = fleet.found
        assert every, "the devices are known once all agents have found theirs"
        self._fleet = fleet
        self.kind = _joined(found.kind for found in every)
        self.emulated = any(found.emulated for found in every)
        self.driver = _joined(found.driver for found in every if found.driver is not None) or None
        self.gpus = tuple(
            replace(gpu, node=agent.name)
            for agent, found in zip(fleet.agents, every, strict=True)
            for gpu in found.gpus
        )
        counters_s = [found.sensor.counter_s for found in every if found.sensor.counter_s is not None]
        self.sensor = SensorInfo(
            update_s=max(found.sensor.update_s for found in every),
            window_s=max(found.sensor.window_s for found in every),
            settle_s=max(found.sensor.settle_s for found in every) + _ACROSS_S,
            counter_s=max(counters_s) if len(counters_s) == len(every) else None,
        )
        self._readings = tuple(
            Reading(t_s=fleet.now(), power_w=None, requested_w=limit_w)
            for found in every
            for limit_w in found.original_w
        )

    def read(self) -> tuple[Reading, ...]:
        """As in the latest sample."""
        return self._readings

    def take(self, sample: Sample) -> None:
        """The latest sample."""
        self._readings = sample.readings

    def notes(self) -> tuple[str, ...]:
        """Of all agents, with the node's name."""
        return self._fleet.notes()

    def limits(self) -> LimitPort:
        """Raises DeviceError: each node's agent has its own."""
        raise DeviceError("limits on other nodes are set by their agents, and nowhere else")


class ClusterSource(DeviceSource):
    """begin: what the agents are to look for. within_s: for how long the only look waits for the last of them. close:
    ends the agents."""

    def __init__(
        self,
        fleet: Fleet,
        begin: Callable[[], Begin],
        pause: Callable[[float], object],
        within_s: float,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._fleet, self._begin, self._pause, self._within_s = fleet, begin, pause, within_s
        self._close = close

    def __exit__(self, *error: object) -> None:
        self._close()

    def find(self, job: object, waited_s: float) -> ClusterDevice | None:
        """As DeviceSource has it, once all agents have found theirs."""
        fleet = self._fleet
        end_s = fleet.now() + (self._within_s if math.isinf(waited_s) else 0.0)
        while True:
            fleet.tend()
            begin = self._begin()  # Ray's job is known only once it was found
            fleet.begin(begin)
            if (trouble := fleet.trouble) is not None:
                fleet.end(trouble)
                raise DeviceError(trouble)
            if fleet.found is not None:
                if begin.gpus is None:
                    _compare(fleet)
                return ClusterDevice(fleet)
            if fleet.now() >= end_s:
                break
            self._pause(_LOOK_S)
        if math.isinf(waited_s):
            missing = ", ".join(agent.name for agent in fleet.agents if agent.found is None)
            why = (
                f"no answer from the agents of {missing} within {self._within_s:g} s; see their nodes"
                if fleet.agents
                else f"the nodes of the job were not known within {self._within_s:g} s: not all of its actors live "
                "yet, or it has none; tune it once they do"
            )
            fleet.end(why)
            raise DeviceError(why)
        return None


class ClusterSampler:
    """steps: what is counted here, such as lines of output; it goes before what the nodes count. pace: seconds between
    samples."""

    def __init__(
        self,
        fleet: Fleet,
        device: ClusterDevice,
        steps: Callable[[], StepReading | None],
        pace: Callable[[], float],
    ) -> None:
        self._fleet, self._device, self._steps, self._pace = fleet, device, steps, pace
        self._was_paused = False
        self._counted: deque[StepReading] = deque()  # here, the last at or before the latest sample, and since

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """As Sampler has it."""
        return self._device.gpus

    def samples(self) -> Iterator[Sample]:
        """What the agents have read, up to the time by which all have; nothing once they were ended, or the job has on
        one of its nodes, nor while one of them is stalled, or limits were put back and nobody has heard of it yet.

        Raises DeviceError, once, where one of them is gone.
        """
        fleet = self._fleet
        if fleet.over is not None:
            return
        fleet.expect_rows()
        here = self._steps()
        if here is not None and (not self._counted or here != self._counted[-1]):
            self._counted.append(here)
        fleet.interval_s = self._pace()
        fleet.tend()
        if (trouble := fleet.trouble) is not None:
            fleet.end(trouble)
            raise DeviceError(trouble)
        assert fleet.joiner is not None
        if fleet.ending:
            return
        if fleet.unheard or fleet.was_put_back:  # which is heard with the next beat, and no sample until then counts
            self._was_paused = True
            return
        if self._was_paused:
            self._was_paused = False
            fleet.joiner.drop_before(fleet.now())
        while (sample := fleet.joiner.next(fleet.silent)) is not None:
            self._device.take(sample)
            yield self._with_steps(sample)
        fleet.interval_s = self._pace()  # what was decided on is to be seen at once

    def notes(self) -> tuple[str, ...]:
        """As Sampler has it."""
        return self._device.notes()

    def _with_steps(self, sample: Sample) -> Sample:
        counted = self._counted
        while len(counted) > 1 and counted[1].t_s <= sample.t_s:
            counted.popleft()
        return replace(sample, steps=counted[0]) if counted and counted[0].t_s <= sample.t_s else sample


def _compare(fleet: Fleet) -> None:
    """Say where another number of GPUs is tuned than the job was given."""
    for agent in fleet.agents:
        found, given = agent.found, fleet.held(agent)
        if given and found is not None and found.kind == _GPUS and len(found.gpus) != given:
            gpus = f"{given} GPU{'s' * (given != 1)}"
            fleet.note(f"{agent.name}: the job was given {gpus} there and uses {len(found.gpus)}, which are tuned")


def _joined(names: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(names))
