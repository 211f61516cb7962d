"""What the measured caps are worth: the best by each metric, the Pareto front, the gain over the baseline, net of the
search.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autocap.events import Tally
from autocap.measurement import stats
from autocap.measurement.batches import as_at
from autocap.metrics import Metric, ratios
from autocap.records import CAP_W, Cost, Measurement, Prediction
from autocap.reports.summary.record import MEASURED, PREDICTED, BestCap, ParetoPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A window of one cap, and the baseline that held at its time. search: of several in a run, between which the job
    may have become another one."""

    measurement: Measurement
    baseline: Measurement
    search: int = 0


def as_repeats_scatter(measured: Sequence[Measured]) -> list[Measured]:
    """The same, with errors by which windows of the same caps in the same search agree. Where other work comes and
    goes, a window says nothing of what the next one meets, and those that were never repeated are known no better."""
    beside: dict[int, tuple[int, Measurement]] = {id(row.baseline): (row.search, row.baseline) for row in measured}
    groups: dict[tuple[int, tuple[float, ...]], list[Measurement]] = {}
    for search, one in (*((row.search, row.measurement) for row in measured), *beside.values()):
        groups.setdefault((search, one.setting), []).append(one)
    time = stats.between([([one.period_s for one in some], [one.period_rel_stderr for one in some])
                            for some in groups.values()])  # fmt: skip
    energy = stats.between([([one.energy_per_iteration_j for one in some], [one.energy_rel_stderr for one in some])
                              for some in groups.values()])  # fmt: skip
    if max(time, energy) == 0:
        return list(measured)

    def wider(one: Measurement) -> Measurement:
        return _like(one, one, *map(math.hypot, _errors(one), (time, energy)))

    wide = {key: wider(one) for key, (_, one) in beside.items()}
    return [replace(row, measurement=wider(row.measurement), baseline=wide[id(row.baseline)]) for row in measured]


def together(rows: Sequence[Measured], baseline: Measurement) -> Measured:
    """The windows of a cap as at a baseline. Those that were held against the same one come first: its error is in all
    of them alike. Then these, each with its own baseline's error. Time and energy count by the same weights, or metrics
    that are made of both would contradict them."""
    beside: dict[int, list[Measured]] = {}
    for row in rows:
        beside.setdefault(id(row.baseline), []).append(row)
    baselines = [some[0].baseline for some in beside.values()]
    groups = [_mean([as_at(one.measurement, one.baseline, baseline) for one in some]) for some in beside.values()]
    if len(groups) == 1:
        return Measured(measurement=groups[0], baseline=_like(baseline, baselines[0], *_errors(baselines[0])))
    whole = [
        _like(one, one, *map(math.hypot, _errors(one), _errors(base)))
        for one, base in zip(groups, baselines, strict=True)
    ]
    counts, mean = _counts(whole), _mean(whole)
    common = [math.hypot(*map(_times, counts, errors)) for errors in zip(*map(_errors, baselines), strict=True)]
    own = [math.sqrt(max(0.0, all_of_it**2 - part**2)) for all_of_it, part in zip(_errors(mean), common, strict=True)]
    return Measured(measurement=_like(mean, mean, *own), baseline=_like(baseline, baselines[-1], *common))


def _mean(windows: Sequence[Measurement]) -> Measurement:
    """Several windows of a cap, as at the same baseline, as one; the error that all of them share stays."""
    if len(windows) == 1:
        return windows[0]
    counts, shared = _counts(windows), max(one.proxy_rel_stderr or 0.0 for one in windows)

    def error(values: Sequence[float], stated: Sequence[float]) -> float:
        own = [math.sqrt(max(0.0, one**2 - shared**2)) if shared else one for one in stated]
        return math.hypot(stats.rel_stderr(values, own, counts), shared)

    times, energies = [one.period_s for one in windows], [one.energy_per_iteration_j for one in windows]
    return replace(
        windows[-1],
        period_s=stats.mean(times, counts),
        period_rel_stderr=error(times, [one.period_rel_stderr for one in windows]),
        energy_per_iteration_j=stats.mean(energies, counts),
        energy_rel_stderr=error(energies, [one.energy_rel_stderr for one in windows]),
        time_energy_corr=stats.mean([one.time_energy_corr for one in windows], counts),
    )


