"""What comes next in a tuning: a pure function of what is known and of what has just happened.

The controller tells of what has happened: something that was measured has ended, or a ceiling, a price or the way of
counting iterations has changed. It never asks for a sample alone. Which step follows is decided here, and with it when
a baseline is measured; only which cap a new price asks for, and how surely it is known, is ranked elsewhere
(`ValueMoved`). The controller carries the step out: a question to the strategy is answered at once, a measurement
later.

    (Steady) BaselineAndSearch (FirstBaselineEnded) SetUpSearch (SearchSetUp) BeginSearch (Asked) TryCap (TrialEnded)
    AskForCap (Asked) TryCap … AskForCap (Asked: no more) AskForBest (Recommended) ConfirmBest (WindowEnded) NextWindow
    … (Judged) KeepConfirmed (Decided) Hold
"""

from dataclasses import dataclass
from typing import assert_never

from autocap.controller.comparison import Ruling
from autocap.controller.context import Kept
from autocap.controller.ranking import TryOut
from autocap.controller.steps import (
    Asked,
    AskForBest,
    AskForCap,
    BalanceGpus,
    BaselineAgain,
    BaselineAgainEnded,
    BaselineAndSearch,
    BeginSearch,
    CeilingMoved,
    Check,
    CheckDue,
    ConfirmBest,
    Continue,
    CountedAnew,
    Decided,
    Doubted,
    During,
    End,
    EndNear,
    Failed,
    FirstBaselineEnded,
    GridChanged,
    Happened,
    Hold,
    HoldAsBefore,
    HoldWithin,
    JobSeemsChanged,
    Judged,
    KeepByCurve,
    KeepConfirmed,
    KeepNone,
    KeepUnconfirmed,
    KeepWaiting,
    NextWindow,
    Observe,
    Recommended,
    ResetAndWait,
    RestartAtNewLimits,
    RoughBaseline,
    SavingsSpent,
    SearchReopened,
    SearchSetUp,
    SetUpSearch,
    Steady,
    Step,
    TrialEnded,
    TryCap,
    ValueMoved,
    WindowEnded,
)
from autocap.controller.tuning import TUNING
from autocap.knobs import POWER_LIMIT, Knob

