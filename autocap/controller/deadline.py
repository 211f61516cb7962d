"""What all of a job may take, while its caps follow a value: a time by which it is to be done, or a largest slowdown.

Both leave open when the job is slowed down. The time is kept at any moment: as fast as the job can go, what is left
must fit into the rest; and no more is spent of a slowdown than the job has saved up of it so far, so that it holds
wherever the job ends.
"""

import math

from autocap.config import TuneConfig
from autocap.controller.context import StepContext
from autocap.controller.intake import Intake
from autocap.controller.tuning import TUNING
from autocap.records import Measurement

_LEAST = 1e-6  # a slowdown that no cap is within


class Deadline:
    """finish_s: on the run's clock, `None` for no such time; it holds only where the config says how many iterations
    the job has."""

    def __init__(self, config: TuneConfig, finish_s: float | None, intake: Intake, context: StepContext) -> None:
        self._most, self._iterations = config.metric.max_slowdown, config.iterations
        self.finish_s = finish_s if config.iterations is not None else None
        self._intake, self._context = intake, context

    def whole(self, baseline: Measurement) -> float | None:
        """The largest slowdown from now on, if it is the same all the time; `None` where nothing limits it."""
        if self.finish_s is None:
            return self._most
        rest = max(_LEAST, self._trained_s(self._context.now_s) / self._left_s(baseline) - 1)
        return rest if self._most is None else min(rest, self._most)

    def is_lost(self, baseline: Measurement) -> bool:
        """Whether the job is late even without any cap."""
        return self.finish_s is not None and self._trained_s(self._context.now_s) < self._left_s(baseline)

    def iterations(self, baseline: Measurement, seconds: float, saved_s: float) -> float:
        """How many must be done in so many seconds to come. saved_s: that the job may lose, of its largest slowdown."""
        needed = 0.0 if self.finish_s is None else TUNING.deadline_reserve * self._left / self._share
        if self._most is not None and seconds > saved_s:
            needed = max(needed, (seconds - saved_s) / (baseline.period_s * (1 + self._most)))
        return needed

    def within(self, baseline: Measurement, until_s: float, saved_s: float) -> float | None:
        """The largest slowdown until then, seconds; `None` where nothing limits it."""
        here_s, found = until_s - self._context.now_s, math.inf
        if self.finish_s is not None:
            due_s = self._left_s(baseline) - self._trained_s(until_s)  # of work, by then
            found = self._share * here_s / due_s - 1 if due_s > 0 else math.inf
        if self._most is not None and here_s > saved_s:
            found = min(found, (1 + self._most) * here_s / (here_s - saved_s) - 1)
        return None if math.isinf(found) else max(_LEAST, found)

    @property
    def _left(self) -> float:
        """Iterations."""
        return max(1.0, (self._iterations or 0) - self._intake.done)

    def _left_s(self, baseline: Measurement) -> float:
        """Seconds that these take at the limits found on arrival."""
        return TUNING.deadline_reserve * self._left * baseline.period_s

    def _trained_s(self, from_s: float) -> float:
        """Seconds of training from then to the end."""
        return self._share * max(0.0, (self.finish_s or 0.0) - from_s)

    @property
    def _share(self) -> float:
        """Of its time, in which the job has trained so far."""
        tally = self._intake.totals.tally(self._context.now_s)
        if tally is None or tally.counted_s <= 0:
            return 1.0
        return max(TUNING.deadline_least_share, 1 - tally.paused_s / tally.counted_s)
