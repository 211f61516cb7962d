"""Iterations of a job on several nodes: the agents count steps and calls, its output and `autocap.tune` count here."""

from collections.abc import Callable, Mapping
from typing import Self

from autocap.config import CALLS_WITHIN_SECONDS, PERIOD_WITHIN_SECONDS
from autocap.job.processes import Roots
from autocap.progress import BestProgress, Progress, SpeedProgress, StepProgress
from autocap.progress.calls.target import KIND as CALLS
from autocap.progress.calls.target import call_target
from autocap.progress.counter import IterationCounter
from autocap.progress.counting import Counting
from autocap.progress.period.progress import PeriodProgress
from autocap.records import SensorInfo, StepReading


def of_agents(kind: str, step_map_fd: int | None) -> str:
    """What the agents are to count, as --progress has it: nothing that is counted here, or not at all."""
    counted = kind in ("auto", "steps", CALLS) or kind.startswith(f"{CALLS}:")
    return kind if counted and step_map_fd is None else "none"


class ClusterCounter(Counting):
    """kind, ours, step_map_fd: as IterationCounter has them. tell: hears whether iterations need be counted.

    step_map: the path of the file in which the job's processes count, the same on every node; `None` without one.
    """

    def __init__(
        self,
        kind: str,
        *,
        ours: bool,
        step_map_fd: int | None,
        tell: Callable[[bool], object],
        for_workers: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] | None = None,
    ) -> None:
        self._for_workers = for_workers
        self._kind, self._ours, self._tell = kind, ours, tell
        self._inner = IterationCounter(kind, ours=ours, step_map_fd=step_map_fd)
        super().__init__(self._inner)
        self._counts_here = step_map_fd is not None or kind.startswith("regex:")
        self.step_map: str | None = None

    def __enter__(self) -> Self:
        if self._counts_here or (self._ours and self._kind in ("auto", "steps")):
            self._inner.__enter__()
            if not self._counts_here and self._inner.step_map is not None:
                self.step_map = str(self._inner.step_map)
        return self

    def follow(self, job: Roots | None) -> None:
        """The agents find its processes."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The agents' come as notes."""
        return ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's, which it hands on to its nodes."""
        if self._for_workers is None or self.step_map is None:
            return self._inner.environment(base)
        return {**base, **self._for_workers(self._inner.environment({}), base)}

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """What is counted here; `None` where the agents count."""
        self._tell(needed)
        return self._inner.read(origin_s) if self._counts_here else None

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks: as on one machine, but whether calls can be counted only the agents know."""
        if self._ours or self._kind != "auto":
            return self._inner.progress(sensor)
        rest = BestProgress(PeriodProgress(sensor), SpeedProgress(), PERIOD_WITHIN_SECONDS, late=True)
        return BestProgress(StepProgress(CALLS, call_target(CALLS).what), rest, CALLS_WITHIN_SECONDS, late=True)
