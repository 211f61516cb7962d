"""The records that cross module boundaries: readings in, measurements and trials out.

All are frozen. Units are in the names, SI throughout; times `t_s` are seconds on the run's own clock, whose zero
is the start of the run. An unknown is `None`, never 0 or -1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Generic, TypeVar

from autocap.knobs import TOLERANCE_W

# What a setting of the knob that is turned is written under where that is the power limit.
CAP_W, CAPS_W = {"key": "cap_w"}, {"key": "caps_w"}


S = TypeVar("S")


class AtSetting(Generic[S]):
    """What belongs to a setting of the knob. cap_w: the same, as who writes a strategy for caps or reads a result knows
    it; watts where the power limit is turned."""

    __slots__ = ()
    setting: S

    @property
    def cap_w(self) -> S:
        return self.setting


def same_limit(a_w: float, b_w: float) -> bool:
    """Whether two settings are the same: power limits, watts, to what devices resolve, and of another knob the same
    place."""
    return abs(a_w - b_w) <= TOLERANCE_W


def same_limits(some_w: Sequence[float], others_w: Sequence[float]) -> bool:
    """Whether these are the settings of as many devices, each the same as the other."""
    return len(some_w) == len(others_w) and all(map(same_limit, some_w, others_w))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRange:
    """The power limits that a device accepts, and the one it boots with; watts."""

    min_w: float
    max_w: float
    default_w: float

    def __post_init__(self) -> None:
        _require(
            0 < self.min_w <= self.default_w <= self.max_w < math.inf,
            f"cap range needs 0 < min <= default <= max, got {self.min_w}, {self.default_w}, {self.max_w} W",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """What stays the same about one power-capped device (a GPU, or whatever plays one).

    noun: what messages call its kind. node: the machine that has it, "" where the job has only this one.
    """

    index: int
    uuid: str
    name: str
    cap_range: CapRange
    noun: str = "GPU"
    node: str = ""

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"{self.noun} {self.index} of {self.node}" if self.node else f"{self.noun} {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorInfo:
    """How a device's power sensor behaves.

    update_s: seconds between two fresh readings. window_s: the trailing average each reading covers; window_known:
    whether that was measured on such a card, and is not only taken to be so.
    settle_s: seconds after a cap change until readings describe the new cap alone. counter_s: seconds between two moves
    of the energy counter, `None` where that is not known, or there is none.
    """

    update_s: float
    window_s: float
    settle_s: float
    counter_s: float | None = None
    window_known: bool = True

    def __post_init__(self) -> None:
        positive = self.update_s > 0 and (self.counter_s is None or self.counter_s > 0)
        _require(positive and self.window_s >= 0 and self.settle_s >= 0, f"impossible sensor: {self}")

    @property
    def covers_s(self) -> float:
        """Of the time before it, each reading surely covers, seconds; an update where nobody has measured that."""
        return self.window_s if self.window_known else self.update_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One device, read once.

    t_s: when the power reading was taken (its own stamp, not the sample's).
    power_w: board draw, `None` where the reading is missing or was zero.
    energy_j: the device's own energy counter, `None` where it has none.
    beside_j: a counter of what goes with the device and is under no cap, as a CPU package's memory; `None` without one.
    requested_w, enforced_w: the limit asked for and the one that holds after all limiters.
    cap_binding: whether the driver says the cap holds the clocks down; `None` where it does not say.
    throttled: thermal or hardware slowdown is active, so windows are not comparable.
    utilisation: share of the time, or of the device, that is busy, 0 to 1. temperature_c: of the GPU, degrees Celsius,
    for whoever looks at a run's samples. knob_value: of the knob that is turned, as asked for, where that is not the
    power limit.
    """

    t_s: float
    power_w: float | None
    energy_j: float | None = None
    beside_j: float | None = None
    requested_w: float | None = None
    enforced_w: float | None = None
    sm_clock_hz: float | None = None
    cap_binding: bool | None = None
    throttled: bool = False
    utilisation: float | None = None
    temperature_c: float | None = None
    knob_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """The step counter as read: steps completed so far and the time at which the last of them ended.

    of_calls: they are calls of a function that the kernel has counted, and the last of them began then. suspended: they
    are not counted for now, as nobody needs it; how many there were meanwhile will not be known.
    """

    count: int
    t_s: float
    of_calls: bool = False
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """The power of the machine around the devices, read once.

    t_s: when the value was taken; one that is only held keeps its stamp. power_w: `None` in a gap. whole: the devices'
    own power is in it, as in what a wall meter reads; else it comes on top of theirs. energy_j: the source's own
    counter, `None` where it has none.
    """

    t_s: float
    power_w: float | None
    whole: bool
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All that the controller gets: every device of the job, the step counter and the machine's power, at one moment.

    node: `None` where the devices' own power is all that counts.
    """

    t_s: float
    readings: tuple[Reading, ...]
    steps: StepReading | None = None
    node: NodeReading | None = None

    @property
    def uncounted(self) -> bool:
        """Whether no iterations are counted at present, which says nothing of the job."""
        return self.steps is not None and self.steps.suspended


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEnergy:
    """The GPUs' part in a Measurement of the whole machine: its fields of these names for the GPUs alone.

    For CPU packages, the packages' part without their memory: what the caps act on.
    """

    power_w: float
    power_rel_stderr: float
    energy_per_iteration_j: float
    energy_rel_stderr: float
    time_energy_corr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(AtSetting[tuple[float, ...]]):
    """What one cap costs per iteration.

    setting: the cap per device, watts. start_s, duration_s: the window, whole iterations only. period_s,
    energy_per_iteration_j, power_w: means over the window; power and energy of all devices together, or, where `gpu`
    holds the devices' part, of more of the machine. *_rel_stderr: relative standard errors from batch means, infinite
    where nothing is known of them (`null` in JSON), as of a command that was run once. time_energy_corr: correlation of
    the errors of period and energy. cap_binding: `None` where the device does not say. sm_clock_hz: mean over the
    window, of the slowest device at each moment; `None` where not all say. valid, reason: a window that must not be
    compared. proxy_rel_stderr: `None` where iterations were counted; else a proxy stood for them, so that seconds and
    joules per iteration say nothing but against the baseline's, and this is the part of the relative errors of both
    that all windows at these caps share.
    """

    setting: tuple[float, ...] = field(metadata=CAP_W)
    start_s: float
    duration_s: float
    iterations: float
    period_s: float
    period_rel_stderr: float
    power_w: float
    power_rel_stderr: float
    energy_per_iteration_j: float
    energy_rel_stderr: float
    time_energy_corr: float
    cap_binding: bool | None = None
    sm_clock_hz: float | None = None
    valid: bool = True
    reason: str | None = None
    gpu: GpuEnergy | None = None
    proxy_rel_stderr: float | None = None

    def __post_init__(self) -> None:
        _require(
            0 < self.period_s < math.inf and 0 < self.energy_per_iteration_j < math.inf,
            f"a measurement needs a positive time and energy per iteration, got {self.period_s} s and "
            f"{self.energy_per_iteration_j} J",
        )
        _require(
            min(self.period_rel_stderr, self.energy_rel_stderr, self.power_rel_stderr) >= 0,
            f"a standard error cannot be negative: {self}",
        )
        _require(abs(self.time_energy_corr) <= 1 + 1e-9, f"a correlation lies in [-1, 1], got {self.time_energy_corr}")

    @property
    def is_relative(self) -> bool:
        """Whether a proxy stood for the iterations, so that nothing per iteration is known but ratios."""
        return self.proxy_rel_stderr is not None

    def of_gpus(self) -> "Measurement":
        """The same window with the GPUs' own power and energy."""
        if self.gpu is None:
            return self
        return replace(self, gpu=None, **{field.name: getattr(self.gpu, field.name) for field in fields(GpuEnergy)})

    def with_gpus(self, gpus: "Measurement") -> "Measurement":
        """This one, of the machine, with the GPUs' part of the same window."""
        return replace(self, gpu=GpuEnergy(**{field.name: getattr(gpus, field.name) for field in fields(GpuEnergy)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A metric's value with its standard error; 1 at the baseline, lower is better.

    stderr: infinite where nothing is known of it, as of what was measured once. shared: the part of it that all
    measurements of these caps share, so that taking them together leaves it. common: the part that is the baseline's,
    so that it cancels where caps are compared that were held against the same one, and nowhere else.
    """

    value: float
    stderr: float
    shared: float = 0.0
    common: float = 0.0

    @property
    def own(self) -> float:
        """The error by which it is compared with another cap: without the baseline's part."""
        return self.stderr if self.common == 0 else math.sqrt(max(0.0, self.stderr**2 - self.common**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(AtSetting[float]):
    """What is expected of a cap that was not measured, over the baseline's.

    setting: the common cap, watts. energy, time: per iteration, ratios. The errors are standard deviations of what is
    believed, relative, with their correlation as in a Measurement.
    """

    setting: float = field(metadata=CAP_W)
    energy: float
    time: float
    energy_rel_stderr: float
    period_rel_stderr: float
    time_energy_corr: float

    def __post_init__(self) -> None:
        _require(
            0 < self.energy < math.inf and 0 < self.time < math.inf,
            f"a prediction needs a positive energy and time, got {self.energy} and {self.time}",
        )
        _require(
            min(self.energy_rel_stderr, self.period_rel_stderr) > 0,
            f"a prediction is never certain: {self}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativePoint:
    """What a cap has shown, over what the limit found on arrival has. cap: over that limit. power: mean; time: per
    iteration. The errors are relative standard deviations, the baseline's included."""

    cap: float
    power: float
    time: float
    power_rel_stderr: float
    period_rel_stderr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeCurve:
    """What another job on such a card has shown, or this job on another one: shares, as watts and seconds are of no
    use there.

    draw: the mean power of a device at the limit found on arrival, over that limit. binding: whether that held the
    clocks down, `None` where the device did not say. points: by cap, which is below that limit or above it, each once.
    of_job: whether it is this very job, on another card.
    """

    draw: float
    binding: bool | None
    points: tuple[RelativePoint, ...]
    of_job: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLength:
    """How long the trials of a strategy last that has a rule of its own: to the end, however exact or bad they are.

    settle_s: seconds discarded after the cap was set. warm_up: iterations discarded from then on. The window lasts
    until it has this many seconds and whole iterations, of which there must be two for an error.
    """

    settle_s: float = 0.0
    warm_up: int = 0
    seconds: float = 0.0
    iterations: int = 2

    def __post_init__(self) -> None:
        _require(
            min(self.settle_s, self.warm_up, self.seconds) >= 0 and self.iterations >= 2,
            f"a trial needs two iterations or more, and nothing negative: {self}",
        )


class TrialState(StrEnum):
    """A trial's fate. "Measured badly" and "worse" never share a number."""

    COMPLETE = "complete"
    PRUNED = "pruned"  # measured well enough to know that it is worse than the best, or too slow
    FAILED = "failed"  # could not be measured: neither cost nor measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(AtSetting[float]):
    """One cap, tried once. setting: the common cap asked for, watts."""

    setting: float = field(metadata=CAP_W)
    state: TrialState
    reason: str | None = None
    cost: float | None = None
    cost_stderr: float | None = None
    measurement: Measurement | None = None

    def __post_init__(self) -> None:
        empty = self.cost is None and self.cost_stderr is None and self.measurement is None
        full = self.cost is not None and self.cost_stderr is not None and self.measurement is not None
        if self.state is TrialState.FAILED:
            _require(empty, f"a failed trial has neither cost nor measurement: {self}")
        else:
            _require(full, f"a {self.state} trial has a cost, its error and a measurement: {self}")
            _require(math.isfinite(self.cost or 0.0), f"a cost must be finite, got {self.cost}")
