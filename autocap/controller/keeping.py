"""What is held once it is decided, until there is something to measure: under ceilings that others set, and by values
that move."""

from dataclasses import replace
from typing import assert_never

from autocap.controller.actions import Keep, KeepByCurve, Kept, Outbox, Revert
from autocap.controller.ceiling import Ceiling
from autocap.controller.following import Following, TryOut
from autocap.controller.holding import HoldPlan
from autocap.controller.phases import Exploring, Holding
from autocap.controller.ranking import Confirm, Move
from autocap.controller.search import Search
from autocap.events import State
from autocap.measurement.metering import Metered
from autocap.measurement.prober import Prober
from autocap.records import same_limits


class Keeping:
    """plan: how long decisions are held."""

    def __init__(self, plan: HoldPlan, outbox: Outbox, prober: Prober, following: Following) -> None:
        self.plan, self._out, self._following = plan, outbox, following
        self._ceiling = Ceiling(outbox, prober)

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return self._ceiling.lacks_baseline(search)

    def hold(self, phase: Exploring, decision: Kept) -> Holding:
        """What a search or a check has come to."""
        exploration, checked = phase.exploration, phase.held_w is not None
        decision = self._following.settled(exploration, decision, checked=checked)
        caps_w = self._ceiling.held(decision, exploration.search)
        self._out.set(caps_w)
        self._out.enter(State.HOLDING)
        hold = self.plan.hold(decision, self._out.now_s, checked=checked)
        if isinstance(decision, KeepByCurve):
            self._ceiling.move(hold, exploration.search, caps_w)
        elif self._following.follows and len(set(caps_w)) == 1:
            self._ceiling.move(hold, exploration.search, caps_w, closely=True)
        return Holding(exploration=exploration, hold=hold, decision=decision, caps_w=caps_w)

    def take(self, holding: Holding, metered: Metered, changed: str | None) -> Holding | Exploring | str:
        """Take in a sample: what follows; why to tune anew, in a sentence. changed: why what counts the iterations says
        that the job is another one."""
        exploration, hold = holding.exploration, holding.hold
        self._ceiling.take(hold, exploration.search, metered)
        why = hold.why_anew(metered, changed)
        if why is not None:
            return why
        step = None if metered.paused else self._following.look(exploration, holding.caps_w)
        match step:
            case None:
                return self._checked(holding, metered)
            case Move(cap_w=cap_w):
                return self._moved(holding, self._out.every(cap_w))
            case Confirm(cap_w=cap_w, window_error=window_error):
                self.tell()
                begun = self._following.begun(cap_w) if exploration.is_anchored else None
                exploration.check(self._out.every(cap_w), window_error, begun)
            case TryOut(cap_w=cap_w):
                self.tell()
                exploration.go_on(cap_w, holding.decision)
            case _:
                assert_never(step)
        return Exploring(exploration=exploration, held_w=holding.caps_w)

    def revalued(self, phase: Exploring) -> Holding | Exploring:
        """The value that is followed is another one: a cap that is confirmed for the last one may not be wanted now."""
        if phase.held_w is None or self._following.rethink(phase.exploration, phase.held_w):
            return phase
        self._following.stopped(phase.exploration.stop_confirming())
        shown = phase.exploration.search.curve.expected(max(phase.held_w))
        at_limit = same_limits(phase.held_w, self._out.original_w)
        return self.hold(phase, Revert(reference=shown) if at_limit else Keep(caps_w=phase.held_w, reference=shown))

    def tell(self) -> None:
        """Announce what was measured of the caps held last, as they are held no more."""
        self._ceiling.tell()

    def limited(self, holding: Holding) -> Holding:
        """The ceiling has moved: hold what was decided as far as it allows."""
        caps_w = self._ceiling.held(holding.decision, holding.exploration.search)
        if caps_w == holding.caps_w:
            return holding
        self._ceiling.move(holding.hold, holding.exploration.search, caps_w)
        return replace(holding, caps_w=caps_w)

    def _checked(self, holding: Holding, metered: Metered) -> Holding | Exploring:
        exploration, at_limit = holding.exploration, isinstance(holding.decision, Revert)
        if not holding.hold.check_due(metered) or not exploration.is_anchored or at_limit:
            return holding
        self.plan.begin_check()
        self.tell()
        self._following.before_check(exploration)
        exploration.check(holding.caps_w)
        return Exploring(exploration=exploration, held_w=holding.caps_w)

    def _moved(self, holding: Holding, caps_w: tuple[float, ...]) -> Holding:
        """Other caps are best at the value in force."""
        search = holding.exploration.search
        self._ceiling.move(holding.hold, search, caps_w, closely=True)
        decision, shown = holding.decision, search.curve.expected(max(caps_w))
        if not isinstance(decision, KeepByCurve):
            at_limit = same_limits(caps_w, self._out.original_w)
            decision = Revert(reference=shown) if at_limit else Keep(caps_w=caps_w, reference=shown)
        return replace(holding, decision=decision, caps_w=caps_w)
