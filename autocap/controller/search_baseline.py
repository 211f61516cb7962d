"""The baseline in a search: rough at first, and measured again during it, so that a slow drift of the machine
cancels."""

import math
from collections.abc import Callable

from autocap import events
from autocap.controller.announcing import Announcer
from autocap.controller.context import StepContext
from autocap.controller.doubts import Doubts
from autocap.controller.search import Search
from autocap.controller.steps import JobSeemsChanged
from autocap.controller.tuning import TUNING
from autocap.measurement.drift import changed_since, differences, sped_up
from autocap.measurement.prober import Prober
from autocap.metrics import ratios
from autocap.records import Measurement

_AT_ARRIVAL = "at the limit found on arrival"


class Revisits:
    """When the baseline is measured again. stretch: how many times as long as usual trials are. now_s: when it was
    measured. patience: so many times as long as usual the first look may wait."""

    def __init__(self, stretch: float, now_s: float, patience: float = 1.0) -> None:
        self._every_s, self._measured_s = stretch * TUNING.revisit_every_s, now_s
        self._trials = 0  # since
        self._patience = patience  # grows while the baseline stays where it is
        self._looks = 0

    def due(self, now_s: float) -> bool:
        aged_s = now_s - self._measured_s
        return max(self._trials / TUNING.revisit_every_trials, aged_s / self._every_s) >= self._patience

    def tried(self, *, may_wander: bool = False) -> None:
        """A trial has ended. may_wander: the machine may, so that the baseline is looked at before the next one."""
        self._trials += 1
        if may_wander and self._looks < TUNING.revisit_fewest:
            self._patience = 1 / TUNING.revisit_every_trials

    def made(self, now_s: float, moved: float | None) -> None:
        """The baseline was looked at. moved: by how much of itself it is another one; `None` where it was not seen."""
        self._trials, self._measured_s = 0, now_s
        if moved is not None:
            self._looks += 1
            usual = 1.0 if moved < TUNING.revisit_wanders else 1 / TUNING.revisit_every_trials
            self._patience = 2 * self._patience if moved < TUNING.revisit_still else usual


class SearchBaseline:
    """rough: it is known from a few iterations alone. withdraw: called with a cap, watts, of which nothing counts that
    was measured, and why. stretch: how many times as long as usual trials are."""

    def __init__(
        self,
        search: Search,
        prober: Prober,
        context: StepContext,
        doubts: Doubts,
        told: Announcer,
        withdraw: Callable[[float, str], None],
        stretch: float,
        *,
        rough: bool,
    ) -> None:
        self._search, self._prober, self._context, self._doubts = search, prober, context, doubts
        self._told, self._withdraw, self.rough = told, withdraw, rough
        self.revisits = Revisits(stretch, context.now_s, patience=TUNING.revisit_rough_patience if rough else 1.0)
        self._looks_changed = self._was_off = False
        self._anew = 0  # confirmations that began anew

    def looked_at(self, measured: Measurement | None, then_w: float | None) -> JobSeemsChanged | None:
        """It was to be measured again before a cap, watts, is tried; what follows where it is another job's. A slow
        drift cancels, as what follows is compared with the baseline of its own time."""
        if measured is None:
            self.revisits.made(self._context.now_s, None)
        elif self.rough or (self._doubts.is_pending and sped_up(self._search.baseline, measured) > 1):
            self.refine(measured, rough=self._doubts.is_pending)  # a burst may go on
        else:
            changed = self.changed(measured, then_w)
            if changed is not None:
                return changed
            self._looks_changed = False
            moved = max(abs(ratio.value - 1) for ratio in ratios(measured, self._search.baseline).values())
            self._search.rebase(measured)
            self._context.announce(events.BaselineMeasured(t_s=self._context.now_s, measurement=measured))
            self.revisits.made(self._context.now_s, moved)
        return None

    def changed(self, baseline: Measurement, setting: float | None) -> JobSeemsChanged | None:
        """Whether the baseline is that of another job; not where the machine wanders, and each trial has a baseline of
        its own time. It is sure where it was another one the last time, too: a single look at it may be off, as where
        other work comes in a burst, and costs itself, not the search."""
        where = self._search.knob.said(_AT_ARRIVAL)
        why = None if self._prober.may_wander else changed_since(self._search.baseline, baseline, where)
        if why is None:
            return None
        sure, self._looks_changed = self._looks_changed, True
        return JobSeemsChanged(why=why, sure=sure, then_w=setting)

    def warms_up(self, faster: float) -> bool:
        """Whether a job that is so many times as fast as just before may be warming up, so that nothing that was seen
        of it is a repeat of anything. Where the machine wanders, that says nothing of the machine."""
        wanders = self._prober.may_wander
        least = TUNING.confirm_anew_wandering if wanders else 1.0
        if not self.rough or faster <= least or self._anew >= TUNING.confirm_most_anew:
            return False
        self._anew += 1
        if not wanders:
            self._prober.begin_anew(warmed_up=True)
        return True

    def refine(self, baseline: Measurement, again: Measurement | None = None, *, rough: bool = False) -> bool:
        """The baseline was rough and is known better, and holds for all that was tried; whether trials do not count for
        that. One that was off costs itself, as the first trial waits for a steady job; but not trials that show another
        job, and none once it was off twice, or a trial could not be right beside others: the job was still warming up.
        Where it was far too slow, trials as slow are of the same time. again: what a cap that was tried shows now.
        rough: it still is."""
        self.rough, gone = rough, self._doubts.of_another(baseline, again)
        before = self._search.first
        tried_s = {max(one.setting): one.period_s for one in self._search.shown[1:]}
        off = differences(before, baseline)
        trials = tuple(map(self._search.stated, self._search.anchor(baseline)))
        self._context.announce(events.BaselineRefined(t_s=self._context.now_s, measurement=baseline, trials=trials))
        self._told.predictions()
        faster = sped_up(before, baseline)
        if faster > 1:
            self._prober.begin_anew(warmed_up=True)
            seen = f"{off} per iteration {self._search.knob.said(_AT_ARRIVAL)}"
            if self._was_off or self._doubts.is_pending:
                gone = self._doubts.of_all(seen)
                self._doubts.drop()
            elif faster > TUNING.revisit_warmed_up:
                between_s = math.sqrt(before.period_s * baseline.period_s)
                doubted = {one.setting for one in gone} | {cap for cap, tried in tried_s.items() if tried > between_s}
                gone = [one for one in self._doubts.of_all(seen) if one.setting in doubted]
            self._was_off = True
        for one in gone if off is not None else ():
            self._withdraw(one.setting, f"the job has changed since: {one.why}")
        self.revisits.made(self._context.now_s, None)
        return off is not None and bool(gone)