def _counts(windows: Sequence[Measurement]) -> tuple[float, ...]:
    return stats.weights([math.hypot(*_errors(one)) for one in windows])


def _errors(one: Measurement) -> tuple[float, float]:
    """Of time and energy, relative."""
    return one.period_rel_stderr, one.energy_rel_stderr


def _times(count: float, error: float) -> float:
    return count * error if count else 0.0


def _like(one: Measurement, errors_of: Measurement, time: float, energy: float) -> Measurement:
    """The same with these errors, correlated as those of another one are."""
    correlation = errors_of.time_energy_corr
    return replace(one, period_rel_stderr=time, energy_rel_stderr=energy, time_energy_corr=correlation)


ENERGY, TIME = "energy", "time"
METRICS: Mapping[str, Metric] = {
    ENERGY: Metric(name="energy"),
    "edp": Metric(name="edp"),
    "ed2p": Metric(name="ed2p"),
    "eds_1.5": Metric(name="eds", k=1.5),
    "eds_2": Metric(name="eds", k=2.0),
}
_AT_BASELINE = Cost(value=1.0, stderr=0.0)
_OF_THE_FRONT = {ENERGY: METRICS[ENERGY]}
_LEAST_COUNTED = 0.8  # share of the run; with less of it counted, the rest may have been different
_LEAST = 1e-6  # iterations, joules or seconds; of less nothing can be said
_NEVER = 1e12  # iterations; no job is as long
_HALVINGS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CapCosts:
    """What one cap costs over the baseline: TIME and each metric asked for, by name."""

    setting: tuple[float, ...] = field(metadata=CAP_W)
    costs: Mapping[str, Cost]


def costs_by_cap(
    measured: Sequence[Measured], baseline: Measurement, metrics: Mapping[str, Metric]
) -> tuple[CapCosts, ...]:
    """Each measured cap, lowest first, its windows taken together, with the baseline's error; the baseline takes
    part."""
    at_baseline = dict.fromkeys((TIME, *metrics), _AT_BASELINE)
    found = [CapCosts(setting=baseline.setting, costs=at_baseline)]
    for setting, rows in _by_cap(as_repeats_scatter(measured), baseline).items():
        whole = together(rows, baseline)
        costs = {name: metric.versus(whole.measurement, whole.baseline) for name, metric in metrics.items()}
        time = ratios(whole.measurement, whole.baseline)[TIME]
        found.append(CapCosts(setting=setting, costs={TIME: time, **costs}))
    return tuple(sorted(found, key=lambda one: one.setting))


def costs_predicted(
    predicted: Sequence[Prediction], baseline: Measurement, metrics: Mapping[str, Metric]
) -> tuple[CapCosts, ...]:
    """The same for caps that were only predicted, lowest first."""
    return tuple(
        CapCosts(
            setting=(one.setting,) * len(baseline.setting),
            costs={
                TIME: Cost(value=one.time, stderr=one.time * one.period_rel_stderr),
                **{name: metric.predicted(one, baseline) for name, metric in metrics.items()},
            },
        )
        for one in sorted(predicted, key=lambda one: one.setting)
    )


def best_by_metric(
    measured: Sequence[Measured], baseline: Measurement, predicted: Sequence[Prediction] = ()
) -> tuple[BestCap, ...]:
    """The best cap by each metric of `METRICS`, without a limit on slowdown; the baseline takes part.

    A cap that was only predicted stands there if it is expected to be better than the best that was measured by more
    than the error of both together, which leaves out the baseline's.
    """
    rows = costs_by_cap(measured, baseline, METRICS)
    expected = costs_predicted(_unmeasured(measured, baseline, predicted), baseline, METRICS)
    found = []
    for name in METRICS:
        best = _lowest(name, rows, MEASURED)
        if expected:
            likely = _lowest(name, expected, PREDICTED)
            own = next(row.costs[name].own for row in rows if row.setting == best.setting)
            best = likely if likely.cost + math.hypot(likely.cost_stderr, own) < best.cost else best
        found.append(best)
    return tuple(found)


