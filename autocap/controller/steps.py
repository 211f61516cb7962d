"""The steps of a search and of its confirmation; which may follow which:

Resting → Trying, where time must be saved up first by way of SavingUp, and now and then after Revisiting the baseline;
Trying → the next trial, or Confirming; Confirming → Balancing (a cap per GPU), or Confirming of the runner-up. A
decision ends in Resting. A check of what is held begins with Confirming.
"""

from dataclasses import dataclass

from autocap.controller.comparison import Comparison
from autocap.controller.per_gpu.balancing import Balancing


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """Nothing is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingUp:
    """The trial of a cap waits, at the limit found on arrival, for the time that it will cost the job."""

    cap_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """The trial of a cap."""

    cap_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Revisiting:
    """The baseline is measured again, before the trial of a cap."""

    cap_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirming:
    """A cap in turn with the baseline. held: it holds already, and is only checked."""

    comparison: Comparison
    held: bool


Step = Resting | SavingUp | Trying | Revisiting | Confirming | Balancing
