"""Events in, Summary out: what a run came to, whether it ended, was killed, or still goes on."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TypeVar

from autocap.errors import RunDirectoryError
from autocap.events import (
    BaselineMeasured,
    Decided,
    DeviceFound,
    Event,
    IdleEstimated,
    LimitRestored,
    MetricInfo,
    NodeMetered,
    Predicted,
    ProgressFound,
    Remembered,
    RunEnded,
    RunStarted,
    SettingsTaken,
    State,
    StateEntered,
    Tally,
    TrialEnded,
    Warned,
)
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.events.settled import settled
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import Metric, Rates
from autocap.records import Cost, Measurement, Trial, TrialState
from autocap.reports.summary.baselines import claims, comparable, reference, tuned_anew, with_baselines
from autocap.reports.summary.books import books, in_force
from autocap.reports.summary.gains import (
    Measured,
    best_by_gpus,
    best_by_metric,
    break_even_s,
    changes_pct,
    net,
    pareto,
    relative_to,
)
from autocap.reports.summary.record import (
    ESTIMATED,
    GIVEN,
    ChosenSummary,
    DeviceSummary,
    GpuSummary,
    NodeSummary,
    ProgressSummary,
    RememberedSummary,
    StandardEnergy,
    StateSpan,
    StrategySummary,
    Summary,
    Totals,
    TrialSummary,
    VersusBaseline,
    VersusCommon,
)


def node_summary(
    metered: NodeMetered | None,
    estimated: IdleEstimated | None,
    baseline: Measurement | None,
    kept: Measurement | None,
) -> NodeSummary | None:
    """The summary of the machine; `None` where only the GPUs count. kept: the cap that was kept, as measured."""
    if metered is None:
        return None
    idle_w, source, seen_s = metered.idle_w, GIVEN, None
    if idle_w is None and estimated is not None:
        idle_w, source, seen_s = estimated.power_w, ESTIMATED, estimated.seen_s
    standard: tuple[StandardEnergy, ...] = ()
    counted = baseline is not None and not baseline.is_relative
    if idle_w is not None and metered.standard_idle_w is not None and counted:
        excess_w = idle_w - metered.standard_idle_w
        standard = tuple(standardised(one, excess_w) for one in (baseline, kept) if one is not None)
    return NodeSummary(
        source=metered.source,
        whole=metered.whole,
        refresh_s=metered.refresh_s,
        idle_w=idle_w,
        idle_source=None if idle_w is None else source,
        idle_seen_s=seen_s,
        idle_share=idle_w / baseline.power_w if idle_w is not None and baseline is not None else None,
        standard_idle_w=metered.standard_idle_w,
        standard=standard,
    )


def standardised(measurement: Measurement, excess_w: float) -> StandardEnergy:
    """Energy per iteration without what the machine draws at rest beyond another, e - excess_w * t.

    excess_w: the idle power of this machine less that of the other, watts. As Tripp et al. 2024 (BUTTER-E, section 4)
    standardise the energy of runs on different nodes; errors to first order.
    """
    energy_j, seconds = measurement.energy_per_iteration_j, measurement.period_s
    error_j = energy_j * measurement.energy_rel_stderr
    shift_j = excess_w * seconds * measurement.period_rel_stderr
    variance = error_j**2 + shift_j**2 - 2 * measurement.time_energy_corr * error_j * shift_j
    return StandardEnergy(
        setting=measurement.setting,
        energy_per_iteration_j=energy_j - excess_w * seconds,
        stderr_j=math.sqrt(max(0.0, variance)),
    )


UNFINISHED = "killed or still running"
_E = TypeVar("_E")


def summarise(events: Sequence[Event]) -> Summary:
    """The summary of a run's events, oldest first; the run need not have ended.

    `baseline` is the first one measured. `versus_baseline` compares with the last decision's interleaved windows,
    or with the last baseline measured where there was none; nothing net is claimed of a job that was tuned anew, or of
    one that in the end kept no cap: what it shows against the baseline is mostly how the machine has drifted. Raises
    RunDirectoryError where not even the start of the run is there.
    """
    events = settled(events)
    started = last_of(RunStarted, events)
    if started is None:
        raise RunDirectoryError("the run has no start on record: it was killed before its first event was written")
    ended = last_of(RunEnded, events)
    taken = last_of(SettingsTaken, events)
    baseline = next((event.measurement for event in all_of(BaselineMeasured, events)), None)
    progress, decided = last_of(ProgressFound, events), last_of(Decided, events)
    measured, predicted = measured_trials(events), last_of(Predicted, events)
    expected = predicted.caps if predicted else ()
    chosen, since_s = _kept_last(events, _device_count(events))
    kept = chosen.measurement if chosen else None
    rates = _rates(started)
    metric = in_force(metric_of(started.metric), events, rates)
    node = node_summary(last_of(NodeMetered, events), last_of(IdleEstimated, events), baseline, kept)
    return Summary(
        autocap_version=started.autocap_version,
        mode=started.mode,
        command=started.command,
        pid=started.pid,
        started_at=started.started_at,
        ended_because=ended.ended_because if ended else UNFINISHED,
        device=_device(events),
        knob=knob_of(events),
        metric=started.metric,
        rates=rates,
        strategy=StrategySummary(name=started.strategy, options=started.strategy_options),
        progress=ProgressSummary(kind=progress.kind, confidence=progress.confidence) if progress else None,
        baseline=baseline,
        trials=tuple(_trials(events)),
        chosen=chosen,
        decided_because=decided.reason if decided else None,
        best_by_metric=best_by_metric(measured, baseline, expected) if baseline else (),
        pareto=pareto(measured, baseline, expected) if baseline else (),
        totals=_totals(last_of(Tally, events)),
        versus_baseline=_versus(metric, chosen, since_s, events),
        versus_common=_versus_common(metric, events),
        states=_states(events),
        warnings=tuple(event.text for event in all_of(Warned, events)),
        node=node,
        best_by_metric_gpu=best_by_gpus(measured, baseline) if baseline and node else (),
        settings=taken.settings if taken else (),
        remembered=_remembered(last_of(Remembered, events)),
        books=books(events, rates, metric, comparable(events, chosen), measured, expected),
    )


def _remembered(event: Remembered | None) -> RememberedSummary | None:
    if event is None:
        return None
    return RememberedSummary(key=event.key, runs=event.runs, age_s=event.age_s, setting=event.setting)


def _rates(started: RunStarted) -> Rates:
    """As they were given; a run that minimised money was told its price, also by an autocap that kept no rates."""
    if started.rates.energy_price is not None or started.metric.name != "cost":
        return started.rates
    return replace(started.rates, energy_price=started.metric.energy_price)


def all_of(kind: type[_E], events: Sequence[Event]) -> list[_E]:
    """The events of a kind, in their order."""
    return [event for event in events if isinstance(event, kind)]


def last_of(kind: type[_E], events: Sequence[Event]) -> _E | None:
    """The last event of a kind; `None` where there is none."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def knob_of(events: Sequence[Event]) -> Knob:
    """What a run turns, as far as it has come."""
    found = last_of(DeviceFound, events)
    return POWER_LIMIT if found is None else found.knob


