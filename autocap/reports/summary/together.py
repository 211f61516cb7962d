"""All that was measured of a cap, as one measurement beside one baseline: what every table of caps is made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap.measurement import stats
from autocap.measurement.batches import as_at
from autocap.records import Measurement


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
