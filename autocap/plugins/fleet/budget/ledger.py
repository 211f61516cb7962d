"""Who may draw how much of a budget, from moment to moment. Pure: told the time, it gives orders.

    ledger = Ledger(2000.0, step_w=5.0)
    ledger.join(0.0, "a", prior(100, 300, devices=4), cap_w=300.0)
    for order in ledger.decide(0.0).orders:      # set that cap, read it back, then
        ledger.confirm(order.name, order.serial)

The order in which caps are lowered and raised, and what a job is charged with: `autocap.plugins.fleet.budget.orders`.

A slowdown is over what a job does at its limit found. Where a budget has never had room for that, its tuner publishes a
curve over what it expects there, all of which is as uncertain as that: no measurement below lessens it. So now and then
such a job is lent its limit found for as long as the measurement takes, at the expense of all others."""

from collections.abc import Sequence

import numpy as np

from autocap.plugins.fleet.budget.orders import Account, Decision, Orders
from autocap.plugins.fleet.budget.shares import STEP_W, Curves, Floats, JobCurve, in_steps
from autocap.plugins.fleet.config import Policy

LOAN_S = 180.0  # in which a baseline is measured, a first trial made, and what both show published
_REST_S = 1800.0  # until the next one, where that came to nothing
_SHARE = 0.1  # of the budget that may be lent at one time
_ALONE = 0.3  # of what others have above their lowest caps, which one job may be lent where that is more
_POOR = 0.006  # an error of the best known slowdown of a curve, with which its baseline is only estimated
_NEAR_W = 1.0  # of its limit: it has that already


class Loans:
    """Those that are under way, and those that came to nothing; by the jobs' places."""

    def __init__(self) -> None:
        self._begun_s: dict[str, float] = {}
        self._rest_s: dict[str, float] = {}  # until when there is none

    def is_over(self, t_s: float) -> bool:
        """Whether one has to end by now."""
        return any(t_s >= begun_s + LOAN_S for begun_s in self._begun_s.values())

    def choose(self, t_s: float, jobs: Sequence[Account], caps_w: Floats, budget_w: float) -> list[bool]:
        """Which of the jobs have their highest caps now. caps_w: what they would have without loans, watts."""
        over = {borrower for borrower, begun_s in self._begun_s.items() if t_s >= begun_s + LOAN_S}
        before, self._begun_s = self._begun_s, {}
        charged_w = [one.curve.devices * cap_w for one, cap_w in zip(jobs, caps_w, strict=True)]
        above_w = [own_w - one.curve.devices * one.lowest_w for one, own_w in zip(jobs, charged_w, strict=True)]
        spare_w, free_w = sum(above_w), max(0.0, budget_w - sum(charged_w))
        lent_w, chosen = 0.0, [False] * len(jobs)
        for place in sorted(range(len(jobs)), key=lambda place: before.get(jobs[place].place, np.inf)):
            one, cap_w = jobs[place], float(caps_w[place])
            top_w = float(one.curve.caps_w[-1])
            rests = one.place in over or t_s < self._rest_s.get(one.place, -np.inf)
            wanted = one.measures and is_estimated(one.curve) and not rests
            if not wanted or top_w - cap_w < _NEAR_W:
                continue
            more_w = one.curve.devices * (top_w - cap_w)
            others_w = spare_w - above_w[place]
            can_be = lent_w + more_w <= others_w + free_w  # or they would have less than their lowest caps
            if can_be and (lent_w + more_w <= _SHARE * budget_w or (not lent_w and more_w <= _ALONE * others_w)):
                chosen[place] = True
                lent_w += more_w
                spare_w = others_w
                self._begun_s[one.place] = before.get(one.place, t_s)
        for borrower in before.keys() - self._begun_s.keys():  # whatever it has come to
            self._rest_s[borrower] = t_s + _REST_S
        return chosen

    def leave(self, t_s: float, place: str) -> None:
        """A job has gone, perhaps to come back at once: a loan that was under way is over, and came to nothing."""
        if self._begun_s.pop(place, None) is not None:
            self._rest_s[place] = t_s + _REST_S
        self._rest_s = {known: until_s for known, until_s in self._rest_s.items() if until_s > t_s}


def is_estimated(curve: JobCurve) -> bool:
    """Whether nothing of a curve is known well, as its baseline was never measured."""
    errors = np.broadcast_to(curve.slowdown_stderr, curve.caps_w.shape)
    return len(errors) > 1 and float(errors.min()) > _POOR


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
        there, budget_w = list(self), self.budget_w - self._reserved_w
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