def _device_count(events: Sequence[Event]) -> int:
    found = last_of(DeviceFound, events)
    return len(found.gpus) if found else 1


def _device(events: Sequence[Event]) -> DeviceSummary | None:
    found = last_of(DeviceFound, events)
    if found is None:
        return None
    restored = {event.uuid: event for event in all_of(LimitRestored, events)}
    gpus = tuple(
        GpuSummary(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            cap_min_w=gpu.cap_range.min_w,
            cap_max_w=gpu.cap_range.max_w,
            cap_default_w=gpu.cap_range.default_w,
            cap_original_w=original_w,
            cap_final_w=restored[gpu.uuid].final if gpu.uuid in restored else None,
            restored=restored[gpu.uuid].restored if gpu.uuid in restored else False,
            node=gpu.node,
        )
        for gpu, original_w in zip(found.gpus, found.original, strict=True)
    )
    return DeviceSummary(kind=found.kind, emulated=found.emulated, gpus=gpus)


def _trials(events: Sequence[Event]) -> Iterator[TrialSummary]:
    """Those of common caps and those of caps per GPU, oldest first."""
    devices = _device_count(events)
    for event, baseline in with_baselines(events):
        if isinstance(event, TrialEnded):
            trial: Trial | PerGpuTried = event.trial
            measured, state = trial.measurement, event.trial.state
            setting = measured.setting if measured else (event.trial.setting,) * devices
        elif isinstance(event, PerGpuTried):
            trial, setting, state = event, event.setting, TrialState.COMPLETE
        else:
            continue
        window = trial.measurement
        energy_pct, time_pct = changes_pct(window, baseline) if window and baseline else (None, None)
        yield TrialSummary(
            setting=setting,
            state=state,
            reason=trial.reason,
            cost=trial.cost,
            cost_stderr=trial.cost_stderr,
            energy_pct=energy_pct,
            time_pct=time_pct,
            measurement=trial.measurement,
        )


def measured_trials(events: Sequence[Event]) -> list[Measured]:
    """The trials that were measured, each with the baseline that it is held against."""
    measured = []
    begun_s = [event.t_s for event in all_of(StateEntered, events) if event.state is State.BASELINE]
    for event, baseline in with_baselines(events):
        if isinstance(event, BaselineMeasured) or baseline is None:
            continue
        measurement = event.measurement if isinstance(event, PerGpuTried) else event.trial.measurement
        if measurement:
            search = bisect_right(begun_s, event.t_s)
            measured.append(Measured(measurement=measurement, baseline=baseline, search=search))
    return measured


