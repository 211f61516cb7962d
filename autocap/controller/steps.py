"""The steps of a search and of its confirmation; which may follow which:

AtTrial → the next one, Confirming, or Anchoring; Anchoring → AtTrial or Confirming; Confirming → Balancing (a cap per
GPU), or Confirming of the runner-up. Each may end in a decision; a check of what is held begins with Confirming.
"""

from dataclasses import dataclass
from enum import Enum, auto

from autocap.controller.comparison import Comparison
from autocap.controller.per_gpu.balancing import Balancing


class TrialStage(Enum):
    """Of a trial: first one of the former two, or neither."""

    REVISITING = auto()  # the baseline is measured again
    SAVING_UP = auto()  # it waits, at the limit found on arrival, for the time that it will cost the job
    TRYING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTrial:
    """A cap was asked for, watts."""

    cap_w: float
    stage: TrialStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirming:
    """A cap in turn with the baseline. held: it holds already, and is only checked."""

    comparison: Comparison
    held: bool


class Anchoring:
    """The baseline is measured well: by a rough one nothing would be kept, which may be wrong."""


# `None`: nothing is measured.
Step = None | AtTrial | Anchoring | Confirming | Balancing
