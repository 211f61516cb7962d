"""What is announced of a sweep, and the records that its events carry: what it plans, what each of its runs used."""

from dataclasses import dataclass

from autocap.config import NODE_POWER, RANDOM
from autocap.events.base import Event, event
from autocap.events.run import MetricInfo
from autocap.records import GpuInfo

DISCARDED = 0  # the repeat of a run that only warms up


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSet:
    """The GPUs that the command runs on, and under which caps.

    label: their indices, "0,1". baseline_w: the limit found on arrival, the lowest of several. caps_w: the common caps
    to run, watts, the highest first; the baseline is one of them.
    """

    label: str
    gpus: tuple[GpuInfo, ...]
    baseline_w: float
    caps_w: tuple[float, ...]

    def __post_init__(self) -> None:
        if list(self.caps_w) != sorted(set(self.caps_w), reverse=True) or self.baseline_w not in self.caps_w:
            raise ValueError(f"a sweep's caps descend, each once, with the baseline among them, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """All that decides which runs there are, and in which order.

    name: of the curves. device: as --device has it. order: "random" (every repeat a shuffled round of all caps) or
    "descending" (all of a cap, then the next lower). seed: of the shuffling. discard: each set begins with a run
    at the baseline that does not count. cool_down_s: pause between runs. stop_slowdown: 0.5 leaves out caps below one
    whose mean time is beyond 1.5 times the baseline's. observe: nothing is set, so only the baseline is run.
    node_power: as --node-power has it.
    """

    command: tuple[str, ...]
    name: str
    device: str
    emulated: bool
    sets: tuple[GpuSet, ...]
    repeats: int
    order: str = RANDOM
    seed: int = 0
    discard: bool = True
    cool_down_s: float = 0.0
    stop_slowdown: float | None = None
    observe: bool = False
    node_power: str = NODE_POWER


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run of the command. gpus: the label of its set. repeat: 1 and up, or DISCARDED."""

    gpus: str
    cap_w: float
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a whole run used.

    energy_j: of each GPU. missing: power readings of theirs that were missing or 0 W. node_j: of the whole node, `None`
    where the GPUs are all that counts; node_gap_s: seconds during which its power was not known.
    """

    time_s: float
    energy_j: tuple[float, ...]
    missing: int = 0
    node_j: float | None = None
    node_gap_s: float = 0.0

    @property
    def gpus_j(self) -> float:
        """Of all GPUs together."""
        return sum(self.energy_j)

    @property
    def counted_j(self) -> float:
        """What the metric counts: the node's energy, where that is known."""
        return self.gpus_j if self.node_j is None else self.node_j


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run that ended. used: `None` where it was not measured. trouble: why it does not count; it is run again."""

    run: PlannedRun
    used: Used | None
    exit_status: int
    trouble: str | None = None


@event("sweep_started", begins="sweep")
class SweepStarted(Event):
    """The first event of a sweep, instead of RunStarted; of one that was interrupted, again each time it goes on.

    runs_left: how many runs were due then.
    """

    autocap_version: str
    started_at: str
    metric: MetricInfo
    plan: SweepPlan
    runs_left: int


@event("sweep_run_started")
class SweepRunStarted(Event):
    run: PlannedRun


@event("sweep_run_ended")
class SweepRunEnded(Event):
    finished: FinishedRun
