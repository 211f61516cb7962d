"""A job beside a made-up knob, in virtual time: a controller is fed what it draws, and sets what it asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import Announce, SetCaps
from autocap.controller.controller import Controller
from autocap.events import State
from autocap.progress import StepProgress
from autocap.records import Reading, Sample, SensorInfo, StepReading
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from autocap.testing.curves import Curve
from bench.simulation.jobs import new_strategy

_INTERVAL_S, _SCATTER = 0.1, 0.01
_ITERATION_S = 0.25  # where a curve says 1


@dataclass
class KnobJob:
    """curve: what an iteration takes at each setting. found: the setting on arrival. announced: the events; set_to:
    each setting that was asked for, in order. It goes on where it stopped."""

    curve: Curve
    grid: CapGrid
    found: float
    announced: list[Any] = field(default_factory=list)
    set_to: list[float] = field(default_factory=list)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _t_s: float = 0.0
    _ended_s: float = 0.0  # the last iteration
    _count: int = 0
    _done: float = 0.0  # work, of which an iteration is about 1
    _due: float = 1.0

    def controller(
        self, config: TuneConfig, strategy: str, options: Sequence[tuple[str, str]] = (), **more: Any
    ) -> Controller:
        return Controller(
            config=config,
            sensor=SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5),
            original_w=(self.found,),
            grid=self.grid,
            progress=StepProgress(),
            new_strategy=new_strategy(registry.find(strategy), self.grid, options=options),
            **more,
        )

    def run(self, controller: Controller, until_s: float | None = None) -> None:
        """Until then or, without a time, until what was decided is held, or nothing more is."""
        while self._t_s < (until_s or 3000.0):
            if until_s is None and controller.state in (State.HOLDING, State.DONE):
                break
            self.take(controller.feed(self._sample(*controller.settings)))

    def _sample(self, setting: float) -> Sample:
        """The next one, after a while at a setting."""
        progress = _INTERVAL_S / (_ITERATION_S * self.curve.time_s(setting))
        self._t_s, self._done = self._t_s + _INTERVAL_S, self._done + progress
        while self._done >= self._due:
            self._ended_s = self._t_s - _INTERVAL_S * (self._done - self._due) / progress
            self._count, self._due = self._count + 1, self._due + 1 + _SCATTER * float(self._rng.standard_normal())
        power_w = self.curve.power_w(setting) * (1 + _SCATTER * float(self._rng.standard_normal()))
        steps = StepReading(count=self._count, t_s=self._ended_s) if self._count else None
        return Sample(t_s=self._t_s, readings=(Reading(t_s=self._t_s, power_w=power_w),), steps=steps)

    def take(self, actions: Sequence[object]) -> None:
        for action in actions:
            if isinstance(action, SetCaps):
                self.set_to.append(action.settings[0])
            elif isinstance(action, Announce):
                self.announced.append(action.event)

    def heard(self, *kinds: type[events.Event]) -> list[Any]:
        return [event for event in self.announced if isinstance(event, kinds)]

    @property
    def decided(self) -> events.Decided:
        return self.heard(events.Decided)[-1]
