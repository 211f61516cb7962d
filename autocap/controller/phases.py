"""Where the controller is, with what belongs to each phase; which may follow which:

Waiting → Baseline → Exploring → Holding; Waiting → Exploring where a rough baseline does; Baseline → Waiting when it
cannot be measured, → Observing where nothing may be set; Exploring → Baseline when the job has changed; Holding →
Exploring to check what is held, → Baseline to tune anew; any → Done. When, the plan says (`plan`).
"""

from dataclasses import dataclass

from autocap.controller.actions import Kept
from autocap.controller.baseline import Baseline
from autocap.controller.exploration import Exploration
from autocap.controller.holding import Hold
from autocap.controller.waiting import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """A cap is searched for and confirmed. held_w: the caps, watts per device, that are held and only measured again;
    `None` in a search."""

    exploration: Exploration
    held_w: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What was decided is held. settings: watts per device, as far as the ceiling allows."""

    exploration: Exploration
    hold: Hold
    decision: Kept
    settings: tuple[float, ...]


class Observing:
    """The job is measured, and nothing is set."""


class Done:
    """Nothing more is decided."""


Phase = Waiting | Baseline | Exploring | Holding | Observing | Done
