"""Between a session and the budget that it runs under: ceilings go one way, what is known of the job the other."""

from autocap.controller.context import Action
from autocap.events import State
from autocap.session.roles import Budget, Decider

_PUBLISH_S = 5.0


class BudgetLink:
    """Tells who decides of a ceiling that changes, and whoever gives it of the curve, now and then. To be looked at
    after each beat; without a budget it does nothing."""

    def __init__(self, budget: Budget | None, decider: Decider) -> None:
        self._budget, self._decider = budget, decider
        self._ceiling_w: float | None = None
        self._next_s = 0.0

    def heed(self, now_s: float) -> list[Action]:
        """What a new ceiling asks for; nothing while it is as it was. Raises GuardError where the manager is gone."""
        if self._budget is None:
            return []
        self._publish(now_s, self._budget)
        if self._budget.ceiling_w == self._ceiling_w:
            return []
        self._ceiling_w = self._budget.ceiling_w
        return self._decider.grant(now_s, self._ceiling_w)

    def _publish(self, now_s: float, budget: Budget) -> None:
        if now_s < self._next_s or (curve := self._decider.curve) is None:
            return
        self._next_s = now_s + _PUBLISH_S
        searching = self._decider.state is not State.HOLDING
        budget.publish(curve, searching=searching, max_slowdown=self._decider.max_slowdown)
