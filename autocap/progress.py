"""Where the iteration count comes from: samples in, marks out. A mark says how many iterations had ended by when."""

from dataclasses import dataclass
from typing import Protocol

from autocap.records import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """iterations: iterations completed since the job's start. t_s: the time at which the last of them ended."""

    t_s: float
    iterations: float


class Progress(Protocol):
    """A source of marks, fed with every sample of the run."""

    @property
    def kind(self) -> str:
        """ "steps", "regex", "period" or "speed"."""

    @property
    def confidence(self) -> str:
        """ "high", or "low" for a proxy that is not a count."""

    def feed(self, sample: Sample) -> tuple[Mark, ...]:
        """The marks that this sample brings, oldest first; none when no iteration is known to have ended since.

        A mark may lie in the past: a period is only recognised afterwards.
        """


class StepProgress:
    """Counts what the training process counts itself: optimiser steps."""

    kind = "steps"
    confidence = "high"

    def __init__(self) -> None:
        self._count = 0

    def feed(self, sample: Sample) -> tuple[Mark, ...]:
        if sample.steps is None or sample.steps.count <= self._count:
            return ()
        self._count = sample.steps.count
        # A stamp cannot lie in the future of its sample; clocks of one machine agree, roundings may not.
        return (Mark(t_s=min(sample.steps.t_s, sample.t_s), iterations=float(self._count)),)
