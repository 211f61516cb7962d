"""Events in, Summary out: what a run came to, whether it ended, was killed, or still goes on."""

from collections.abc import Sequence
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
    RunEnded,
    RunStarted,
    State,
    StateEntered,
    Tally,
    TrialEnded,
    Warned,
)
from autocap.events.search import PerGpuTried
from autocap.metrics import Metric
from autocap.records import Cost, Measurement, Trial, TrialState
from autocap.reports.summary.gains import Measured, best_by_gpus, best_by_metric, break_even_s, net, pareto, relative_to
from autocap.reports.summary.kept import Kept, kept_last, last_per_gpu
from autocap.reports.summary.node import node_summary
from autocap.reports.summary.record import (
    ChosenSummary,
    DeviceSummary,
    GpuSummary,
    ProgressSummary,
    StateSpan,
    StrategySummary,
    Summary,
    Totals,
    TrialSummary,
    VersusBaseline,
    VersusCommon,
)

UNFINISHED = "killed or still running"
_E = TypeVar("_E")


def summarise(events: Sequence[Event]) -> Summary:
    """The summary of a run's events, oldest first; the run need not have ended.

    `baseline` is the first one measured. `versus_baseline` compares with the last decision's interleaved windows,
    or with the last baseline measured where there was none; nothing net is claimed of a job that was tuned
    anew. Raises RunDirectoryError where not even the start of the run is there.
    """
    started = _last(RunStarted, events)
    if started is None:
        raise RunDirectoryError("the run has no start on record: it was killed before its first event was written")
    ended = _last(RunEnded, events)
    baselines = [event.measurement for event in _all(BaselineMeasured, events)]
    baseline = baselines[0] if baselines else None
    progress = _last(ProgressFound, events)
    measured, predicted = measured_trials(events), _last(Predicted, events)
    hoped = predicted.caps if predicted else ()
    decided = _last(Decided, events)
    kept = kept_last(events, _device_count(events))
    node = node_summary(
        _last(NodeMetered, events), _last(IdleEstimated, events), baseline, kept.measurement if kept else None
    )
    return Summary(
        autocap_version=started.autocap_version,
        mode=started.mode,
        command=started.command,
        pid=started.pid,
        started_at=started.started_at,
        ended_because=ended.ended_because if ended else UNFINISHED,
        device=_device(events),
        metric=started.metric,
        strategy=StrategySummary(name=started.strategy, options=started.strategy_options),
        progress=ProgressSummary(kind=progress.kind, confidence=progress.confidence) if progress else None,
        baseline=baseline,
        trials=_trials(events),
        chosen=_chosen(kept),
        best_by_metric=best_by_metric(measured, baseline, hoped) if baseline else (),
        pareto=pareto(measured, baseline, hoped) if baseline else (),
        totals=_totals(_last(Tally, events)),
        versus_baseline=_versus(started.metric, decided, kept, baselines, events),
        versus_common=_versus_common(started.metric, events),
        states=_states(events),
        warnings=tuple(event.text for event in _all(Warned, events)),
        node=node,
        best_by_metric_gpu=best_by_gpus(measured, baseline) if baseline and node else (),
    )


def _all(kind: type[_E], events: Sequence[Event]) -> list[_E]:
    return [event for event in events if isinstance(event, kind)]


def _last(kind: type[_E], events: Sequence[Event]) -> _E | None:
    return next((event for event in reversed(events) if isinstance(event, kind)), None)


def _device_count(events: Sequence[Event]) -> int:
    found = _last(DeviceFound, events)
    return len(found.gpus) if found else 1


def _device(events: Sequence[Event]) -> DeviceSummary | None:
    found = _last(DeviceFound, events)
    if found is None:
        return None
    restored = {event.uuid: event for event in _all(LimitRestored, events)}
    gpus = tuple(
        GpuSummary(
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            cap_min_w=gpu.cap_range.min_w,
            cap_max_w=gpu.cap_range.max_w,
            cap_default_w=gpu.cap_range.default_w,
            cap_original_w=original_w,
            cap_final_w=restored[gpu.uuid].final_w if gpu.uuid in restored else None,
            restored=gpu.uuid in restored and restored[gpu.uuid].restored,
        )
        for gpu, original_w in zip(found.gpus, found.original_w, strict=True)
    )
    return DeviceSummary(kind=found.kind, emulated=found.emulated, gpus=gpus)


def _trials(events: Sequence[Event]) -> tuple[TrialSummary, ...]:
    """Those of common caps and those of caps per GPU, oldest first."""
    devices, found = _device_count(events), []
    for event in events:
        if isinstance(event, TrialEnded):
            found.append(_trial(event.trial, devices))
        elif isinstance(event, PerGpuTried):
            found.append(
                TrialSummary(
                    cap_w=event.cap_w,
                    state=TrialState.COMPLETE,
                    reason=event.reason,
                    cost=event.cost,
                    cost_stderr=event.cost_stderr,
                    measurement=event.measurement,
                )
            )
    return tuple(found)


