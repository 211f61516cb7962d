"""What comes next: all of the plan of a tuning, as a pure function of what is known and of what has just happened.

`next_step` is called when something has ended, or when a ceiling, a value or a request has changed; never for a sample.
The controller carries the step out and tells what came of it: at once where somebody was only asked, and later where
something had to be measured. Nothing else decides when a baseline is measured.

    wait → baseline → next trial → trial → next trial → … → best → confirmation → hold
"""

from dataclasses import dataclass
from typing import assert_never

from autocap.controller.actions import Kept
from autocap.controller.comparison import Ruling
from autocap.controller.ranking import TryOut
from autocap.controller.steps import (
    Asked,
    AskForBest,
    BalanceGpus,
    BaselineAgain,
    BaselineEnded,
    BaselineSeen,
    BeginSearch,
    CeilingMoved,
    Check,
    CheckDue,
    ConfirmBest,
    CountedAnew,
    Decided,
    Doubted,
    During,
    End,
    EndNear,
    Failed,
    GoOn,
    Happened,
    Hold,
    HoldAsBefore,
    HoldWithin,
    JobChanged,
    Judged,
    KeepByCurve,
    KeepConfirmed,
    KeepNone,
    KeepUnconfirmed,
    MeasureBaseline,
    MoreKnown,
    NextTrial,
    NextWindow,
    Observe,
    OtherGrid,
    Recommended,
    Restart,
    RoughBaseline,
    SavingsSpent,
    SearchSetUp,
    SetUpSearch,
    Steady,
    Step,
    TrialEnded,
    TryCap,
    ValueMoved,
    WaitAnew,
    WaitOn,
    WindowEnded,
)

