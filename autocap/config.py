"""Every setting of a tuning run, and its default, in one place."""

from dataclasses import dataclass

from autocap.metrics import Metric

TARGET_STDERR = 0.005
TRIAL_SECONDS = 60.0
WAIT_SECONDS = 120.0
STRATEGY = "golden"
EMULATED_PROFILE = "quadro-rtx-6000/resnet50"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneConfig:
    """What the controller needs to know besides its parts.

    target_stderr: relative standard error of the cost at which a trial is well enough measured; a repeat is measured
    to half of it. trial_s: time limit of one trial. wait_s: longest wait for steady activity, from the start.
    min_cap_w, max_cap_w, step_w, caps_w: the caps that may be tried, inside the device's own range; `None` leaves
    the device's (the limit found on arrival is the top unless max_cap_w or caps_w says otherwise).
    prune_sigmas: a trial this many standard errors worse than the best is ended. min_batches: fewest batch means
    behind an error. observe: set nothing.
    """

    metric: Metric
    target_stderr: float = TARGET_STDERR
    trial_s: float = TRIAL_SECONDS
    wait_s: float = WAIT_SECONDS
    min_cap_w: float | None = None
    max_cap_w: float | None = None
    step_w: float | None = None
    caps_w: tuple[float, ...] | None = None
    prune_sigmas: float = 3.0
    min_batches: int = 8
    observe: bool = False
