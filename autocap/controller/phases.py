"""Where the controller is, with what belongs to each phase; which may follow which:

Waiting → Baseline → Exploring → Holding; Baseline → Waiting when it cannot be measured, → Observing where nothing may
be set; Exploring → Baseline when the job has changed; Holding → Exploring to check what is held, → Baseline to tune
anew; any → Done.
"""

from dataclasses import dataclass

from autocap.controller.exploration import Exploration
from autocap.controller.holding import Hold
from autocap.measurement.steadiness import SteadinessWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Activity is not steady yet. until_s: how long that is waited for, on the run's clock; longer where iterations
    are long."""

    watch: SteadinessWatch
    until_s: float

    @property
    def longer_s(self) -> float:
        """By how much."""
        return max(0.0, self.watch.fair_s - self.until_s)


class Baseline:
    """The limits found on arrival are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """A cap is searched for and confirmed; or, where `checks`, a cap that is held is measured again."""

    exploration: Exploration
    checks: bool = False


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
