"""Of the processes that count, the one whose steps are the job's: the slowest rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocap.job.processes import ProcessId
from autocap.records import StepReading

# A process that has not stepped for this long while others have is left behind; a slow one has longer.
_IDLE_S, _IDLE_INTERVALS = 10.0, 20
_LATE_INTERVALS = 2
SHORTEST_STEP_NS = 100  # counting one takes longer than that


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSteps:
    """What one process has published.

    rank: its RANK in the job, `None` where that is unset. explicit: it counts by hand, with autocap.step().
    first_s, last_s: when its first and its last step ended, seconds on the system's monotonic clock.
    """

    process: ProcessId
    rank: int | None
    explicit: bool
    first_s: float
    last_s: float
    count: int

    def is_left_behind(self, newest_s: float) -> bool:
        """Whether, with the job's newest step at `newest_s`, this process no longer takes part in it."""
        return newest_s - self.last_s > max(_IDLE_S, _IDLE_INTERVALS * self.interval_s)

    def is_late(self, newest_s: float) -> bool:
        """Whether, with the job's newest step at `newest_s`, this process may have ended."""
        return newest_s - self.last_s > _LATE_INTERVALS * self.interval_s

    @property
    def interval_s(self) -> float:
        """Mean time from step to step."""
        return (self.last_s - self.first_s) / max(1, self.count - 1)


class JobSteps:
    """Makes one count out of those of a job's processes: the slowest rank's.

    Processes that are dead are left out, and so are those left behind: without a step for 10 s (or 20 times their
    own mean interval) before the newest step of another live process. That way a helper that trained a little at
    start-up and lives on does not hold the count, while a job that pauses as a whole leaves nobody behind. Where any
    of the rest counts by hand, only those that do are looked at. Of several processes with the same RANK (a rank's
    own children inherit it) the busiest speaks for the rank, and of the ranks the slowest for the job. Where no
    process has a RANK, the busiest speaks for the job.

    The count never falls: a process that comes to speak for the job with a lower count, such as a rank that was
    started again, goes on from the count published so far. Nor does it leap: it rises by no more than the time allows.
    """

    def __init__(self) -> None:
        self._published: StepReading | None = None
        self._last_s: dict[ProcessId, float] = {}
        self._raised: dict[ProcessId, int] = {}

    def update(
        self, processes: Sequence[ProcessSteps], is_alive: Callable[[ProcessId], bool] = ProcessId.is_alive
    ) -> StepReading | None:
        """The job's steps, given what its processes have published by now; `None` before the first.

        Times are those of the records given. is_alive is asked only for processes that are late beside another and did
        not step since last time: the last steps of one that ended in between count.
        """
        newest_s = max((each.last_s for each in processes), default=0.0)
        alive = [
            each for each in processes if self._stepped(each) or not each.is_late(newest_s) or is_alive(each.process)
        ]
        self._last_s = {each.process: each.last_s for each in processes}
        self._raised = {process: count for process, count in self._raised.items() if process in self._last_s}
        speaker = self._speaker(alive)
        if speaker is None:
            return self._published
        count = self._value(speaker)
        before = self._published
        if before is not None and count < before.count:
            self._raised[speaker.process] = before.count - speaker.count
        elif before is None or 0 < count - before.count <= (speaker.last_s - before.t_s) * 1e9 / SHORTEST_STEP_NS:
            self._published = StepReading(count=count, t_s=speaker.last_s)
        return self._published

    def _stepped(self, now: ProcessSteps) -> bool:
        before_s = self._last_s.get(now.process)
        return before_s is None or now.last_s > before_s

    def _value(self, each: ProcessSteps) -> int:
        return each.count + self._raised.get(each.process, 0)

    def _speaker(self, alive: Sequence[ProcessSteps]) -> ProcessSteps | None:
        newest_s = max((each.last_s for each in alive), default=0.0)
        active = [each for each in alive if not each.is_left_behind(newest_s)]
        candidates = [each for each in active if each.explicit] or active
        by_rank: dict[int, list[ProcessSteps]] = {}
        for each in candidates:
            if each.rank is not None:
                by_rank.setdefault(each.rank, []).append(each)
        if by_rank:
            return min((max(group, key=self._value) for group in by_rank.values()), key=self._value)
        return max(candidates, key=self._value, default=None)
