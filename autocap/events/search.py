"""What is announced of a search: the baseline, each trial, what is predicted and what is decided, caps per GPU too."""

from dataclasses import field

from autocap.events.base import Event, event
from autocap.records import CAP_W, CAPS_W, Measurement, Prediction, Trial


@event("baseline_measured")
class BaselineMeasured(Event):
    """rough: by the first iterations alone; a `BaselineRefined` follows where the search comes to its end."""

    measurement: Measurement
    rough: bool = False


@event("baseline_refined")
class BaselineRefined(Event):
    """The baseline was rough, and is known now. trials: those since it was measured, oldest first, as they cost against
    this one; a failed one as it was."""

    measurement: Measurement
    trials: tuple[Trial, ...]


@event("trial_started")
class TrialStarted(Event):
    """expected: how many trials the search is likely to take in all; `None` where that is not known."""

    setting: float = field(metadata=CAP_W)
    expected: int | None = None


@event("trial_ended")
class TrialEnded(Event):
    """Its cost has the error of the baseline that it is held against in it."""

    trial: Trial


@event("trial_withdrawn")
class TrialWithdrawn(Event):
    """What the trials of a common cap, watts, have shown since the search began at since_s does not count any more."""

    setting: float = field(metadata=CAP_W)
    since_s: float
    reason: str


@event("predicted")
class Predicted(Event):
    """The end of a search by a strategy that predicts: what it expects of caps, against the last baseline."""

    caps: tuple[Prediction, ...]


@event("would_try")
class WouldTry(Event):
    """Under --observe: the caps that a search would have begun with, watts."""

    settings: tuple[float, ...] = field(metadata=CAPS_W)


@event("decided")
class Decided(Event):
    """The end of CONFIRMING: what is held from here on, and why.

    setting: the common cap that is kept, `None` when the limit found on arrival is put back; where a cap per GPU was
    looked at again, the highest of them, and `measurement` has each.
    confirmed, measurement, baseline: how the cap fared in interleaved windows; `None` where none was tried.
    expected: what the strategy expected of it and of the best cap, `None` where it does not say. cut_short: the job, or
    its tuning, ended before the search did, or was about to.
    """

    setting: float | None = field(metadata=CAP_W)
    confirmed: bool
    reason: str
    measurement: Measurement | None = None
    baseline: Measurement | None = None
    expected: str | None = None
    cut_short: bool = False


@event("per_gpu_tried")
class PerGpuTried(Event):
    """Caps per GPU, watts, measured in turn with the common cap that was kept.

    accepted: whether they may be kept; reason: a sentence with numbers. cost: of
    `measurement`, which is as at the time when the common cap was confirmed, with the baseline's error. `None` where
    they could not be measured to the end.
    """

    setting: tuple[float, ...] = field(metadata=CAP_W)
    accepted: bool
    reason: str
    cost: float | None = None
    cost_stderr: float | None = None
    measurement: Measurement | None = None


@event("per_gpu_decided")
class PerGpuDecided(Event):
    """The end of the search for a cap per GPU: the caps held from here on, watts, and why.

    kept: whether they are other than the common cap. measurement, common: the windows of the kept caps and those of the
    common cap in between; `None` where the common cap is held. as_confirmed: `measurement` as at the time when the
    common cap was confirmed against the baseline.
    """

    setting: tuple[float, ...] = field(metadata=CAP_W)
    kept: bool
    reason: str
    measurement: Measurement | None = None
    common: Measurement | None = None
    as_confirmed: Measurement | None = None


@event("granted")
class Granted(Event):
    """No device may hold more than this many watts from now on, by the budget that the job is under; `None` where
    nothing limits it any more."""

    ceiling_w: float | None


@event("held_measured")
class HeldMeasured(Event):
    """What caps have shown that are held as the budget allows no others, or more than was tried."""

    measurement: Measurement