def best_by_gpus(measured: Sequence[Measured], baseline: Measurement) -> tuple[BestCap, ...]:
    """The same by the GPUs' own energy, where that of the whole machine was measured."""
    of_gpus = [Measured(measurement=one.measurement.of_gpus(), baseline=one.baseline.of_gpus()) for one in measured]
    return best_by_metric(of_gpus, baseline.of_gpus())


def pareto(
    measured: Sequence[Measured], baseline: Measurement, predicted: Sequence[Prediction] = ()
) -> tuple[ParetoPoint, ...]:
    """The caps, lowest first, that no other beats in both energy and time per iteration; the baseline takes part.

    What was measured is beaten by nothing that was not. A cap that was only predicted is among them if it differs from
    each of the others, in energy or time, by more than its own error: else it says no more than they do.
    """
    points = [_point(one, MEASURED) for one in costs_by_cap(measured, baseline, _OF_THE_FRONT)]
    front = _undominated(points)
    unmeasured = _unmeasured(measured, baseline, predicted)
    likely = [_point(one, PREDICTED) for one in costs_predicted(unmeasured, baseline, _OF_THE_FRONT)]
    for point in _undominated([*points, *likely]):
        if point.source == PREDICTED and all(_differs(point, one) for one in front):
            front.append(point)
    return tuple(sorted(front, key=lambda point: point.setting))


def relative_to(measurement: Measurement, baseline: Measurement, metric: Metric) -> tuple[Cost, Cost, Cost]:
    """Energy, time and metric of a measurement over the baseline's, errors of both included."""
    both = ratios(measurement, baseline)
    return both[ENERGY], both[TIME], metric.versus(measurement, baseline)


def changes_pct(measurement: Measurement, baseline: Measurement) -> tuple[float, float]:
    """Energy and time per iteration against the baseline's, percent."""
    return (
        100 * (measurement.energy_per_iteration_j / baseline.energy_per_iteration_j - 1),
        100 * (measurement.period_s / baseline.period_s - 1),
    )


def net(
    tally: Tally, baseline: Measurement, metric: Metric, baselines: Sequence[Measurement] = ()
) -> tuple[Cost, Cost] | None:
    """Joules spent beyond as many iterations at the baseline, and the metric of the whole run, both with the baseline's
    error, over the time in which iterations were counted, pauses left out; `None` where that is too little of the run
    to speak for it. baselines: all of the run; how far they are from this one is a part of the metric's error, as it
    shows how far the machine has drifted. Where a proxy stands for the iterations, the job may have made as many as
    without any cap, or as much fewer than were counted: two standard errors each way.
    """
    iterations = tally.iterations - tally.paused_iterations
    seconds, joules = tally.counted_s - tally.paused_s, tally.counted_j - tally.paused_j
    if min(iterations, joules, seconds) < _LEAST or tally.counted_s < _LEAST_COUNTED * tally.elapsed_s:
        return None
    unsure = abs(seconds / baseline.period_s - iterations) / iterations / 2 if baseline.is_relative else 0.0
    whole = Measurement(  # but for that known exactly: it is what the job used, not a sample of it
        setting=baseline.setting,
        start_s=tally.since_s,
        duration_s=seconds,
        iterations=iterations,
        period_s=seconds / iterations,
        period_rel_stderr=unsure,
        power_w=joules / seconds,
        power_rel_stderr=0.0,
        energy_per_iteration_j=joules / iterations,
        energy_rel_stderr=unsure,
        time_energy_corr=1.0 if unsure else 0.0,
    )
    at_baseline_j = baseline.energy_per_iteration_j * iterations
    extra = Cost(value=joules - at_baseline_j, stderr=at_baseline_j * math.hypot(baseline.energy_rel_stderr, unsure))
    cost = metric.versus(whole, baseline)
    squares = [(metric.cost(one, baseline).value - 1) ** 2 for one in baselines]
    drift = math.sqrt(sum(squares) / len(squares)) if squares else 0.0
    return extra, Cost(value=cost.value, stderr=math.hypot(cost.stderr, cost.value * drift))


