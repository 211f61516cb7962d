"""What is announced of any run: how it began, what it runs on, the states and caps it went through, how it ended."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Self

from autocap.config.option import TakenSetting
from autocap.events.base import Event, event
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import NO_RATES, Metric, Rates
from autocap.records import CAP_W, GpuInfo

JOB_ENDED, BLOCK_ENDED = "the job ended", "the tuned block ended"  # what a `ended_because` says where nothing else did
ASKED = "a signal asked for the end"


class State(StrEnum):
    """Where the controller is; architecture.md draws the transitions."""

    WAITING = "WAITING"
    BASELINE = "BASELINE"
    SEARCHING = "SEARCHING"
    CONFIRMING = "CONFIRMING"
    HOLDING = "HOLDING"
    PAUSED = "PAUSED"
    DONE = "DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """The metric and constraint as asked for; k only for eds, prices only for cost and carbon (money per kWh, per
    device hour, per tonne of CO₂). moving: the energy price is read as it changes."""

    name: str
    k: float | None = None
    max_slowdown: float | None = None
    energy_price: float | None = None
    hour_price: float | None = None
    carbon_price: float | None = None
    moving: bool = False

    @classmethod
    def of(cls, metric: Metric) -> Self:
        """A metric as its event holds it."""
        return cls(**asdict(metric))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionValue:
    """One strategy option as it was used."""

    name: str
    value: str | int | float | bool | None


@event("run_started")
class RunStarted(Event):
    """The first event of every run. started_at: ISO 8601 with offset."""

    autocap_version: str
    mode: str
    command: tuple[str, ...]
    pid: int | None
    started_at: str
    metric: MetricInfo
    strategy: str
    strategy_options: tuple[OptionValue, ...]
    observe: bool = False
    rates: Rates = NO_RATES


@event("program_found")
class ProgramFound(Event):
    """Under sudo, which program a command's name stands for, where that is another than in sudo's own PATH.

    plain: what that gives, `None` for nothing.
    """

    name: str
    program: str
    plain: str | None = None


@event("settings_taken")
class SettingsTaken(Event):
    """Which settings the command line did not give, where there are any."""

    settings: tuple[TakenSetting, ...]


@event("actuator_chosen")
class SetterChosen(Event):
    """Who sets the limits of the devices, where they are real ones.

    name: direct, helper or zeusd. where: of the helper or zeusd, "" for direct. reason: why it is not direct, a clause.
    node: on which, of several.
    """

    name: str
    where: str = ""
    reason: str = ""
    node: str = ""


@event("device_found")
class DeviceFound(Event):
    """The devices of the job and what was found on them on arrival, in the order of `gpus`.

    original: settings of the knob that is turned. driver: its version, `None` where there is none.
    """

    kind: str
    emulated: bool
    gpus: tuple[GpuInfo, ...]
    original: tuple[float | None, ...] = field(metadata={"key": "original_w"})
    driver: str | None = None
    knob: Knob = POWER_LIMIT


@event("remembered")
class Remembered(Event):
    """What earlier runs of the same job on such devices have shown, and this one begins from.

    key: by which `autocap memory show` shows it. runs: how many they were. age_s: seconds since the last of them began.
    setting: the common cap that is the best of this run's by its metric, watts, `None` where none is known to be better
    than the limits found on arrival.
    """

    key: str
    runs: int
    age_s: float
    setting: float | None = field(metadata=CAP_W)


@event("card_recalled")
class CardRecalled(Event):
    """What other jobs have shown on such cards, and this job on others, of which the strategy was told.

    jobs: how many other jobs. here: how many of them ran on the very devices of this run. job_on: the models on which
    this job was measured, each once.
    """

    jobs: int
    here: int
    job_on: tuple[str, ...] = ()


@event("node_metered")
class NodeMetered(Event):
    """The machine's power counts as well; announced again at the end, when its refresh period is known.

    source: as given. whole: what it reads holds the GPUs' power already. refresh_s: seconds between fresh readings,
    `None` while unknown. idle_w: what the machine draws at rest, where the user said so; standard_idle_w: what the
    machine to compare with does; watts.
    """

    source: str
    whole: bool
    refresh_s: float | None
    idle_w: float | None
    standard_idle_w: float | None


@event("idle_estimated")
class IdleEstimated(Event):
    """What the machine drew at rest, watts, and over how many seconds that was seen.

    Of a run, before the first iteration; of a sweep, between its runs so far. gpus: the label of the set whose power is
    counted with it, `None` where what is read holds the power of all GPUs.
    """

    power_w: float
    seen_s: float
    gpus: str | None = None


@event("progress_found")
class ProgressFound(Event):
    """Where the iteration count comes from. confidence: "high" or "low"."""

    kind: str
    confidence: str


@event("state_entered")
class StateEntered(Event):
    state: State


@event("cap_set")
class CapSet(Event):
    """A limit was requested of every device, watts; `None` per device would mean unknown and does not occur."""

    setting: tuple[float, ...] = field(metadata=CAP_W)


@event("tally")
class Tally(Event):
    """Running totals since the first counted iteration, announced every few seconds and at the end.

    elapsed_s, energy_j, iterations: of the job since `since_s`. counted_s, counted_j: the part of them in which those
    iterations were made, as a period is recognised some time afterwards. exploration_*: the part spent in SEARCHING
    and CONFIRMING, pauses left out. paused_*: of the counted part, what was a validation pass, a checkpoint or a stall,
    with the iterations that cannot be separated from it, and those over which the power was not known. Energy is
    that of the measurements.
    """

    since_s: float
    elapsed_s: float
    energy_j: float
    iterations: float
    counted_s: float
    counted_j: float
    exploration_s: float
    exploration_energy_j: float
    exploration_iterations: float
    paused_s: float = 0.0
    paused_j: float = 0.0
    paused_iterations: float = 0.0


@event("warned")
class Warned(Event):
    text: str


@event("limit_restored")
class LimitRestored(Event):
    """What became of one device's setting at the end. final: as read afterwards, `None` if it cannot be read.

    restored: `None` on a node that is not reached any more, and puts it back by itself, and under a power budget that
    goes on, and puts it back when it ends: final is what it gives the device then.
    """

    uuid: str
    final: float | None = field(metadata={"key": "final_w"})
    restored: bool | None


@event("run_ended")
class RunEnded(Event):
    """The last event of a run or sweep that was not killed. exit_status: the child's, as `autocap run` returns it."""

    ended_because: str
    exit_status: int | None = None
