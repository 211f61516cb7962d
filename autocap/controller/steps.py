"""What may happen in a tuning, and what there is to do: the words of the plan, both closed sets."""

from dataclasses import dataclass
from enum import Enum, auto

from autocap.controller.actions import Kept
from autocap.controller.comparison import Ruling
from autocap.controller.ranking import Confirm, Move, TryOut

# What may have happened.


class RoughBaseline:
    """The first iterations have shown one."""


class Steady:
    """The job has become steady, or was waited for long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEnded:
    """The first baseline of a search was measured. failed: why it was not."""

    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSetUp:
    """objection: why not to search at all."""

    objection: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The strategy was asked for the next cap, watts; `None` where its search is over."""

    cap_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The strategy was asked for the cap to keep, watts; `None` where there is none. uncapped: it is the limits that
    hold without a cap."""

    cap_w: float | None
    uncapped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """blind: so many have failed in a row that going on would only cost the job time."""

    blind: bool


class MoreKnown:
    """Trials count no more, or the strategy was told what a confirmation has shown and wants more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsSpent:
    """The trial of a cap, watts, ended before it told anything, as it had cost the job all the time it may cost."""

    cap_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubted:
    """What was measured of a cap, watts, may be wrong. why: in a sentence."""

    cap_w: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSeen:
    """The baseline was measured again. then_w: the cap that was to be tried next, watts; `None` where it was measured
    for its own sake. failed: why it could not be."""

    then_w: float | None
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanged:
    """sure: nobody need look again. then_w: the cap to be tried after that, watts."""

    why: str
    sure: bool = True
    then_w: float | None = None


class WindowEnded:
    """One of a confirmation, and more are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A confirmation has ended. runner_up_w: the next best cap, watts, where this one is too slow or too uncertain."""

    ruling: Ruling
    why: str
    runner_up_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """It was announced. balances: caps per GPU may be found from here."""

    decision: Kept
    balances: bool = False


class EndNear:
    """The job ends before a confirmation could, and a cap is better beyond doubt."""


class CheckDue:
    """What is held was confirmed long ago, and the baseline's limits may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMoved:
    """Another cap is wanted at the price, or carbon, in force; `None`: the one that is being confirmed is not."""

    wanted: Move | Confirm | TryOut | None


class During(Enum):
    """What was under way when a ceiling moved."""

    WAIT = auto()
    BASELINE = auto()
    TRIAL = auto()
    SAVING_UP = auto()  # for a trial
    BASELINE_AGAIN = auto()  # before a trial
    CONFIRMATION = auto()  # or the baseline for its own sake
    PER_GPU = auto()
    HOLD = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingMoved:
    """cap_w: that is tried, or is to be next, watts. allowed: what is under way may go on under this ceiling.
    other_caps: others may be asked for than before. other_limits: others hold without a cap. unfinished: a search had
    ended by its curve alone, and may go on."""

    during: During
    cap_w: float = 0.0
    allowed: bool = True
    other_caps: bool = False
    other_limits: bool = True
    unfinished: bool = False


class CountedAnew:
    """Something else counts the iterations from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGrid:
    """The devices take limits in steps, so that other caps may be asked for. why: in a sentence."""

    during: During
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Nothing can be tuned. why: in a sentence."""

    why: str


Happened = (
    RoughBaseline | Steady | BaselineEnded | SearchSetUp | Asked | Recommended | TrialEnded | MoreKnown | SavingsSpent
    | Doubted | BaselineSeen | JobChanged | WindowEnded | Judged | Decided | EndNear | CheckDue | ValueMoved
    | CeilingMoved | CountedAnew | OtherGrid | Failed
)  # fmt: skip


# What to do next.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait until the job is steady, at the limits found on arrival. anew: what was seen so far does not count. why:
    something has changed."""

    anew: bool = True
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureBaseline:
    """Measure the limits found on arrival, before a search begins. why: something has changed, so that what was found
    so far counts no more."""

    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUpSearch:
    """From the baseline. rough: by its first iterations alone."""

    rough: bool = False


class Observe:
    """Say what would be tried, and set nothing."""


class BeginSearch:
    """Ask the strategy for the first cap."""


class NextTrial:
    """Ask the strategy for the next cap."""


class AskForBest:
    """Ask the strategy for the cap to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TryCap:
    """Measure a cap, watts, once the job has saved up what that costs it. announced: it was said already."""

    cap_w: float
    announced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineAgain:
    """Measure the baseline again, and then try a cap, watts; `None`: for its own sake. why: in a sentence."""

    then_w: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmBest:
    """Measure a cap, watts, in turn with the baseline, until it is known whether it is better."""

    cap_w: float


class NextWindow:
    """Go on with a confirmation: cap and baseline in turn."""


class KeepConfirmed:
    """Announce that the confirmed cap is kept."""


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
    """What was decided."""

    decision: Kept


class HoldWithin:
    """What was decided, as far as the ceiling allows."""


class HoldAsBefore:
    """What was held before a confirmation, which stops half-way."""


class Check:
    """Measure what is held in turn with the baseline."""


class GoOn:
    """With what is under way."""


class Restart:
    """Begin what is under way anew, at the limits that hold now without a cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Of the tuning. why: in a sentence."""

    why: str


SearchStep = (
    NextTrial | AskForBest | TryCap | BaselineAgain | ConfirmBest | NextWindow | KeepConfirmed | KeepNone | KeepByCurve
    | BalanceGpus
)  # fmt: skip
Step = (
    SearchStep | Wait | MeasureBaseline | SetUpSearch | Observe | BeginSearch | KeepUnconfirmed | Hold | HoldWithin
    | HoldAsBefore | Move | Confirm | Check | GoOn | Restart | End
)  # fmt: skip
