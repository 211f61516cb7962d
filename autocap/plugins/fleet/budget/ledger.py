"""Who may draw how much of a budget, from moment to moment. Pure: told the time, it gives orders.

    ledger = Ledger(2000.0, step_w=5.0)
    ledger.join(0.0, "a", prior(100, 300, devices=4), cap_w=300.0)
    for order in ledger.decide(0.0).orders:      # set that cap, read it back, then
        ledger.confirm(order.name, order.serial)

The order in which caps are lowered and raised, and what a job is charged with: `autocap.plugins.fleet.budget.orders`.
"""

from collections.abc import Sequence

import numpy as np

from autocap.plugins.fleet.budget.account import Account
from autocap.plugins.fleet.budget.curves import Curves, Floats, JobCurve
from autocap.plugins.fleet.budget.lending import Loans
from autocap.plugins.fleet.budget.orders import Decision, Orders
from autocap.plugins.fleet.budget.shares import STEP_W, in_steps
from autocap.plugins.fleet.config import Policy


class Ledger(Orders):
    """budget_w: watts for all. step_w: of caps; less is no reason to disturb a job."""

    def __init__(self, budget_w: float, *, step_w: float = STEP_W, policy: Policy = Policy.FAIR) -> None:
        super().__init__(budget_w, policy=policy)
        self._step_w, self._loans = step_w, Loans()

    def leave(self, t_s: float, name: str) -> None:
        """It has ended, and its devices draw nothing of this budget any more."""
        self._loans.leave(t_s, self._accounts[name].place)
        super().leave(t_s, name)

    def curve(self, name: str, curve: JobCurve, *, measured: bool = True) -> None:
        """Whoever measures what caps cost a job knows more of it; or, not measured, it is taken to be such a one."""
        self._accounts[name].curve, self._accounts[name].measures = curve, measured
        self._stale = True
        self._urgent |= not measured

    def weigh(self, name: str, weight: float | None) -> None:
        """It counts so much from now on; `None` for what its curve says."""
        account = self._accounts[name]
        if weight != account.weight:
            account.weight, self._stale, self._urgent = weight, True, True

    def unattended(self, name: str) -> None:
        """Nobody measures what caps cost a job any more."""
        self._accounts[name].measures = False
        self._stale = True

    def drew(self, name: str, watts: float) -> None:
        """What one of its devices draws at most, such as the upper quantile of the last seconds, watts."""
        self._stale |= self._accounts[name].drew(watts)

    def decide(self, t_s: float) -> Decision:
        self._stale |= self._loans.is_over(t_s)
        return super().decide(t_s)

    def _share(self, t_s: float) -> None:
        there, budget_w = list(self), self._budget_w - self._reserved_w
        if not there:
            return
        curves = Curves.of([one.wanted() for one in there])
        caps_w = self._in_steps(there, curves, budget_w)
        if self._policy is not Policy.ENERGY:
            lent = np.array(self._loans.choose(t_s, there, caps_w, budget_w))
            if lent.any():
                caps_w[lent] = curves.caps_w[lent, -1]
                left_w = budget_w - float(curves.devices[lent] @ caps_w[lent])
                others = [one for one, is_lent in zip(there, lent, strict=True) if not is_lent]
                caps_w[~lent] = self._in_steps(others, curves.of_jobs(~lent), left_w)
        for account, cap_w, expected in zip(there, caps_w, curves.slowdown_at(caps_w), strict=True):
            account.target_w, account.expected = float(cap_w), float(expected)

    def _in_steps(self, jobs: Sequence[Account], curves: Curves, budget_w: float) -> Floats:
        held_w = np.array([np.nan if one.target_w is None else one.target_w for one in jobs])
        return in_steps(curves, budget_w, self._policy, held_w, self._step_w)
