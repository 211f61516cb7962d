"""What a step knows of when it is and of what holds; what it asks of the runner, and what a search or a check ends
with."""

import math
from dataclasses import dataclass

from autocap import events
from autocap.events import Event, State
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCaps:
    """Request these limits, watts, one per device."""

    settings: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Pass an event on."""

    event: Event


Action = SetCaps | Announce


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Hold these caps, watts per device. reference: how they were measured. again_s: they were not confirmed, and are
    to be after so long; `None` where they were."""

    settings: tuple[float, ...]
    reference: Measurement
    again_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """Hold the limits found on arrival, as nothing is better. reference: how they were measured."""

    reference: Measurement


class RevertForNow(Revert):
    """The same; but a later search may find something better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepByCurve:
    """Hold what is best at or below the ceiling by all that was measured: the limits that the baseline was measured at
    do not hold, so nothing can be confirmed against it. reference: what is expected there."""

    reference: Measurement


Kept = Keep | Revert | KeepByCurve


class StepContext:
    """Of the step that is taken, and the actions that it leads to, in order.

    knob: whose settings are meant. now_s: when, on the run's clock. found_w: the limits found on arrival, watts, one
    per device. ceiling_w: above which no cap may hold, watts, a device; infinite where there is none. decided_w: the
    caps that were asked for last. state: where the controller is; shown: where it says it is, which is PAUSED while the
    job does not train.
    """

    def __init__(self, found_w: tuple[float, ...], knob: Knob = POWER_LIMIT) -> None:
        self.knob = knob
        self.found_w = self.decided_w = found_w
        self.ceiling_w = math.inf
        self._aside = False
        self.state = self.shown = State.WAITING
        self.now_s = 0.0
        self._actions: list[Action] = []

    def open(self, now_s: float) -> None:
        """Begin a step."""
        self.now_s, self._actions = now_s, []

    @property
    def actions(self) -> list[Action]:
        """Those of this step so far."""
        return self._actions

    @property
    def uncapped_w(self) -> tuple[float, ...]:
        """The limits that hold where no cap is tried: those found on arrival, or the ceiling where that is lower."""
        return self._below(self.found_w)

    @property
    def settings(self) -> tuple[float, ...]:
        """The limits that should hold now, watts, one per device."""
        return self.uncapped_w if self._aside else self.decided_w

    @property
    def has_room(self) -> bool:
        """Whether a budget runs, and the limits found on arrival may hold under it."""
        return self.ceiling_w < math.inf and not self.is_bound

    @property
    def is_bound(self) -> bool:
        """Whether the limits found on arrival may not hold."""
        return self.uncapped_w != self.found_w

    def allows(self, setting: float) -> bool:
        """Whether a cap, watts, may hold."""
        return setting <= self.ceiling_w

    def grant(self, ceiling_w: float) -> None:
        """From now on no cap above that holds, watts. What is held is lowered with it; to raise it is another's. A knob
        that is no power limit is left alone."""
        self.ceiling_w = ceiling_w if self.knob.is_power_limit else math.inf
        self.decided_w = self._below(self.decided_w)

    def _below(self, settings: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(min(setting, self.ceiling_w) for setting in settings)

    @property
    def is_aside(self) -> bool:
        """Whether other limits hold than were asked for, as the job pauses."""
        return self.settings != self.decided_w

    def every(self, setting: float) -> tuple[float, ...]:
        """A common cap of all devices."""
        return (setting,) * len(self.found_w)

    def set(self, settings: tuple[float, ...]) -> None:
        """Ask for these caps, where they do not hold already; while others hold aside, only once that is over."""
        self._change(settings, aside=self._aside)

    def step_aside(self) -> None:
        """Have the limits found on arrival hold, until `come_back`."""
        self._change(self.decided_w, aside=True)

    def come_back(self) -> None:
        """Have the caps hold again that were asked for last."""
        self._change(self.decided_w, aside=False)

    def _change(self, decided_w: tuple[float, ...], *, aside: bool) -> None:
        before_w = self.settings
        self.decided_w, self._aside = self._below(decided_w), aside
        if self.settings != before_w:
            self._actions.append(SetCaps(settings=self.settings))

    def set_again(self) -> None:
        """Ask for the caps that should hold, which somebody has put back."""
        if self.settings != self.uncapped_w:
            self._actions.append(SetCaps(settings=self.settings))

    def enter(self, state: State) -> None:
        """Be in a state from now on."""
        self.state = state
        if self.shown is not State.PAUSED or state is State.DONE:
            self.shown = state
        self.announce(events.StateEntered(t_s=self.now_s, state=state))

    def heed_pause(self, *, paused: bool) -> None:
        """Show a pause of the job, or that it is over. paused: the job does something other than training just now."""
        shown = State.PAUSED if paused and self.state not in (State.WAITING, State.DONE) else self.state
        if shown is not self.shown:
            self.shown = shown
            self.announce(events.StateEntered(t_s=self.now_s, state=shown))

    def warn(self, text: str) -> None:
        self.announce(events.Warned(t_s=self.now_s, text=text))

    def announce(self, event: events.Event) -> None:
        self._actions.append(Announce(event=event))
