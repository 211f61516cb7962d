"""What is taken in of every sample, whatever the phase: marks, energy, pauses, and the totals of the run."""

from autocap import events
from autocap.controller.context import StepContext
from autocap.measurement.idle import IdleWatch
from autocap.measurement.metering import Metered, Metering
from autocap.measurement.totals import RunningTotals
from autocap.progress import Progress
from autocap.records import Sample

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
