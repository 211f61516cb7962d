"""How soon the next sample is taken, and what is taken in of each, whatever the phase: marks, energy, pauses, and the
totals of the run.

Each sample wakes a core that sleeps, so none is taken that says nothing new. Exact counts and energy counters know what
was used by when, however seldom they are looked at: a window needs its edges alone. There the energy by the end of an
iteration is interpolated between two samples, and a counter that moves every 100 ms is known to no better than that. So
while something is measured there are many samples an iteration, or two a move of the counter, in step with it: it is
then found as old each time. Out of step a search took up to twice as long until errors were as small; with one a move,
and out of step by a hundredth, three times. Where power is added up, or a period is looked for in it, every reading of
the sensor counts: through every other one a period was found to be off by 4 %. Once it is known at a cap that is held,
its phase is followed by a reading now and then.
"""

from autocap import events
from autocap.config import SAMPLES_PER_UPDATE
from autocap.controller.context import StepContext
from autocap.controller.tuning import TUNING
from autocap.measurement.metering import IdleWatch, Metered, Metering
from autocap.measurement.totals import RunningTotals
from autocap.progress import Progress
from autocap.records import Sample, SensorInfo


class Pace:
    """sensor: of the devices."""

    def __init__(self, sensor: SensorInfo) -> None:
        self._update_s, self._fresh_s = sensor.update_s, sensor.update_s / SAMPLES_PER_UPDATE
        self._step_s, self._usual_s = self._fresh_s, TUNING.sample_measuring_s
        if sensor.counter_s is not None:
            is_fast = sensor.counter_s < TUNING.sample_fast_counter_s
            self._step_s = sensor.counter_s if is_fast else sensor.counter_s / SAMPLES_PER_UPDATE
            self._usual_s = TUNING.sample_by_fast_counter_s if is_fast else TUNING.sample_measuring_s
        self._counts = False  # all devices count their energy
        self._holds_node = False  # the machine's is added up from power

    def take(self, sample: Sample) -> None:
        """See what a sample holds."""
        self._counts = all(reading.energy_j is not None for reading in sample.readings)
        self._holds_node = sample.node is not None and sample.node.energy_j is None

    @property
    def counts(self) -> bool:
        """Whether counters tell the energy, however seldom they are looked at."""
        return self._counts and not self._holds_node

    def interval_s(self, *, held: bool, follows_power: bool, iteration_s: float, step_s: float = 0.0) -> float:
        """Seconds until the next sample.

        held: nothing is measured, and only a change is looked for. follows_power: iterations are found in the power,
        which takes as much then, but where a sample each step_s, above 0, will do. iteration_s: of an iteration, 0
        while that is unknown.
        """
        fastest_s = max(self._fresh_s, TUNING.sample_fastest_s)
        if follows_power and held and step_s > fastest_s:
            return step_s if self._counts else min(step_s, max(self._update_s, TUNING.sample_measuring_s))
        if follows_power or not (self._counts or held):
            return fastest_s
        if not self._counts:
            return max(self._update_s, TUNING.sample_measuring_s)
        if held:
            return max(TUNING.sample_node_s if self._holds_node else TUNING.sample_held_s, self._fresh_s)
        needed_s = min(max(iteration_s / TUNING.sample_per_iteration, self._usual_s), TUNING.sample_longest_s)
        return self._step_s * max(1, round(needed_s / self._step_s))


_TALLY_EVERY_S = 5.0


class Intake:
    """idle: what was seen of the machine at rest before. totals: of the run. done: iterations so far. recounted: what
    counts the iterations and what did before, where that is another since the last sample; else `None`."""

    def __init__(self, progress: Progress, context: StepContext, idle: IdleWatch) -> None:
        self._progress, self._context, self._idle = progress, context, idle
        self._metering, self.totals = Metering(), RunningTotals()
        self.done = self._tallied_s = 0.0
        self._is_new_value = False  # since the last totals
        self.recounted: tuple[str, str] | None = None
        self._seen_progress = False
        self._noticed: str | None = None  # of the progress
        self._counted_by: str | None = None  # a kind of progress

    def meter(self, sample: Sample) -> Metered:
        """What can be said of a sample."""
        marks, kind = self._progress.marks(sample), self._progress.kind
        self.recounted = None
        if marks:
            before, self._counted_by, self.done = self._counted_by, kind, marks[-1].iterations
            self.recounted = None if before in (None, kind) else (kind, before or "")
        return self._metering.meter(sample, marks, kind, self._context.decided_w)

    def begin_anew(self) -> None:
        """Nothing that was counted can be compared with what is to come."""
        self._seen_progress, self.totals = False, RunningTotals()

    def tell(self, metered: Metered, *, waiting: bool) -> None:
        """Announce what the sample shows of the job, and add it to the totals. waiting: for a search to begin."""
        out, kind = self._context, self._progress.kind
        if metered.marks and not self._seen_progress:
            self._seen_progress = True
            out.announce(events.ProgressFound(t_s=out.now_s, kind=kind, confidence=self._progress.confidence))
        if waiting and self._progress.notice not in (None, self._noticed):
            self._noticed = self._progress.notice
            out.warn(self._progress.notice or "")
        idle_w = self._idle.add(metered, kind)
        if idle_w is not None:
            out.announce(events.IdleEstimated(t_s=out.now_s, power_w=idle_w, seen_s=self._idle.seen_s))
        out.heed_pause(paused=metered.paused)
        self.totals.add(metered, out.shown)

    def value_changes(self) -> None:
        """What energy costs is another from now on: the totals up to the last sample before that are announced, and
        those at the first one after it, as caps, and so the power, follow the value."""
        self.tally()
        self._is_new_value = True

    def tally(self, *, due: bool = True) -> None:
        """Announce the totals. due: now, and not only where the last ones are old."""
        if not due and not self._is_new_value and self._context.now_s - self._tallied_s < _TALLY_EVERY_S:
            return
        self._tallied_s, self._is_new_value = self._context.now_s, False
        tally = self.totals.tally(self._context.now_s)
        if tally is not None:
            self._context.announce(tally)
