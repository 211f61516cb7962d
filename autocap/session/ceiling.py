"""Between a session and the budget that it runs under: ceilings go one way, what is known of the job the other."""

from dataclasses import replace

from autocap.controller.actions import Action
from autocap.controller.known_curve import KnownCurve
from autocap.events import State
from autocap.plugins.fleet.budget.words import Known
from autocap.session.roles import Actuator, Grantable, UnderBudget

_PUBLISH_S = 5.0
_MOST_STDERR = 1.0  # of what is hardly known


class BudgetLink:
    """Tells who decides of a ceiling that changes, and the manager of a curve that does. To be looked at after each
    beat; without a budget, and for who decides without curves, it does nothing."""

    def __init__(self, actuator: Actuator | None, decider: object) -> None:
        linked = isinstance(actuator, UnderBudget) and isinstance(decider, Grantable)
        self._budget = actuator if linked and isinstance(actuator, UnderBudget) else None
        self._decider = decider if linked and isinstance(decider, Grantable) else None
        self._ceiling_w: float | None = None
        self._published: Known | None = None
        self._next_s = 0.0

    def heed(self, now_s: float) -> list[Action]:
        """What a new ceiling asks for; nothing while it is as it was. Raises GuardError where the manager is gone."""
        if self._budget is None or self._decider is None:
            return []
        self._publish(now_s, self._budget, self._decider)
        if self._budget.ceiling_w == self._ceiling_w:
            return []
        self._ceiling_w = self._budget.ceiling_w
        return self._decider.grant(now_s, self._ceiling_w)

    def _publish(self, now_s: float, budget: UnderBudget, decider: Grantable) -> None:
        if now_s < self._next_s or decider.curve is None:
            return
        self._next_s = now_s + _PUBLISH_S
        found_w = [limit_w for limit_w in budget.original_w if limit_w is not None]
        known = known_of(decider.curve, min(found_w, default=0.0), searching=decider.state is not State.HOLDING)
        known = replace(known, most_slowdown=decider.max_slowdown)
        if known != self._published:
            self._published = known
            budget.publish(known)


def known_of(curve: KnownCurve, found_w: float, *, searching: bool) -> Known:
    """A curve in the budget's words, over the limit found on arrival, watts: up to the cap that the job's metric asks
    for, or, while that is still searched for, as far as it is known."""
    points = (replace(curve, asked_w=curve.baseline_w) if searching else curve).published(found_w)
    return Known(
        caps_w=tuple(one.cap_w for one in points),
        slowdown=tuple(one.time - 1 for one in points),
        energy=tuple(one.energy for one in points),
        slowdown_stderr=tuple(min(_MOST_STDERR, one.time * one.period_rel_stderr) for one in points),
        energy_stderr=tuple(min(_MOST_STDERR, one.energy * one.energy_rel_stderr) for one in points),
    )