_ROOM = "the limit found on arrival may hold again, and its baseline was never measured"
_NONE_BETTER = "no cap that was tried is allowed and better"
_ALREADY = "the limit found on arrival is already the best"
_ALREADY_BUDGET = "what the budget gives is already the best"
_ROUGH = "a rough baseline may hide that a cap is better"
_OLD = "the baseline is old, and the machine may have drifted"
_STRATEGY = "the strategy wants another cap tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the plan depends on, besides what has just happened. "Without a cap" means at the limits found on arrival
    or, where that is lower, at the ceiling of a budget. Without a budget there is no ceiling."""

    rough: bool = False  # the baseline is known from a few iterations alone
    baseline_holds: bool = True  # without a cap, the limits are now those that the baseline was measured at
    baseline_old: bool = False  # it was measured long ago
    failed_baselines: int = 0  # first ones that could not be measured, in a row, with the last one
    has_room: bool = False  # there is a ceiling, and it allows the limits found on arrival
    is_bound: bool = False  # there is a ceiling, and it forbids the limits found on arrival
    lacks_baseline: bool = False  # the limits found on arrival are allowed, and no baseline was measured there
    observes: bool = False  # nothing may be set
    own_length: bool = False  # the strategy has a rule of its own for how long its trials are
    has_slowdown_limit: bool = False  # caps may be left out for which the job has saved up too little time
    is_blind: bool = False  # several trials in a row have failed, so that going on would only cost the job time
    confirmed_w: float | None = None  # a cap that was confirmed as better before the strategy asked for more, watts
    held_before: Kept | None = None  # what was held when the strategy asked for more at another price
    knob: Knob = POWER_LIMIT  # whose settings are tried


def next_step(facts: Facts, now: Happened) -> Step:
    """What to do next, given what has happened just now."""
    match now:
        # Before a search.
        case RoughBaseline():
            # Where a ceiling has room for the limits found, other jobs' shares follow from this baseline. And a rough
            # one needs longer trials, which a strategy with a length of its own does not make.
            return KeepWaiting() if facts.has_room or facts.own_length else SetUpSearch(rough=True)
        case Steady():
            return BaselineAndSearch()
        case FirstBaselineEnded():
            return SetUpSearch() if now.failed is None else _no_baseline(facts, now.failed)
        case SearchSetUp():
            if now.objection is not None:
                return End(why=now.objection)
            return Observe() if facts.observes else BeginSearch()
        # During a search.
        case Asked():
            if now.setting is None:
                return _search_is_over(facts)
            if facts.baseline_old:
                return _try_after_baseline(facts, now.setting, _OLD)
            return TryCap(setting=now.setting)
        case TrialEnded():
            return _search_is_over(facts) if facts.is_blind else AskForCap()
        case SearchReopened():
            return AskForCap()
        case SavingsSpent():
            return TryCap(setting=now.setting, announced=True)
        case Doubted():
            return _try_after_baseline(facts, now.setting, now.why)
        case BaselineAgainEnded():
            if now.then_w is not None:
                return TryCap(setting=now.then_w)  # compared with the one before, where this one failed
            return AskForCap() if now.failed is None else KeepNone(why=now.failed, unsure=True)
        case JobSeemsChanged():
            if now.then_w is None or now.sure:
                return BaselineAndSearch(why=now.why)
            return _try_after_baseline(facts, now.then_w, now.why)  # seen once: it may be off
        # At its end.
        case Recommended():
            return _recommended(facts, now)
        case WindowEnded():
            return NextWindow()
        case Judged():
            if now.runner_up_w is not None:
                return ConfirmBest(setting=now.runner_up_w)
            return KeepConfirmed() if now.ruling is Ruling.BETTER else KeepNone(why=now.why, unsure=True)
        case Decided():
            return BalanceGpus() if now.balances else Hold(decision=now.decision)
        case EndNear():
            return KeepUnconfirmed()
        # While a cap is held.
        case CheckDue():
            return Check()
        case ValueMoved():
            if now.wanted is None:
                return HoldAsBefore()
            if isinstance(now.wanted, TryOut):
                return _try_after_baseline(facts, now.wanted.setting, facts.knob.said(_STRATEGY))
            return now.wanted
        # At any time.
        case CeilingMoved():
            return _under_ceiling(facts, now)
        case CountedAnew():
            return ResetAndWait()
        case GridChanged():
            return _on_other_grid(now)
        case Failed():
            return End(why=now.why)
        case _:
            assert_never(now)


def _no_baseline(facts: Facts, why: str) -> Step:
    if facts.failed_baselines >= TUNING.baseline_most_failed:
        return End(why=why)
    return ResetAndWait(why=f"{why}; waiting for steady activity again")


def _try_after_baseline(facts: Facts, setting: float, why: str) -> Step:
    """Try the cap, and measure the baseline again before; not where the limits without a cap are others by now, as that
    would be another baseline."""
    return BaselineAgain(then_w=setting, why=why) if facts.baseline_holds else TryCap(setting=setting)


def _search_is_over(facts: Facts) -> Step:
    if facts.held_before is not None:
        return Hold(decision=facts.held_before)  # what is best at this price is looked for again while it is held
    return AskForBest() if facts.baseline_holds else KeepByCurve()  # nothing can be compared with a baseline then


def _recommended(facts: Facts, now: Recommended) -> Step:
    is_none = now.setting is None or now.is_no_cap  # none to recommend, or to stay without one is recommended
    if is_none and facts.rough:
        return BaselineAgain(then_w=None, why=facts.knob.said(_ROUGH))
    if now.is_no_cap:
        return KeepNone(why=_ALREADY_BUDGET if facts.is_bound else facts.knob.said(_ALREADY), unsure=False)
    if now.setting is None:
        return KeepNone(why=facts.knob.said(_NONE_BETTER), unsure=facts.is_blind or facts.has_slowdown_limit)
    return KeepConfirmed() if now.setting == facts.confirmed_w else ConfirmBest(setting=now.setting)


def _on_other_grid(now: GridChanged) -> Step:
    """What was measured of caps that the devices do not take as they are counts for nothing."""
    match now.during:
        case During.WAIT:  # where a cap of an earlier run may be held
            return ResetAndWait(why=f"tuning anew: {now.why}")
        case During.BASELINE | During.NOTHING:
            return Continue(why=now.why)
        case (
            During.TRIAL
            | During.SAVING_UP
            | During.BASELINE_BEFORE_TRIAL
            | During.BASELINE_ALONE
            | During.CONFIRMATION
            | During.PER_GPU
            | During.HOLD
        ):
            return BaselineAndSearch(why=now.why)
        case _:
            assert_never(now.during)


def _under_ceiling(facts: Facts, moved: CeilingMoved) -> Step:
    """A trial, and balancing, go on where their caps are still allowed; what is compared with the baseline, where that
    holds as well. Else the strategy is asked; without a baseline that holds it has mostly no more, and what is best by
    the curve of all that was measured is kept."""
    if facts.lacks_baseline:
        return BaselineAndSearch(why=_ROOM, same_job=True)
    match moved.during:
        case During.WAIT | During.NOTHING:
            return RestartAtNewLimits()
        case During.BASELINE:
            return RestartAtNewLimits() if moved.other_limits else Continue()
        case During.TRIAL:
            return Continue() if moved.allowed else AskForCap()
        case During.SAVING_UP:  # nothing was measured yet, so that the strategy may as well be asked anew
            is_same = moved.allowed and not moved.other_grid
            return TryCap(setting=moved.setting, announced=True) if is_same else AskForCap()
        case During.BASELINE_BEFORE_TRIAL:
            if not moved.allowed:
                return AskForCap()
            return Continue() if facts.baseline_holds else TryCap(setting=moved.setting)
        case During.BASELINE_ALONE:
            return Continue() if facts.baseline_holds else AskForCap()
        case During.CONFIRMATION:
            return Continue() if moved.allowed and facts.baseline_holds else AskForCap()
        case During.PER_GPU:
            return Continue() if moved.allowed else KeepByCurve()
        case During.HOLD:
            return AskForCap() if moved.may_search_on else HoldWithin()
        case _:
            assert_never(moved.during)
