"""What is known of the caps of one job, as the pictures of trade-offs need it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autocap.events import Event, Predicted
from autocap.metrics import Metric
from autocap.records import Cost
from autocap.reports.figures.model import Floats
from autocap.reports.summary.gains import ENERGY, METRICS, TIME, CapCosts, costs_by_cap, costs_predicted
from autocap.reports.summary.record import ParetoPoint, Summary
from autocap.reports.summary.summarise import last_of, measured_trials, metric_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Costs over the baseline's, TIME and those of `metrics`, by cap, lowest first.

    name: of the network or GPU set, where there are several. measured: the baseline's among them. kept: the cap that
    the search came to, `None` where there is none; of it energy and time are known, of a run's against its own
    interleaved windows.
    front: time and energy of the caps that none beats in both, by rising time, shape (n, 2).
    """

    name: str
    metrics: Mapping[str, Metric]
    baseline_w: tuple[float, ...]
    measured: tuple[CapCosts, ...]
    predicted: tuple[CapCosts, ...] = ()
    kept: CapCosts | None = None
    front: Floats


def of_run(summary: Summary, events: Sequence[Event]) -> Curve | None:
    """The curve of a run; `None` before its baseline was measured."""
    if summary.baseline is None:
        return None
    metrics = with_own(metric_of(summary.metric))
    common = [one for one in measured_trials(events) if len(set(one.measurement.cap_w)) == 1]  # a cap per GPU is off it
    predicted = last_of(Predicted, events)
    return Curve(
        name="",
        metrics=metrics,
        baseline_w=summary.baseline.cap_w,
        measured=costs_by_cap(common, summary.baseline, metrics),
        predicted=costs_predicted(predicted.caps if predicted else (), summary.baseline, metrics),
        kept=_kept(summary),
        front=front_of(summary.pareto),
    )


def with_own(metric: Metric) -> dict[str, Metric]:
    """The metrics that every report has, and the one that was asked for."""
    name = metric.name if metric.k is None else f"eds_{metric.k:g}"
    return dict(METRICS) if name in METRICS else {**METRICS, name: metric}


def front_of(points: Sequence[ParetoPoint]) -> Floats:
    """Time and energy of a Pareto front, by rising time, shape (n, 2)."""
    return np.array(sorted((point.time, point.energy) for point in points), dtype=np.float64).reshape(-1, 2)


def title(name: str) -> str:
    """A metric's name as the papers write it."""
    if name.startswith("eds_"):
        return f"EDS({name.removeprefix('eds_')})"
    return {"edp": "EDP", "ed2p": "ED²P"}.get(name, name)


def _kept(summary: Summary) -> CapCosts | None:
    versus = summary.versus_baseline
    if summary.chosen is None or versus is None or versus.energy_pct is None or versus.time_pct is None:
        return None
    return CapCosts(
        cap_w=summary.chosen.cap_w,
        costs={
            ENERGY: _ratio(versus.energy_pct, versus.energy_stderr_pct),
            TIME: _ratio(versus.time_pct, versus.time_stderr_pct),
        },
    )


def _ratio(change_pct: float, stderr_pct: float | None) -> Cost:
    return Cost(value=1 + change_pct / 100, stderr=np.nan if stderr_pct is None else stderr_pct / 100)