def _kept_last(events: Sequence[Event], devices: int) -> tuple[ChosenSummary | None, float]:
    """The caps that the last decision keeps, and since when they are held, seconds; `None` where the limits found on
    arrival are put back. devices: how many there are.
    """
    chosen, since_s = None, 0.0
    for event in events:
        if isinstance(event, Decided):
            measured = event.measurement
            settings = None if event.setting is None else measured.setting if measured else (event.setting,) * devices
            since_s, chosen = event.t_s, None
            if settings is not None:
                chosen = ChosenSummary(
                    setting=settings, confirmed=event.confirmed, measurement=measured, knob=knob_of(events)
                )
        elif isinstance(event, PerGpuDecided) and event.kept and chosen is not None:
            chosen, since_s = replace(chosen, setting=event.setting, measurement=event.as_confirmed), event.t_s
    return chosen, since_s


def _last_per_gpu(events: Sequence[Event]) -> PerGpuDecided | None:
    """The end of the last search for a cap per GPU, unless the job has been tuned anew since, or no cap is kept."""
    last: PerGpuDecided | None = None
    for event in events:
        if isinstance(event, PerGpuDecided):
            last = event
        elif (isinstance(event, StateEntered) and event.state is State.BASELINE) or (
            isinstance(event, Decided) and event.setting is None
        ):
            last = None
    return last


def _totals(tally: Tally | None) -> Totals | None:
    if tally is None:
        return None
    return Totals(
        wall_s=tally.elapsed_s,
        energy_j=tally.energy_j,
        iterations=tally.iterations,
        exploration_s=tally.exploration_s,
        exploration_energy_j=tally.exploration_energy_j,
    )


def _versus(
    metric: Metric, chosen: ChosenSummary | None, since_s: float, events: Sequence[Event]
) -> VersusBaseline | None:
    """since_s: when the chosen cap began to be held."""
    tally, anew = last_of(Tally, events), tuned_anew(events)
    base = reference(events)
    if base is None:
        return None
    kept = chosen.measurement if chosen else None
    baselines = [event.measurement for event in all_of(BaselineMeasured, events)]
    energy, time, cost = relative_to(kept, base, metric) if kept else (None, None, None)
    of_gpus = relative_to(kept.of_gpus(), base.of_gpus(), metric)[0] if kept and kept.gpu else None
    extra, whole = (claims(events, chosen) and tally and net(tally, base, metric, baselines)) or (None, None)
    paid_back_s = break_even_s(tally, kept, base, metric, since_s) if tally and kept and not anew else None
    return VersusBaseline(
        **in_percent(energy=energy, time=time, metric=cost, net_metric=whole, gpu_energy=of_gpus),
        net_energy_j=None if extra is None else extra.value,
        net_energy_stderr_j=None if extra is None else extra.stderr,
        break_even_s=paid_back_s,
    )


def _versus_common(metric: Metric, events: Sequence[Event]) -> VersusCommon | None:
    last = _last_per_gpu(events)
    if last is None:
        return None
    energy, time, cost = None, None, None
    if last.measurement and last.common:
        energy, time, cost = relative_to(last.measurement, last.common, metric)
    changes = in_percent(energy=energy, time=time, metric=cost)
    return VersusCommon(setting=last.setting, kept=last.kept, reason=last.reason, **changes)


def in_percent(**ratios: Cost | None) -> dict[str, float | None]:
    """Each ratio as a change in percent, and its error."""
    found: dict[str, float | None] = {}
    for name, ratio in ratios.items():
        found[f"{name}_pct"] = None if ratio is None else 100 * (ratio.value - 1)
        found[f"{name}_stderr_pct"] = None if ratio is None else 100 * ratio.stderr
    return found


def metric_of(info: MetricInfo) -> Metric:
    """The metric that a run minimised. Raises RunDirectoryError for one that this version does not know."""
    try:
        return Metric(**asdict(info))
    except ValueError as error:
        raise RunDirectoryError(
            "the run's metric is not one that this autocap can use; read it with a newer one"
        ) from error


def metric_in(summary: Summary) -> Metric:
    """The same, at the mean of what a kWh cost or emitted over the run where it counts that. Raises as `metric_of`."""
    metric, known = metric_of(summary.metric), summary.books
    value = None if known is None else known.price if metric.name == "cost" else known.carbon
    return metric.at(value) if metric.moving and value is not None else metric


def _states(events: Sequence[Event]) -> tuple[StateSpan, ...]:
    """Each state until the next; the last one until the last event."""
    entered = [(event.state.value, event.t_s) for event in all_of(StateEntered, events)]
    ends = [*entered, ("", events[-1].t_s)]
    return tuple(StateSpan(name=name, start_s=start, end_s=end) for (name, start), (_, end) in pairwise(ends))
