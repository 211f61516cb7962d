"""The one record behind the terminal's table, `result.json` and every other report (schema 1 of `result.json`).

SI units, seconds on the run's own clock; caps are watts per device, in the order of the devices. `None` is unknown,
or never came to be. `summarise` makes it from the events.
"""

from dataclasses import dataclass, field

from autocap.config.option import TakenSetting
from autocap.events import MetricInfo, OptionValue
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import NO_RATES, Rates
from autocap.records import CAP_W, AtSetting, Measurement, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number with its standard error, 0 where it is what the meters said."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the run's work took, or would have taken. time_s, energy_j: of all of it, pauses included. money: that its
    energy cost. carbon_g: grams of CO₂. cost: what the run's metric counts, money or grams, where that is `cost` or
    `carbon`. `None` where it is not known.

    setting: held all the time, watts; `None` for the run as it was. source: of such a cap, "measured" or "predicted".
    """

    setting: tuple[float, ...] | None = field(metadata=CAP_W)
    source: str | None
    time_s: Amount
    energy_j: Amount
    money: Amount | None
    carbon_g: Amount | None
    cost: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAccounts:
    """A run's accounts, since its first counted iteration, the search included.

    price_source, carbon_source: where they were read, `None` of a number. currency: of the money. price, carbon: means
    over the run's energy, per kWh; price_known, carbon_known: the share of that energy for which there was a value.
    baseline, constant: as much work at the limits found on arrival, and at the one cap that would have been best;
    `None` where that cannot be told. moves: how often caps were changed to follow.
    """

    price_source: str | None
    carbon_source: str | None
    currency: str | None
    price: float | None
    carbon: float | None
    price_known: float | None
    carbon_known: float | None
    spent: Account
    baseline: Account | None
    constant: Account | None
    moves: int


SCHEMA = 1
MEASURED, PREDICTED = "measured", "predicted"  # what a `source` says
GIVEN, ESTIMATED = "given", "estimated"  # what an `idle_source` says


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSummary:
    """One device and its limits, watts; the last two of another knob where that was turned. cap_final_w: read after the
    run; restored: the limit found on arrival holds, as
    far as is on record; `None` where it was left to a node that was not reached any more, or to a budget that went
    on."""

    index: int
    uuid: str
    name: str
    cap_min_w: float
    cap_max_w: float
    cap_default_w: float
    cap_original_w: float | None = None
    cap_final_w: float | None = None
    restored: bool | None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSummary:
    """The devices of the job. emulated: power is modelled, and is labelled so wherever it is shown."""

    kind: str
    emulated: bool
    gpus: tuple[GpuSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardEnergy:
    """Energy per iteration, joules with their standard error, as on a machine that draws another power at rest."""

    setting: tuple[float, ...] = field(metadata=CAP_W)
    energy_per_iteration_j: float
    stderr_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """The machine around the GPUs, whose power counts.

    source, whole, refresh_s, standard_idle_w: as NodeMetered has them. idle_w: what the machine draws at rest, watts;
    idle_source: GIVEN or ESTIMATED, from idle_seen_s seconds before the first iteration, or between a sweep's runs.
    idle_share: of the baseline's energy, what the machine would have used at rest in the same time. standard: of the
    baseline and of the cap kept, on the machine to compare with; the error of the idle power is not in it.
    """

    source: str
    whole: bool
    refresh_s: float | None
    idle_w: float | None
    idle_source: str | None
    idle_seen_s: float | None
    idle_share: float | None
    standard_idle_w: float | None
    standard: tuple[StandardEnergy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySummary:
    name: str
    options: tuple[OptionValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSummary:
    """Where the iteration count came from. confidence: "high" or "low"."""

    kind: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSummary(AtSetting[tuple[float, ...]]):
    """One trial. cost: the chosen metric, 1 at the baseline, with the errors of both. energy_pct, time_pct: per
    iteration, against the baseline of its time; negative is less."""

    setting: tuple[float, ...] = field(metadata=CAP_W)
    state: TrialState
    reason: str | None
    cost: float | None
    cost_stderr: float | None
    energy_pct: float | None
    time_pct: float | None
    measurement: Measurement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSummary(AtSetting[tuple[float, ...]]):
    """The caps that were kept, and how they fared in windows interleaved with the baseline's."""

    setting: tuple[float, ...] = field(metadata=CAP_W)
    confirmed: bool
    measurement: Measurement | None
    knob: Knob = field(default=POWER_LIMIT, metadata={"key": None})

    def __str__(self) -> str:
        """Such as `115 W, confirmed: 0.35 ± 0.02 s and 14.4 ± 0.6 J per iteration`."""
        from autocap.reports.wording.run import chosen  # which is made of what is defined here

        return chosen(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCap(AtSetting[tuple[float, ...]]):
    """The cap that is best by one metric alone, without a limit on slowdown.

    source: MEASURED, or PREDICTED; the error is then of what is believed.
    """

    metric: str
    setting: tuple[float, ...] = field(metadata=CAP_W)
    cost: float
    cost_stderr: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint(AtSetting[tuple[float, ...]]):
    """A cap that none beats in both energy and time per iteration, both over the baseline's. source: as in BestCap."""

    setting: tuple[float, ...] = field(metadata=CAP_W)
    energy: float
    energy_stderr: float
    time: float
    time_stderr: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Since the first counted iteration; exploration: the part spent in SEARCHING and CONFIRMING. Energy without what
    was used while the power was not known."""

    wall_s: float
    energy_j: float
    iterations: float
    exploration_s: float
    exploration_energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Energy, time and metric per iteration against something else, from windows taken in turn, errors of both
    included; negative is less. `None` where there is nothing to compare."""

    energy_pct: float | None
    energy_stderr_pct: float | None
    time_pct: float | None
    time_stderr_pct: float | None
    metric_pct: float | None
    metric_stderr_pct: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersusBaseline(Changes):
    """What tuning gained: the changes at the kept cap, `None` when no cap was kept, and those of the whole run.

    net_energy_j: what the whole run spent beyond as many iterations at the baseline, with the baseline's error; `None`
    when in the end no cap was kept. net_metric_pct: the metric of the whole run, search and all; its error is the
    baseline's, drift included.
    break_even_s: when the search had, or will have, paid for itself in the metric; `None` when it never does.
    gpu_energy_pct: as energy_pct for the GPUs alone, where energy is the machine's.
    """

    net_energy_j: float | None
    net_energy_stderr_j: float | None
    net_metric_pct: float | None
    net_metric_stderr_pct: float | None
    break_even_s: float | None
    gpu_energy_pct: float | None = None
    gpu_energy_stderr_pct: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersusCommon(Changes, AtSetting[tuple[float, ...]]):
    """What a cap per GPU gained over the common cap that the search had kept; no changes where that one is held.

    setting: the caps held after it. kept: whether they are other than the common one; reason: why, in a sentence.
    """

    setting: tuple[float, ...] = field(metadata=CAP_W)
    kept: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedSummary:
    """What earlier runs of the job have shown, as Remembered has it."""

    key: str
    runs: int
    age_s: float
    setting: float | None = field(metadata=CAP_W)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpan:
    """A state of the controller and when it held."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run: finished, killed, or as far as it has come. The fields are the keys of `result.json`, in its order.

    Energy and power are the machine's where `node` is there, with the GPUs' part in each measurement's `gpu`, and else
    the GPUs'. best_by_metric_gpu: as best_by_metric, had the GPUs' energy alone been counted; empty without `node`.
    decided_because: why the last decision kept its cap, or none; `None` before it. versus_common: `None` unless a cap
    per GPU was asked for and looked for at the common cap held last. settings: what the command line did not give.
    remembered: what the search began from. books: what the run has cost and emitted, `None` where nobody said what a
    kWh costs or emits. knob: what was turned, whose settings all of this is about.
    """

    schema: int = SCHEMA
    autocap_version: str
    mode: str
    command: tuple[str, ...]
    pid: int | None
    started_at: str
    ended_because: str
    device: DeviceSummary | None
    metric: MetricInfo
    rates: Rates = NO_RATES
    strategy: StrategySummary
    progress: ProgressSummary | None
    baseline: Measurement | None
    trials: tuple[TrialSummary, ...]
    chosen: ChosenSummary | None
    decided_because: str | None = None
    best_by_metric: tuple[BestCap, ...]
    pareto: tuple[ParetoPoint, ...]
    totals: Totals | None
    versus_baseline: VersusBaseline | None
    versus_common: VersusCommon | None = None
    states: tuple[StateSpan, ...]
    warnings: tuple[str, ...]
    node: NodeSummary | None = None
    best_by_metric_gpu: tuple[BestCap, ...] = ()
    settings: tuple[TakenSetting, ...] = ()
    remembered: RememberedSummary | None = None
    books: CostAccounts | None = None
    knob: Knob = POWER_LIMIT

    @property
    def emulated(self) -> bool:
        """Whether the devices are modelled."""
        return self.device is not None and self.device.emulated

    @property
    def is_relative(self) -> bool:
        """Whether a proxy stands for the iterations, so that nothing per iteration is known but ratios."""
        return self.baseline is not None and self.baseline.is_relative

    @property
    def modelled(self) -> bool:
        """Whether the energy that counts is modelled; what a meter of the whole node reads is not."""
        return self.emulated and not (self.node is not None and self.node.whole)
