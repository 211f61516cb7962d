"""Before anything is measured: until a search may begin, or the baseline be measured."""

from autocap.config import TuneConfig
from autocap.controller.context import StepContext
from autocap.controller.first_look import FirstLook, rough
from autocap.controller.proving import Proving
from autocap.controller.remembered import Remembered
from autocap.controller.steps import Failed, RoughBaseline, Steady
from autocap.controller.tuning import TUNING
from autocap.measurement.metering import Metered
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.window import Window
from autocap.progress import COUNTED, Progress
from autocap.records import Measurement, SensorInfo

_DISTURBED = "no iteration ended without a missing power reading or thermal throttling"
_UNDISTURBED = "see to the sensors and the cooling, or pass a larger --wait if that takes its time"


class Waiting:
    """Takes samples until it is known how to go on.

    baseline: a rough one, by a few iterations or as an earlier run has it. window: what was seen of a steady job;
    iteration_s: of an iteration, seconds; `None` where nothing was.
    proving: of a period that only a trial proves. look: for a rough baseline, with which a search need not wait; `None`
    where it has to. remembered: whose cap holds meanwhile; `None` where the limits found on arrival do.
    """

    def __init__(
        self,
        config: TuneConfig,
        progress: Progress,
        context: StepContext,
        proving: Proving,
        *,
        look: FirstLook | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        self._config, self._progress, self._context = config, progress, context
        self._since_s, self._until_s = context.now_s, context.now_s + config.wait_s
        self._proving, self._look, self._remembered = proving, look, remembered
        self._watch = SteadinessWatch(context.uncapped_w)
        self.baseline: Measurement | None = None
        self.window: Window | None = None
        self.iteration_s: float | None = None

    @classmethod
    def first(
        cls,
        config: TuneConfig,
        progress: Progress,
        context: StepContext,
        proving: Proving,
        sensor: SensorInfo,
        remembered: Remembered | None,
    ) -> "Waiting":
        """That of a run. Under a limit on slowdown nothing has been saved up yet that another cap could cost, and who
        only observes loses nothing."""
        if config.observe or config.metric.max_slowdown is not None:
            return cls(config, progress, context, proving)
        look = FirstLook(context.uncapped_w, sensor, config.min_batches, context.knob)
        known = remembered if progress.kind in COUNTED else None
        return cls(config, progress, context, proving, look=look, remembered=known)

    def begin(self) -> None:
        """The first sample has come."""
        if self._remembered is not None:
            self._context.set(self._context.every(self._remembered.setting))
        self.again()

    def again(self) -> None:
        """What was seen so far does not count."""
        self._watch = SteadinessWatch(self._context.decided_w)

    def limited(self) -> None:
        """Other limits hold where no cap is tried."""
        self._proving.end()
        if self._remembered is not None and not self._context.allows(self._remembered.setting):
            self._remembered = None
        if self._remembered is None:
            self._context.set(self._context.uncapped_w)
        if self._look is not None:
            self._look.begin(self._context.uncapped_w)
        self.again()

    def insist(self) -> None:
        """A rough baseline does not do: one is measured at the limits found on arrival."""
        self._look = None
        if self._context.decided_w != self._context.uncapped_w:
            self._context.set(self._context.uncapped_w)
            self.again()

    def take(self, metered: Metered) -> RoughBaseline | Steady | Failed | None:
        """Take in a sample; how the wait has ended, once it has."""
        if self._remembered is not None:
            return self._at_remembered(self._remembered, metered)
        if self._is_proving(metered):
            return None
        steady = self._watch.add(metered)  # also where a rough baseline is found: it may not do
        self.baseline = None if self._look is None else self._look.add(metered, self._progress.kind)
        if self.baseline is not None:
            return RoughBaseline()
        longer_s = self._longer_s
        if steady is None and metered.t_s < max(self._until_s + longer_s, self._progress.worth_until_s):
            return None
        if self._progress.notice is not None:  # more was waited for
            longer_s = max(longer_s, metered.t_s - self._until_s)
        waited_s = self._config.wait_s + round(longer_s)
        if steady is None and self._watch.iterations == 0:
            why, advice = _DISTURBED, _UNDISTURBED
            if self._progress.trouble is not None:
                why, advice = self._progress.trouble, self._progress.advice
            return Failed(why=f"{why} within {waited_s:g} s, so nothing is tuned; {advice}")
        if steady is None:
            self._context.warn(f"activity was not steady within {waited_s:g} s; measuring it all the same")
        self.window, self.iteration_s = steady, self._watch.iteration_s
        return Steady()

    def _is_proving(self, metered: Metered) -> bool:
        """Whether a trial for a period is under way, or just ended: nothing of it counts, and the wait begins anew."""
        before = self._proving.is_under_way
        self._proving.take(metered)
        if before and not self._proving.is_under_way:
            self._since_s, self._until_s = metered.t_s, metered.t_s + self._config.wait_s
            if self._look is not None:
                self._look.begin(self._context.uncapped_w)
            self.again()
        return before or self._proving.is_under_way

    @property
    def _longer_s(self) -> float:
        """How much longer to wait, where iterations are long. What counts them says at once when one has ended, so
        that the first one may still be under way where none has."""
        if self._progress.kind in COUNTED and self._watch.is_at_first:
            return TUNING.wait_first_iteration * (self._until_s - self._since_s)
        return max(0.0, self._watch.fair_s - self._until_s)

    def _at_remembered(self, remembered: Remembered, metered: Metered) -> RoughBaseline | None:
        """At the cap that was best, until the job is steady there and shows what it showed then. A period in the power,
        which may have to do, is learned where no cap flattens it: for that none is held."""
        steady = self._watch.add(metered)
        seen = None if steady is None else steady.measure(self._config.min_batches)
        uncounted = metered.marks and self._progress.kind not in COUNTED
        if seen is None and not uncounted and metered.t_s < self._until_s + self._longer_s:
            return None
        doubt = None if seen is None else remembered.doubt(seen)
        self._remembered = None
        if seen is not None and doubt is None:
            self.baseline = rough(remembered.baseline_beside(seen))
            return RoughBaseline()
        if doubt is not None:
            where = self._context.knob.text(remembered.setting)
            self._context.warn(f"the job is not as it is remembered: {doubt} per iteration at {where}")
        self.insist()
        self._context.set(self._context.uncapped_w)
        self._since_s, self._until_s = metered.t_s, metered.t_s + self._config.wait_s
        self.again()
        return None
