"""The log of a simulated job, for tests of what is made of it, and what it holds, for tests of what became of it."""

import functools
from dataclasses import replace
from typing import Any, Protocol

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events import DeviceFound, Event, MetricInfo, RunEnded, RunStarted, State
from autocap.metrics import Metric
from autocap.reports.live.status import Status
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import Outcome, tune


class Logged(Protocol):
    """An outcome of `bench.simulation.jobs.tune`, or the log of any other run."""

    @property
    def log(self) -> Any: ...


def announced(outcome: Logged, *kinds: type[events.Event]) -> list[Any]:
    """Its events of some kinds, in order."""
    return [event for event in outcome.log.events if isinstance(event, kinds)]


def states(outcome: Logged) -> list[State]:
    return [event.state for event in announced(outcome, events.StateEntered)]


def warnings(outcome: Logged) -> list[str]:
    return [event.text for event in announced(outcome, events.Warned)]


def caps_set(outcome: Logged) -> list[float]:
    return [event.setting[0] for event in announced(outcome, events.CapSet)]


def held_at(outcome: Logged, t_s: float, found_w: float = 260.0) -> float:
    """The cap that was set last by a time, watts. found_w: the limit found on arrival."""
    held = [event.setting[0] for event in announced(outcome, events.CapSet) if event.t_s <= t_s]
    return held[-1] if held else found_w


STARTED = RunStarted(
    t_s=0.0,
    autocap_version="0",
    mode="run",
    command=("python", "train.py"),
    pid=1,
    started_at="2026-01-01T00:00:00+00:00",
    metric=MetricInfo(name="eds", k=2.0),
    strategy="golden",
    strategy_options=(),
)


def in_full(outcome: Outcome, metric: Metric | None = None, ended_because: str = "the job ended") -> list[Event]:
    """The events of a simulated job as its run directory would hold them. metric: in place of EDS(2)."""
    started = STARTED if metric is None else replace(STARTED, metric=MetricInfo.of(metric))
    found = DeviceFound(t_s=0.0, kind="simulated", emulated=True, gpus=outcome.device.gpus, original=(260.0,))
    return [started, found, *outcome.log.events, RunEnded(t_s=outcome.wall_s, ended_because=ended_because)]


@functools.cache
def whole_log() -> tuple[Event, ...]:
    """The events of a whole job, as its run directory would hold them."""
    config = TuneConfig(metric=Metric(name="eds", k=2.0))
    outcome = tune(SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), iterations=900), config, "golden")
    return tuple(in_full(outcome))


def status_after(events: list[Event]) -> Status:
    status = Status()
    for event in events:
        status.event(event)
    return status


def until(log: list[Event], kind: type, count: int = 1) -> list[Event]:
    """The log up to the count-th event of a kind."""
    places = [place for place, event in enumerate(log) if isinstance(event, kind)]
    return log[: places[count - 1] + 1]
