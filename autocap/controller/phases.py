"""Where the controller is, with what belongs to each phase; which may follow which:

Waiting → Baseline → Exploring → Holding; Waiting → Exploring where a rough baseline does; Baseline → Waiting when it
cannot be measured, → Observing where nothing may be set; Exploring → Baseline when the job has changed; Holding →
Exploring to check what is held, → Baseline to tune anew; any → Done.
"""

from dataclasses import dataclass

from autocap.controller.exploration import Exploration
from autocap.controller.first_look import FirstLook
from autocap.controller.holding import Hold
from autocap.measurement.steadiness import SteadinessWatch

_FOR_THE_FIRST = 4.0  # times the usual wait, beyond it


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Activity is not steady yet. since_s, until_s: how long that is waited for, on the run's clock. look: for a rough
    baseline, with which the search need not wait; `None` where it has to."""

    watch: SteadinessWatch
    since_s: float
    until_s: float
    look: FirstLook | None = None

    def longer_s(self, *, counted: bool) -> float:
        """How much longer, where iterations are long. counted: what counts them says at once when one has ended, so
        that the first one may still be under way where none has."""
        if counted and self.watch.is_at_first:
            return _FOR_THE_FIRST * (self.until_s - self.since_s)
        return max(0.0, self.watch.fair_s - self.until_s)


class Baseline:
    """The limits found on arrival are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """A cap is searched for and confirmed. held_w: the caps, watts per device, that are held and only measured again;
    `None` in a search."""

    exploration: Exploration
    held_w: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What was decided is held. caps_w: watts per device."""

    exploration: Exploration
    hold: Hold
    caps_w: tuple[float, ...]


class Observing:
    """The job is measured, and nothing is set."""


class Done:
    """Nothing more is decided."""


Phase = Waiting | Baseline | Exploring | Holding | Observing | Done
