"""What may happen in a tuning, and what there is to do: the words of the plan, both closed sets."""

from dataclasses import dataclass
from enum import Enum, auto

from autocap.controller.comparison import Ruling
from autocap.controller.context import Kept
from autocap.controller.ranking import Confirm, Move, TryOut

# What may have happened.


class RoughBaseline:
    """The first iterations have shown a rough baseline."""


class Steady:
    """The job is steady, or was waited for long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBaselineEnded:
    """The baseline of a search that is to begin was measured. failed: why it was not."""

    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetUp:
    """A search was set up. objection: why not to search at all."""

    objection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The strategy was asked for the next cap. setting: watts; `None` where its search is over."""

    setting: float | None


class TrialEnded:
    """A trial has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsSpent:
    """The time that the job had saved up ran out before a trial told anything. setting: of the trial, watts."""

    setting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """What was measured of a cap may be wrong. setting: watts. why: in a sentence."""

    setting: float
    why: str


class SearchReopened:
    """Trials have turned out to be wrong, or the strategy wants more after a confirmation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAgainEnded:
    """The baseline was measured again. then_w: the cap that was to be tried next, watts; `None` where it was measured
    for its own sake. failed: why it could not be measured for its own sake."""

    then_w: float | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeemsChanged:
    """The job shows another baseline, or draws another power. sure: that was seen twice in a row, or by something else
    than the baseline. then_w: the cap to be tried once it was looked at again, watts."""

    why: str
    sure: bool
    then_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The strategy was asked for the cap to keep. setting: watts; `None` where none was measured that may be kept.
    is_no_cap: it is the limit that holds without one."""

    setting: float | None
    is_no_cap: bool = False


class WindowEnded:
    """A window of a confirmation has ended, and more are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A confirmation has ended. runner_up_w: the next best cap, watts, where this one is not better."""

    ruling: Ruling
    why: str
    runner_up_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision was announced. balances: caps per GPU may be found from here."""

    decision: Kept
    balances: bool = False


class EndNear:
    """The job ends before a confirmation could, and a cap is better beyond doubt."""


class CheckDue:
    """A cap has been held for long, and the baseline may be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMoved:
    """The price, or carbon, has changed, and other caps are wanted. wanted: which, and how; `None`: the
    one that is being confirmed is not any more."""

    wanted: Move | Confirm | TryOut | None


class During(Enum):
    """What was under way when something changed."""

    WAIT = auto()
    BASELINE = auto()
    TRIAL = auto()
    SAVING_UP = auto()  # for a trial
    BASELINE_BEFORE_TRIAL = auto()
    BASELINE_ALONE = auto()  # again, for its own sake
    CONFIRMATION = auto()
    PER_GPU = auto()
    HOLD = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingMoved:
    """The ceiling of a budget has moved. setting: that is tried, or is to be next. allowed: that one, or what else
    is under way, still is. other_grid: other caps may be asked for than before. other_limits: other limits hold without
    a cap. may_search_on: the last search ended in KeepByCurve, and better caps may lie above the ceiling of then."""

    during: During
    setting: float = 0.0
    allowed: bool = True
    other_grid: bool = False
    other_limits: bool = True
    may_search_on: bool = False


class CountedAnew:
    """Something else counts the iterations from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridChanged:
    """The devices take other caps than was thought, as they take limits in steps. why: in a sentence."""

    during: During
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Nothing can be tuned. why: in a sentence."""

    why: str


Happened = (
    RoughBaseline | Steady | FirstBaselineEnded | SearchSetUp | Asked | TrialEnded | SavingsSpent | Doubted
    | SearchReopened | BaselineAgainEnded | JobSeemsChanged | Recommended | WindowEnded | Judged | Decided | EndNear
    | CheckDue | ValueMoved | CeilingMoved | CountedAnew | GridChanged | Failed
)  # fmt: skip


# What to do next.


class KeepWaiting:
    """Wait until the job is steady: a rough baseline does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetAndWait:
    """Put back the limits found on arrival, and wait until the job is steady. why: in a sentence, to be said."""

    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAndSearch:
    """Measure the baseline, and then search. why: something has changed, so that the search before is given up; its
    trials are history to the new one. same_job: what they show still counts."""

    why: str | None = None
    same_job: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUpSearch:
    """Set up a search. rough: from a baseline of a few iterations."""

    rough: bool = False


class Observe:
    """Say what would be tried, and set nothing to the end."""


class BeginSearch:
    """Begin the search that was set up."""


class AskForCap:
    """Ask the strategy for the next cap."""


class AskForBest:
    """Ask the strategy for the cap to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryCap:
    """Try the cap, once the job has saved up what that costs. setting: watts. announced: it was said already."""

    setting: float
    announced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAgain:
    """Measure the baseline again. then_w: the cap to be tried after it, watts. why: in a sentence."""

    then_w: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmBest:
    """Measure the cap in turn with the baseline. setting: watts."""

    setting: float


class NextWindow:
    """Measure the next window, of the cap or of the baseline in turn."""


class KeepConfirmed:
    """Announce that the cap that was confirmed is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNone:
    """Announce that no cap is kept. unsure: a later search may find something better."""

    why: str
    unsure: bool


class KeepByCurve:
    """Announce what is best under the ceiling by all that was measured."""


class KeepUnconfirmed:
    """Announce that the best cap so far is kept, as the job ends."""


class BalanceGpus:
    """Look for a cap per GPU, from the common cap that was confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Hold what was decided."""

    decision: Kept


class HoldWithin:
    """Hold what was decided, as far as the ceiling allows."""


class HoldAsBefore:
    """Stop the confirmation, and hold what was held before it."""


class Check:
    """Measure what is held in turn with the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """Go on with what is under way. why: in a sentence, to be said."""

    why: str | None = None


class RestartAtNewLimits:
    """Begin the wait or the baseline anew, at the limits that hold now without a cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the tuning. why: in a sentence."""

    why: str


SearchStep = (
    AskForCap | AskForBest | TryCap | BaselineAgain | ConfirmBest | NextWindow | KeepConfirmed | KeepNone | KeepByCurve
    | BalanceGpus
)  # fmt: skip
Step = (
    SearchStep | KeepWaiting | ResetAndWait | BaselineAndSearch | SetUpSearch | Observe | BeginSearch | KeepUnconfirmed
    | Hold | HoldWithin | HoldAsBefore | Move | Confirm | Check | Continue | RestartAtNewLimits | End
)  # fmt: skip
