"""What is exported, declared once. A metric that comes or goes belongs on the dashboard, contrib/grafana, as well.

Those of a GPU have the labels `uuid`, `gpu` (its index) and `emulated` (`true`: the power is modelled). Iterations,
state and savings are those of the job, and the same for each of its GPUs. What is unknown is left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from autocap.events import State
from autocap.reports.live.status import Status
from autocap.reports.summary.record import VersusBaseline
from autocap.text import printable

GPU_LABELS = ("uuid", "gpu", "emulated")
KNOB_LABELS = (*GPU_LABELS, "knob", "unit")

Value = float | Mapping[str, str] | Mapping[str, bool]


class Kind(Enum):
    """What a metric's value is."""

    GAUGE = "gauge"  # a number that goes up and down
    COUNTER = "counter"  # a number that only grows
    STATES = "states"  # by state, whether it holds
    INFO = "info"  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """name: as it is served. meaning: a sentence. labels: of the whole. more: labels that the values of states or names
    add. values: one a GPU, or one alone where it is the job's; `None` what is unknown."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = GPU_LABELS
    more: tuple[str, ...] = ()
    of_job: bool = False
    values: Callable[[Status], Sequence[Value | None]]


def label_values(status: Status, labels: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Those of each GPU, or of the run where there are no labels; nothing before they are known."""
    if not labels:
        return [()]
    if status.device is None:
        return []
    emulated = "true" if status.device.emulated else "false"
    knob = (status.knob.name, status.knob.unit) if labels == KNOB_LABELS else ()
    return [(printable(gpu.uuid), str(gpu.index), emulated, *knob) for gpu in status.device.gpus]


def _run_info(status: Status) -> list[Mapping[str, str] | None]:
    started = status.started
    if started is None:
        return [None]
    about = {
        "version": started.autocap_version,
        "mode": started.mode,
        "metric": started.metric.name,
        "strategy": started.strategy,
        "confidence": "" if status.progress is None else status.progress.confidence,
    }
    return [{name: printable(value) for name, value in about.items()}]


def _gpu_info(status: Status) -> list[Mapping[str, str] | None]:
    device = status.device
    if device is None:
        return []
    return [{"name": printable(gpu.name), "kind": printable(device.kind)} for gpu in device.gpus]


def _values(status: Status) -> list[float | None]:
    knob = status.knob
    if knob.is_power_limit:
        return []
    return [None if setting is None else knob.value(setting) for setting in status.settings]


def _so_far(status: Status) -> VersusBaseline | None:
    return status.summary.versus_baseline if status.summary else None


def _of_kept(status: Status) -> VersusBaseline | None:
    kept = status.decided is not None and status.decided.setting is not None
    return _so_far(status) if kept else None


def _saving(name: str, meaning: str, of: Callable[[Status], VersusBaseline | None], field: str) -> Metric:
    """A change in percent as the saving that it is, or its standard error, as a ratio; none where it is not known."""
    sign = 1 if "stderr" in field else -1

    def values(status: Status) -> list[float | None]:
        percent: float | None = getattr(of(status), field, None)
        return [sign * percent / 100 if percent is not None and math.isfinite(percent) else None]

    return Metric(name=name, kind=Kind.GAUGE, meaning=meaning, of_job=True, values=values)


def _counted(status: Status) -> float | None:
    """Iterations; none where a proxy stands for them."""
    if status.by_proxy:
        return None
    return 0.0 if status.tally is None else status.tally.iterations


METRICS = (
    Metric(
        name="autocap_run_info", kind=Kind.INFO, labels=(), of_job=True, values=_run_info,
        meaning="The run: what is minimised, and how; confidence: in the count of iterations, high or low.",
        more=("version", "mode", "metric", "strategy", "confidence"),
    ),
    Metric(
        name="autocap_gpu_info", kind=Kind.INFO, values=_gpu_info,
        meaning="The GPUs of the job.", more=("name", "kind"),
    ),
    Metric(
        name="autocap_state", kind=Kind.STATES, more=("autocap_state",), of_job=True,
        meaning="State of the tuning.",
        values=lambda status: [{state.value: state is status.state for state in State}],
    ),
    Metric(
        name="autocap_cap_watts", kind=Kind.GAUGE,
        meaning="Power limit requested.", values=lambda status: status.settings if status.knob.is_power_limit else (),
    ),
    Metric(
        name="autocap_setting", kind=Kind.GAUGE, labels=KNOB_LABELS,
        meaning="Value requested of another knob than the power limit, in its unit.", values=_values,
    ),
    Metric(
        name="autocap_power_watts", kind=Kind.GAUGE,
        meaning="Draw of the GPU.", values=lambda status: status.power_w,
    ),
    Metric(
        name="autocap_iteration_seconds", kind=Kind.GAUGE,
        meaning="Time per iteration.", of_job=True,
        values=lambda status: [None if status.by_proxy else status.period_s],
    ),
    Metric(
        name="autocap_proxy_time_ratio", kind=Kind.GAUGE, of_job=True,
        meaning="Time per iteration over the baseline's, with low confidence: only where iterations are not counted, "
        "and the SM clock stands for their speed.",
        values=lambda status: [status.time_ratio if status.by_proxy else None],
    ),
    Metric(
        name="autocap_net_energy_saving_ratio", kind=Kind.GAUGE,
        meaning="Energy saved so far, the search included, over what as many iterations at the baseline use.",
        of_job=True, values=lambda status: [status.saved_share],
    ),
    _saving("autocap_net_metric_saving_ratio", "The metric's saving so far, the search included, over the baseline's.",
            _so_far, "net_metric_pct"),
    _saving("autocap_net_metric_saving_stderr_ratio", "Standard error of the metric's saving so far.",
            _so_far, "net_metric_stderr_pct"),
    _saving("autocap_expected_energy_saving_ratio", "Energy that the kept cap saves per iteration, as confirmed.",
            _of_kept, "energy_pct"),
    _saving("autocap_expected_energy_saving_stderr_ratio", "Standard error of the energy that the kept cap saves.",
            _of_kept, "energy_stderr_pct"),
    _saving("autocap_expected_metric_saving_ratio",
            "What the kept cap saves per iteration in the metric, as confirmed.", _of_kept, "metric_pct"),
    _saving("autocap_expected_metric_saving_stderr_ratio", "Standard error of what the kept cap saves in the metric.",
            _of_kept, "metric_stderr_pct"),
    Metric(
        name="autocap_energy_joules_total", kind=Kind.COUNTER,
        meaning="Energy used since tuning began.", values=lambda status: status.energies_j,
    ),
    Metric(
        name="autocap_iterations_total", kind=Kind.COUNTER,
        meaning="Iterations of the job since its activity was steady.", of_job=True,
        values=lambda status: [_counted(status)],
    ),
)  # fmt: skip
