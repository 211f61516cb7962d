"""What a run directory, or the memory, holds of a job: its baseline, and its curve over the caps that were tried."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autocap.errors import RunDirectoryError
from autocap.events import Event, TrialEnded, record_kind
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import NO_RATES, Metric, Rates
from autocap.plugins.predict.cards import Card, card_of
from autocap.plugins.predict.rule import Curve
from autocap.records import Measurement, TrialState
from autocap.reports.summary.baselines import with_baselines
from autocap.reports.summary.summarise import metric_of, summarise
from autocap.runlog.memory.store import SHOWN_DIGITS, Entry
from autocap.sweep import summary as sweeps

_AT_DEFAULT = 0.03  # of the default limit: how near it the baseline's has to be
_MOST_DRAW = 1.5  # of the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A job on one card, or on several that are alike.

    name: as its driver has it. card: `None` where nothing is known of it. default_w, min_w: limits of each, watts;
    min_w is `None` where it is not known.
    period_s: of an iteration at the default limit, `None` where iterations were not counted; power_w: of each card.
    error: largest relative standard error of what was measured; infinite is unknown, as of single runs. curve: `None`
    without a cap below the default limit. metric: the run's own. emulated: power is modelled. rates: what a
    kWh cost, as a mean where that moved. per: of what time, energy and cost are: an iteration, or a run of a sweep.
    """

    name: str
    card: Card | None
    count: int
    default_w: float
    min_w: float | None
    period_s: float | None
    power_w: float
    error: float
    curve: Curve | None
    metric: Metric
    emulated: bool
    rates: Rates = NO_RATES
    per: str = "iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    name: str
    default_w: float
    min_w: float | None


def measured(directory: Path, events: Sequence[Event]) -> Measured:
    """Raises RunDirectoryError for a record from which nothing can be told of other cards, with the reason."""
    kind = record_kind(events)
    if kind == "sweep":
        return _of_sweep(directory, events)
    if kind != "run":
        raise RunDirectoryError(f"{directory} is a {kind}, which has no curve of a job; give a run or a sweep")
    summary = summarise(events)
    _require_power_limits(str(directory), summary.knob)
    if summary.device is None or summary.baseline is None:
        raise RunDirectoryError(
            f"{directory} has no baseline, so nothing is known of the job at its default limit; give a run that has "
            "measured one"
        )
    devices = [_Device(name=gpu.name, default_w=gpu.cap_default_w, min_w=gpu.cap_min_w) for gpu in summary.device.gpus]
    metric, rates, books = metric_of(summary.metric), summary.rates, summary.books
    if rates.energy_price is None and books is not None:
        rates = Rates(energy_price=books.price, currency=books.currency)
    trials = list(_trials(events))
    return _measured(str(directory), devices, summary.baseline.of_gpus(), trials, metric, summary.emulated, rates)


def _require_power_limits(what: str, knob: Knob) -> None:
    if knob != POWER_LIMIT:
        raise RunDirectoryError(
            f"{what} turned {knob.name}, and only power limits can be compared between cards; give a run that turned "
            "them"
        )


def remembered(entry: Entry) -> Measured:
    """The same of a job that is remembered, whose cards' own limits are not: they are those of the known card. Raises
    RunDirectoryError."""
    what, names = f"job {entry.key[:SHOWN_DIGITS]}", entry.setup.gpus
    _require_power_limits(what, entry.setup.turned)
    card = card_of(names[0])
    if card is None:
        raise RunDirectoryError(
            f"{what} ran on {names[0]}, of which nothing is known, and no default limit is remembered; give the "
            "directory of a run"
        )
    devices = [_Device(name=name, default_w=card.default_w, min_w=card.min_w) for name in names]
    latest = entry.latest
    alike = [
        curve
        for curve in entry.curves
        if (curve.progress, curve.baseline.setting) == (latest.progress, latest.baseline.setting)
    ]
    trials = [(point.measurement.of_gpus(), curve.baseline.of_gpus()) for curve in alike for point in curve.points]
    metric = metric_of(latest.metric)
    return _measured(what, devices, latest.baseline.of_gpus(), trials, metric, entry.setup.emulated, _told(metric))


