"""Every setting of a run, and its default, in one place."""

from dataclasses import dataclass, replace
from pathlib import Path

from autocap.metrics import Metric

METRIC = "eds"
TARGET_STDERR = 0.005
TRIAL_SECONDS = 60.0
WAIT_SECONDS = 120.0
STEPS_WITHIN_SECONDS = 20.0  # how long `auto` waits for a step before it trusts a period in the power
PERIOD_WITHIN_SECONDS = 60.0  # how long `attach` looks for a period before it takes the SM clock for the speed
STRATEGY = "model"
NODE_POWER = "none"
RETUNE = "auto"
DEVICE = "auto"
PROGRESS = "auto"
EMULATED_PROFILE = "quadro-rtx-6000/resnet50"
SAMPLES_PER_UPDATE = 2.0  # of the power sensor, where --sample-hz does not say otherwise
SAMPLE_HZ = (1.0, 100.0)  # what --sample-hz may be
REPEATS = 3  # of each cap of a sweep
COOL_DOWN_SECONDS = 10.0  # between the runs of a sweep on real devices
OBSERVE_VARIABLE = "AUTOCAP_OBSERVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneConfig:
    """What the controller needs to know besides its parts.

    target_stderr: relative standard error of the cost at which a trial is well enough measured; a repeat is measured
    to half of it. trial_s: time limit of one trial. wait_s: longest wait for steady activity, from the start.
    min_cap_w, max_cap_w, step_w, caps_w: the caps that may be tried, inside the device's own range; `None` leaves
    the device's (the limit found on arrival is the top unless max_cap_w or caps_w says otherwise).
    prune_sigmas: a trial this many standard errors worse than the best is ended. min_batches: fewest batch means
    behind an error. observe: set nothing. retune: "auto" (when the workload has changed), "never", or after so many
    seconds of holding a cap. iterations: of the whole job, as its progress counts them; `None` when nobody knows.
    per_gpu: after a common cap was kept, lower that of each GPU that waits for the slowest.
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
    retune: float | str = RETUNE
    iterations: int | None = None
    per_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole `autocap run`, `attach` or `autocap.tune`: the command, what to tune with, and where to write.

    command: of a job that was attached to, its own. device: auto, nvml, rapl or emulated[:PROFILE]. progress: auto,
    steps, period, regex:PATTERN or speed. gpus: indices or UUIDs, `None` for those the job uses. shared_gpu: also where
    others compute on them. sample_hz: samples a second, `None` for twice the sensor's own rate. kill_after_s: SIGKILL
    to a child that outlives a forwarded signal by this; `None` waits without limit. out: the run directory, `None` for
    a new one. warm_start: the run directory to begin from. node_power: none, watts of all but the GPUs, rapl, ipmi or
    command:CMD. idle_w, standard_idle_w: as NodeMetered has them. prometheus: address and port of the exporter,
    `None` for none. step_map: where a job that asked to be tuned counts its steps.
    """

    command: tuple[str, ...]
    tune: TuneConfig
    strategy: str = STRATEGY
    strategy_options: tuple[tuple[str, str], ...] = ()
    device: str = DEVICE
    progress: str = PROGRESS
    gpus: tuple[str, ...] | None = None
    shared_gpu: bool = False
    sample_hz: float | None = None
    kill_after_s: float | None = None
    out: Path | None = None
    warm_start: Path | None = None
    node_power: str = NODE_POWER
    idle_w: float | None = None
    standard_idle_w: float | None = None
    force: bool = False
    prometheus: tuple[str, int] | None = None
    step_map: Path | None = None
    json: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """A whole `autocap sweep`. run: what it has in common with a run; its search, progress and strategy mean nothing.

    gpu_sets: each as --gpus of a run, `None` for the one set that needs no naming. order: of the caps, as a SweepPlan
    has it, and likewise seed, stop_slowdown. name: of the curves. cool_down_s: `None` for what the device needs.
    """

    run: RunConfig
    name: str
    order: str
    gpu_sets: tuple[tuple[str, ...], ...] | None = None
    repeats: int = REPEATS
    seed: int = 0
    discard: bool = True
    cool_down_s: float | None = None
    stop_slowdown: float | None = None

    def run_on(self, gpus: tuple[str, ...] | None) -> RunConfig:
        """A run of it on those GPUs."""
        return replace(self.run, gpus=gpus)