MOST_BASELINES = 3  # that cannot be measured, in a row
ROOM = "the limit found on arrival may hold again, and its baseline was never measured"
_NONE_BETTER = "no cap that was tried is allowed and better"
_ALREADY = "the limit found on arrival is already the best"
_ALREADY_BUDGET = "what the budget gives is already the best"
_ROUGH = "by a rough baseline nothing is decided"
_DUE = "the machine may have drifted since it was measured"
_STRATEGY = "the strategy has asked for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the plan depends on, besides what has just happened.

    rough: the baseline is known from a few iterations alone. baseline_holds: the limits that it was measured at are
    those that hold where no cap is tried; not after a ceiling has moved. baseline_due: it was measured long ago.
    failed_baselines: in a row. lacks_baseline: the limits found on arrival may hold, and the baseline is that of lower
    ones. has_room: a budget runs and leaves room for the limits found, so that other jobs' shares depend on this
    baseline. bound: they may not hold. observes: nothing may be set. own_length: the strategy has a rule of its own for
    how long its trials are. limits_slowdown: there is a largest slowdown. blind: trials fail one after the other.
    confirmed_w: the cap that was confirmed before the search went on. before: what was decided before the strategy
    asked for more; `None` in a search of its own.
    """

    rough: bool = False
    baseline_holds: bool = True
    baseline_due: bool = False
    failed_baselines: int = 0
    lacks_baseline: bool = False
    has_room: bool = False
    bound: bool = False
    observes: bool = False
    own_length: bool = False
    limits_slowdown: bool = False
    blind: bool = False
    confirmed_w: float | None = None
    before: Kept | None = None


def next_step(known: Known, now: Happened) -> Step:
    """What to do next, given what has happened just now."""
    match now:
        # Before a search.
        case RoughBaseline():
            # Under a budget the shares of other jobs depend on the baseline; and trials of a length of their own are
            # never made longer to make up for it.
            return WaitOn() if known.has_room or known.own_length else SetUpSearch(rough=True)
        case Steady():
            return MeasureBaseline()
        case BaselineEnded():
            return SetUpSearch() if now.failed is None else _no_baseline(known, now.failed)
        case SearchSetUp():
            if now.objection is not None:
                return End(why=now.objection)
            return Observe() if known.observes else BeginSearch()
        # During a search.
        case Asked():
            if now.cap_w is None:
                return _search_is_over(known)
            return _baseline_then(known, now.cap_w, _DUE) if known.baseline_due else TryCap(cap_w=now.cap_w)
        case TrialEnded():
            return _search_is_over(known) if now.blind else NextTrial()
        case MoreKnown():
            return NextTrial()
        case SavingsSpent():
            return TryCap(cap_w=now.cap_w, announced=True)
        case Doubted():
            return _baseline_then(known, now.cap_w, now.why)
        case BaselineSeen():
            if now.then_w is not None:
                return TryCap(cap_w=now.then_w)
            return NextTrial() if now.failed is None else KeepNone(why=now.failed, unsure=True)
        case JobChanged():
            if now.then_w is None or now.sure:
                return MeasureBaseline(why=now.why)
            return _baseline_then(known, now.then_w, now.why)  # a single look may be off
        # At its end.
        case Recommended():
            return _recommended(known, now)
        case WindowEnded():
            return NextWindow()
        case Judged():
            if now.runner_up_w is not None:
                return ConfirmBest(cap_w=now.runner_up_w)
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
                return _baseline_then(known, now.wanted.cap_w, _STRATEGY)
            return now.wanted
        # At any time.
        case CeilingMoved():
            return _under_ceiling(known, now)
        case CountedAnew():
            return WaitAnew()
        case OtherGrid():
            return _on_other_caps(now)
        case Failed():
            return End(why=now.why)
        case _:
            assert_never(now)


def _no_baseline(known: Known, why: str) -> Step:
    if known.failed_baselines >= MOST_BASELINES:
        return End(why=why)
    return WaitAnew(why=f"{why}; waiting for steady activity again")


def _baseline_then(known: Known, cap_w: float, why: str) -> Step:
    """Measure the baseline again before a cap is tried, watts, where it may be."""
    return BaselineAgain(then_w=cap_w, why=why) if known.baseline_holds else TryCap(cap_w=cap_w)


def _search_is_over(known: Known) -> Step:
    if known.before is not None:
        return Hold(decision=known.before)
    return AskForBest() if known.baseline_holds else KeepByCurve()


def _recommended(known: Known, now: Recommended) -> Step:
    if known.rough and (now.cap_w is None or now.uncapped):
        return BaselineAgain(then_w=None, why=_ROUGH)
    if now.cap_w is None:
        # Caps were not tried that may be better, where trials failed or the job had saved up too little time.
        return KeepNone(why=_NONE_BETTER, unsure=known.blind or known.limits_slowdown)
    if now.uncapped:
        return KeepNone(why=_ALREADY_BUDGET if known.bound else _ALREADY, unsure=False)
    return KeepConfirmed() if now.cap_w == known.confirmed_w else ConfirmBest(cap_w=now.cap_w)


def _on_other_caps(now: OtherGrid) -> Step:
    match now.during:
        case During.WAIT:  # a cap that was the best one before is held meanwhile
            return WaitAnew(why=f"tuning anew: {now.why}")
        case During.BASELINE | During.NOTHING:
            return GoOn()
        case _:
            return MeasureBaseline(why=now.why)


def _under_ceiling(known: Known, moved: CeilingMoved) -> Step:
    """What is under way goes on where the ceiling allows it."""
    if known.lacks_baseline:
        return MeasureBaseline(why=ROOM)
    match moved.during:
        case During.WAIT | During.NOTHING:
            return Restart()
        case During.BASELINE:
            return Restart() if moved.other_limits else GoOn()
        case During.SAVING_UP if moved.other_caps:
            return NextTrial()
        case During.SAVING_UP if moved.allowed:
            return TryCap(cap_w=moved.cap_w, announced=True)
        case During.BASELINE_AGAIN if moved.allowed:
            return GoOn() if known.baseline_holds else TryCap(cap_w=moved.cap_w)
        case During.TRIAL if moved.allowed:
            return GoOn()
        case During.CONFIRMATION if moved.allowed and known.baseline_holds:
            return GoOn()
        case During.TRIAL | During.SAVING_UP | During.BASELINE_AGAIN | During.CONFIRMATION:
            return NextTrial()
        case During.PER_GPU:
            return GoOn() if moved.allowed else KeepByCurve()
        case During.HOLD:
            return NextTrial() if moved.unfinished else HoldWithin()
        case _:
            assert_never(moved.during)