def _told(metric: Metric) -> Rates:
    """What a kWh costs, of records that keep it with the metric alone."""
    return Rates(energy_price=metric.energy_price) if metric.name == "cost" else NO_RATES


def _trials(events: Sequence[Event]) -> Iterator[tuple[Measurement, Measurement]]:
    """Every trial that counts, with the baseline of its time; of the devices alone."""
    for event, baseline in with_baselines(events):
        if isinstance(event, TrialEnded) and event.trial.state is TrialState.COMPLETE and baseline is not None:
            found = event.trial.measurement
            if found is not None and found.valid:
                yield found.of_gpus(), baseline.of_gpus()


def _of_sweep(directory: Path, events: Sequence[Event]) -> Measured:
    summary = sweeps.summarise(events)
    panel = next((panel for panel in summary.panels if panel.rows), None)
    if panel is None:
        raise RunDirectoryError(f"{directory} has no finished run; give a sweep that has measured some caps")
    devices = [
        _Device(name=gpu.name, default_w=gpu.cap_range.default_w, min_w=gpu.cap_range.min_w) for gpu in panel.gpus.gpus
    ]
    rows = [row.measurement.of_gpus() for row in panel.rows]
    baseline = max(rows, key=lambda row: row.setting[0])
    metric = metric_of(summary.metric)
    trials = [(row, baseline) for row in rows]
    found = _measured(str(directory), devices, baseline, trials, metric, summary.plan.emulated, _told(metric))
    return replace(found, per="run")


def _measured(
    what: str,
    devices: Sequence[_Device],
    baseline: Measurement,
    trials: Sequence[tuple[Measurement, Measurement]],
    metric: Metric,
    emulated: bool,
    rates: Rates,
) -> Measured:
    first = devices[0]
    if any(one != first for one in devices):
        raise RunDirectoryError(f"{what} is of different devices, whose shares are not known; give a run on one")
    if any(abs(cap_w / first.default_w - 1) > _AT_DEFAULT for cap_w in baseline.setting):
        raise RunDirectoryError(
            f"the baseline of {what} was at {baseline.setting[0]:g} W and the default limit is "
            f"{first.default_w:g} W; give a run that began at the default limit"
        )
    count = len(devices)
    power_w = baseline.power_w / count
    if not 0 < power_w <= _MOST_DRAW * first.default_w:
        raise RunDirectoryError(
            f"{what} has a baseline of {power_w:g} W a device under a limit of {first.default_w:g} W, which "
            "no card can have drawn; give another run"
        )
    return Measured(
        name=first.name,
        card=card_of(first.name),
        count=count,
        default_w=first.default_w,
        min_w=first.min_w,
        period_s=None if baseline.is_relative else baseline.period_s,
        power_w=power_w,
        error=max(max(one.period_rel_stderr, one.energy_rel_stderr) for one in (baseline, *(one for one, _ in trials))),
        curve=_curve(first.default_w, power_w / first.default_w, trials),
        metric=metric,
        emulated=emulated,
        rates=rates,
    )


def _curve(default_w: float, draw: float, trials: Sequence[tuple[Measurement, Measurement]]) -> Curve | None:
    """Means by cap, of those below the default limit that are the same for all devices; `None` without any."""
    rows = defaultdict[float, list[tuple[float, float]]](list)
    for one, baseline in trials:
        share = one.setting[0] / default_w
        drawn = min(one.power_w, baseline.power_w) > 0
        if drawn and len(set(one.setting)) == 1 and share < 1 - _AT_DEFAULT:
            rows[share].append((one.power_w / baseline.power_w, one.period_s / baseline.period_s))
    if not rows:
        return None
    shares = sorted(rows)
    power, time = np.array([np.mean(rows[share], axis=0) for share in shares]).T
    return Curve(share=np.array([*shares, 1.0]), power=np.array([*power, 1.0]), time=np.array([*time, 1.0]), draw=draw)