def break_even_s(
    tally: Tally, kept: Measurement, baseline: Measurement, metric: Metric, search_end_s: float
) -> float | None:
    """When, on the run's clock, search and holding together cost no more than the baseline; `None` if never.

    The search took N iterations, E joules and T seconds. After n more at the kept cap the means per iteration are
    (E + n e)/(N + n) and (T + n τ)/(N + n); the answer is the end of the search plus the smallest n with a metric of
    at most 1, times τ. Both means move on a straight line with n/(N + n), and along a line every metric's logarithm
    is concave, so it comes down to 1 once at most, and bisection finds that place.
    """

    def metric_after(n: float) -> float:
        iterations = explored + n
        energy_j = tally.exploration_energy_j + n * kept.energy_per_iteration_j
        time_s = tally.exploration_s + n * kept.period_s
        return metric.value(
            energy_j / iterations / baseline.energy_per_iteration_j, time_s / iterations / baseline.period_s, baseline
        )

    explored = max(0.0, tally.exploration_iterations)
    low, high = 0.0, max(1.0, explored)
    if explored > 0 and metric_after(0.0) <= 1:
        return search_end_s
    while metric_after(high) > 1:
        low, high = high, 2 * high
        if high > _NEVER:
            return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if metric_after(middle) <= 1 else (middle, high)
    return search_end_s + high * kept.period_s


def _by_cap(measured: Sequence[Measured], baseline: Measurement) -> dict[tuple[float, ...], list[Measured]]:
    """The valid windows by cap, but for the baseline's own cap: a trial there only says how well it repeats."""
    rows: dict[tuple[float, ...], list[Measured]] = {}
    for one in measured:
        if one.measurement.valid and one.measurement.setting != baseline.setting:
            rows.setdefault(one.measurement.setting, []).append(one)
    return rows


def _unmeasured(
    measured: Sequence[Measured], baseline: Measurement, predicted: Sequence[Prediction]
) -> list[Prediction]:
    """The predictions without those of caps that were measured."""
    known = {baseline.setting, *_by_cap(measured, baseline)}
    return [one for one in predicted if (one.setting,) * len(baseline.setting) not in known]


def _lowest(metric: str, rows: Sequence[CapCosts], source: str) -> BestCap:
    best = min(rows, key=lambda row: row.costs[metric].value)
    cost = best.costs[metric]
    return BestCap(metric=metric, setting=best.setting, cost=cost.value, cost_stderr=cost.stderr, source=source)


def _point(one: CapCosts, source: str) -> ParetoPoint:
    energy, time = one.costs[ENERGY], one.costs[TIME]
    return ParetoPoint(
        setting=one.setting,
        energy=energy.value,
        energy_stderr=energy.stderr,
        time=time.value,
        time_stderr=time.stderr,
        source=source,
    )


def _differs(point: ParetoPoint, other: ParetoPoint) -> bool:
    """Whether a point is farther from another than its own error."""
    energy, time = abs(point.energy - other.energy), abs(point.time - other.time)
    return energy > point.energy_stderr or time > point.time_stderr


def _undominated(points: Sequence[ParetoPoint]) -> list[ParetoPoint]:
    """The points that no other beats in both energy and time, lowest cap first."""
    found: list[ParetoPoint] = []
    for point in sorted(points, key=lambda one: (one.time, one.energy)):
        best = found[-1] if found else None
        if best is None or point.energy < best.energy or (point.energy, point.time) == (best.energy, best.time):
            found.append(point)
    return sorted(found, key=lambda one: one.setting)