def _trial(trial: Trial, devices: int) -> TrialSummary:
    return TrialSummary(
        cap_w=trial.measurement.cap_w if trial.measurement else (trial.cap_w,) * devices,
        state=trial.state,
        reason=trial.reason,
        cost=trial.cost,
        cost_stderr=trial.cost_stderr,
        measurement=trial.measurement,
    )


def measured_trials(events: Sequence[Event]) -> list[Measured]:
    """The trials that were measured, each with the baseline that it is held against: the latest before it."""
    measured = []
    baseline: Measurement | None = None
    confirmed: Measurement | None = None
    for event in events:
        if isinstance(event, BaselineMeasured):
            baseline = event.measurement
        elif isinstance(event, Decided) and event.baseline:
            confirmed = event.baseline
        elif isinstance(event, PerGpuTried) and event.measurement and confirmed:
            measured.append(Measured(measurement=event.measurement, baseline=confirmed))
        elif isinstance(event, TrialEnded) and event.trial.measurement and baseline:
            measured.append(Measured(measurement=event.trial.measurement, baseline=baseline))
    return measured


def _chosen(kept: Kept | None) -> ChosenSummary | None:
    if kept is None:
        return None
    return ChosenSummary(cap_w=kept.cap_w, confirmed=kept.confirmed, measurement=kept.measurement)


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
    info: MetricInfo,
    decided: Decided | None,
    held: Kept | None,
    baselines: Sequence[Measurement],
    events: Sequence[Event],
) -> VersusBaseline | None:
    tally, anew = _last(Tally, events), _tuned_anew(events)
    reference = (decided.baseline if decided else None) or (baselines[-1] if baselines else None)
    if reference is None:
        return None
    metric = metric_of(info)
    kept = held.measurement if held else None
    energy, time, cost = relative_to(kept, reference, metric) if kept else (None, None, None)
    of_gpus = relative_to(kept.of_gpus(), reference.of_gpus(), metric)[0] if kept and kept.gpu else None
    # Where it was tuned anew, what the iterations before would have cost at the baseline is not known.
    whole = net(tally, reference, metric) if tally and not anew else None
    paid_back_s = None
    if tally and held and kept and not anew:
        paid_back_s = break_even_s(tally, kept, reference, metric, search_end_s=held.t_s)
    return VersusBaseline(
        **_changes(energy, time, cost),
        net_energy_j=whole[0] if whole else None,
        net_metric_pct=_change_pct(whole[1] if whole else None),
        net_metric_stderr_pct=_stderr_pct(whole[1] if whole else None),
        break_even_s=paid_back_s,
        gpu_energy_pct=_change_pct(of_gpus),
        gpu_energy_stderr_pct=_stderr_pct(of_gpus),
    )


def _versus_common(info: MetricInfo, events: Sequence[Event]) -> VersusCommon | None:
    last = last_per_gpu(events)
    if last is None:
        return None
    energy, time, cost = None, None, None
    if last.measurement and last.common:
        energy, time, cost = relative_to(last.measurement, last.common, metric_of(info))
    return VersusCommon(
        cap_w=last.cap_w,
        kept=last.kept,
        reason=last.reason,
        **_changes(energy, time, cost),
    )


def _changes(energy: Cost | None, time: Cost | None, cost: Cost | None) -> dict[str, float | None]:
    """The fields of `Changes`, from ratios."""
    return {
        "energy_pct": _change_pct(energy),
        "energy_stderr_pct": _stderr_pct(energy),
        "time_pct": _change_pct(time),
        "time_stderr_pct": _stderr_pct(time),
        "metric_pct": _change_pct(cost),
        "metric_stderr_pct": _stderr_pct(cost),
    }


def _tuned_anew(events: Sequence[Event]) -> bool:
    """Whether a baseline was begun again after a search."""
    states = [event.state for event in _all(StateEntered, events)]
    return State.SEARCHING in states and State.BASELINE in states[states.index(State.SEARCHING) :]


def metric_of(info: MetricInfo) -> Metric:
    """The metric that a run minimised. Raises RunDirectoryError for one that this version does not know."""
    try:
        return Metric(
            name=info.name,
            k=info.k,
            energy_price=info.energy_price,
            hour_price=info.hour_price,
            max_slowdown=info.max_slowdown,
        )
    except ValueError as error:
        raise RunDirectoryError(f"the run's metric cannot be used: {error}; read it with a newer autocap") from error


def _change_pct(ratio: Cost | None) -> float | None:
    return None if ratio is None else 100 * (ratio.value - 1)


def _stderr_pct(ratio: Cost | None) -> float | None:
    return None if ratio is None else 100 * ratio.stderr


def _states(events: Sequence[Event]) -> tuple[StateSpan, ...]:
    """Each state until the next; the last one until the last event."""
    entered = [(event.state.value, event.t_s) for event in _all(StateEntered, events)]
    ends = [*entered, ("", events[-1].t_s)]
    return tuple(StateSpan(name=name, start_s=start, end_s=end) for (name, start), (_, end) in pairwise(ends))
