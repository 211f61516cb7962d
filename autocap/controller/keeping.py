"""What is held once it is decided, until there is something to measure: under ceilings that others set, and by values
that move."""

from dataclasses import replace

from autocap.controller.actions import Keep, KeepByCurve, Kept, Revert
from autocap.controller.ceiling import Ceiling
from autocap.controller.context import StepContext
from autocap.controller.following import Following
from autocap.controller.holding import HoldPlan
from autocap.controller.phases import Exploring, Holding
from autocap.controller.ranking import Confirm
from autocap.controller.search import Search
from autocap.controller.steps import BaselineAgain, CheckDue, Happened, JobSeemsChanged, SearchStep, TryCap, ValueMoved
from autocap.events import State
from autocap.measurement.metering import Metered
from autocap.measurement.prober import Prober
from autocap.records import same_limits


class Keeping:
    """plan: how long decisions are held."""

    def __init__(self, plan: HoldPlan, context: StepContext, prober: Prober, following: Following) -> None:
        self.plan, self._context, self._following = plan, context, following
        self._ceiling = Ceiling(context, prober)

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return self._ceiling.lacks_baseline(search)

    def hold(self, phase: Exploring, decision: Kept) -> Holding:
        """What a search or a check has come to."""
        exploration, checked = phase.exploration, phase.held_w is not None
        exploration.settle()
        decision = self._following.settled(exploration, decision, checked=checked)
        settings = self._ceiling.held(decision, exploration.search)
        self._context.set(settings)
        self._context.enter(State.HOLDING)
        hold = self.plan.hold(decision, self._context.now_s, checked=checked)
        if isinstance(decision, KeepByCurve):
            self._ceiling.move(hold, exploration.search, settings)
        elif self._following.follows and len(set(settings)) == 1:
            self._ceiling.move(hold, exploration.search, settings, closely=True)
        return Holding(exploration=exploration, hold=hold, decision=decision, settings=settings)

    def take(self, holding: Holding, metered: Metered, changed: str | None) -> Happened | None:
        """Take in a sample; what has happened by it. changed: why what counts the iterations says that the job is
        another one."""
        exploration, hold = holding.exploration, holding.hold
        self._ceiling.take(hold, exploration.search, metered)
        why = hold.why_anew(metered, changed)
        if why is not None:
            return JobSeemsChanged(why=why, sure=True)
        wanted = None if metered.paused else self._following.look(exploration, holding.settings)
        if wanted is not None:
            return ValueMoved(wanted=wanted)
        may_check = exploration.is_anchored and not isinstance(holding.decision, Revert)
        return CheckDue() if may_check and hold.check_due(metered) else None

    def check(self, holding: Holding, other: Confirm | None = None) -> Exploring:
        """What is held is measured again, or another cap that is to be."""
        exploration = holding.exploration
        self.tell()
        if other is None:
            self.plan.begin_check()
            self._following.before_check(exploration)
            exploration.check(holding.settings)
        else:
            begun = self._following.begun(other.setting) if exploration.is_anchored else None
            exploration.check(self._context.every(other.setting), other.window_error, begun)
        return Exploring(exploration=exploration, held_w=holding.settings)

    def search_on(self, holding: Holding, step: SearchStep) -> Exploring:
        """The strategy wants more than what was decided before: a cap tried, or, as the ceiling has risen, another
        search."""
        if isinstance(step, TryCap | BaselineAgain):
            self.tell()
            holding.exploration.before = holding.decision
            return Exploring(exploration=holding.exploration, held_w=holding.settings)
        holding.exploration.search.restrict(self._context.ceiling_w)
        return Exploring(exploration=holding.exploration)

    def is_unwanted(self, phase: Exploring) -> bool:
        """Whether a cap is being confirmed that is not wanted any more, as the value is another one."""
        return phase.held_w is not None and not self._following.rethink(phase.exploration, phase.held_w)

    def as_before(self, phase: Exploring) -> Holding:
        """What was held before a confirmation, which stops."""
        held_w = phase.held_w or self._context.uncapped_w
        self._following.stopped(phase.exploration.stop_confirming())
        return self.hold(phase, self._expected(phase.exploration.search, held_w))

    def tell(self) -> None:
        """Announce what was measured of the caps held last, as they are held no more."""
        self._ceiling.tell()

    def limited(self, holding: Holding) -> Holding:
        """The ceiling has moved: hold what was decided as far as it allows."""
        settings = self._ceiling.held(holding.decision, holding.exploration.search)
        if settings == holding.settings:
            return holding
        self._ceiling.move(holding.hold, holding.exploration.search, settings)
        return replace(holding, settings=settings)

    def move(self, holding: Holding, setting: float) -> Holding:
        """Another cap is best at the value in force, watts."""
        search, settings = holding.exploration.search, self._context.every(setting)
        self._ceiling.move(holding.hold, search, settings, closely=True)
        decision = holding.decision
        if not isinstance(decision, KeepByCurve):
            decision = self._expected(search, settings)
        return replace(holding, decision=decision, settings=settings)

    def _expected(self, search: Search, settings: tuple[float, ...]) -> Keep | Revert:
        """To hold these caps, watts per device, with what is expected there."""
        shown = search.curve.expected(max(settings))
        at_limit = same_limits(settings, self._context.uncapped_w)
        return Revert(reference=shown) if at_limit else Keep(settings=settings, reference=shown)
