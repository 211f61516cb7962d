"""What several runs of one cap come to, and which runs do not count: the rules of data quality of BUTTER-E.

Tripp et al. 2024 leave out runs with readings of 0 W, runs with missing readings, and runs whose log time is more than
four standard deviations from the mean of their like. They had thousands of runs; with a few repeats a run cannot be
that far from a mean that it is part of. So it is held against the others alone, with the scatter of all caps together,
and against as improbable a deviation for that many degrees of freedom as four sigma are.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

import numpy as np

from autocap.events.sweep import DISCARDED, FinishedRun, Used
from autocap.measurement.batches import BatchErrors
from autocap.measurement.stats import student_above
from autocap.records import Measurement

_Energy = Callable[[Used], float]  # joules of a run
_COUNTED: _Energy = attrgetter("counted_j")
_OF_GPUS: _Energy = attrgetter("gpus_j")
_SIGMAS = 4.0
_BY_CHANCE = 0.5 * math.erfc(_SIGMAS / math.sqrt(2))  # how often a normal is so far on one side
_FEWEST_LIKE = 3  # with two repeats nobody can say which of them is wrong
_LEAST_J = 1e-9
_LEAST_SCATTER = 1e-3  # of times, relative: what starting a process takes varies by more than runs that agree exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run that is not averaged, and why."""

    finished: FinishedRun
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRow:
    """The runs of one cap. measurement: the mean run, an iteration of it being the whole command; its standard errors
    come from the scatter that all caps of the set share, and are infinite, as unknown, where none was run twice. *_sd:
    sample standard deviations, `None` for a single run, of what the measurement counts; gpus_*_sd: of all GPUs
    together. gpu_*: means of each GPU.
    """

    measurement: Measurement
    repeats: int
    time_sd_s: float | None
    power_sd_w: float | None
    energy_sd_j: float | None
    gpus_power_sd_w: float | None
    gpus_energy_sd_j: float | None
    gpu_energy_j: tuple[float, ...]
    gpu_power_w: tuple[float, ...]

    @property
    def cap_w(self) -> float:
        """The common cap, watts."""
        return self.measurement.setting[0]


def sound(runs: Sequence[FinishedRun]) -> tuple[list[FinishedRun], list[LeftOut]]:
    """The runs of one GPU set that are to be averaged, and those that are not; warming up is neither."""
    good: list[FinishedRun] = []
    out: list[LeftOut] = []
    devices = next((len(finished.used.energy_j) for finished in runs if finished.used), 0)
    for finished in runs:
        if finished.run.repeat == DISCARDED and finished.trouble is None:
            continue
        reason = finished.trouble or _fault(finished.used, devices)
        if reason is None:
            good.append(finished)
        else:
            out.append(LeftOut(finished=finished, reason=reason))
    while (outlier := _outlier(good)) is not None:
        good.remove(outlier.finished)
        out.append(outlier)
    return good, out


def cap_rows(runs: Sequence[FinishedRun]) -> tuple[CapRow, ...]:
    """Sound runs of one GPU set, averaged by cap, the highest first."""
    by_cap = {cap_w: [one.used for one in some if one.used] for cap_w, some in _by_cap(runs).items()}
    groups = list(by_cap.values())
    counted, of_gpus = _shared_scatter(groups, _COUNTED), _shared_scatter(groups, _OF_GPUS)
    return tuple(_row(cap_w, used, counted, of_gpus) for cap_w, used in sorted(by_cap.items(), reverse=True))


def _fault(used: Used | None, devices: int) -> str | None:
    if used is None:
        return "no power was read"
    if used.missing:
        return f"{used.missing} power readings were missing or 0 W"
    if len(used.energy_j) != devices:
        return f"{len(used.energy_j)} GPUs were measured, not {devices}"
    if min(*used.energy_j, used.counted_j) < _LEAST_J or used.time_s <= 0:
        return "no energy was measured"
    if used.node_gap_s:
        return f"the node's power was not known for {used.node_gap_s:.1f} s"
    return None


def _outlier(runs: Sequence[FinishedRun]) -> LeftOut | None:
    """The run whose log time is farthest beyond what scatter explains; `None` where none is.

    Each is compared with the mean of the others of its cap, by the scatter of all runs but itself (an externally
    studentised residual).
    """
    by_cap = _by_cap(runs)
    groups = {cap_w: np.log([one.used.time_s for one in some if one.used]) for cap_w, some in by_cap.items()}
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in groups.values())
    dof = sum(len(logs) - 1 for logs in groups.values()) - 1
    if dof < 1:
        return None
    found: tuple[float, FinishedRun] | None = None
    for cap_w, logs in groups.items():
        n = len(logs)
        if n < _FEWEST_LIKE:
            continue
        for finished, log_time in zip(by_cap[cap_w], logs, strict=True):
            apart = abs(float(log_time - logs.mean())) * n / (n - 1)  # from the mean of the others
            others = max(0.0, squares - apart**2 * (n - 1) / n)
            scatter = max(math.sqrt(others / dof), _LEAST_SCATTER)
            beyond = apart / (scatter * math.sqrt(n / (n - 1)))
            if beyond > (found[0] if found else 0.0):
                found = beyond, finished
    if found is None or student_above(dof, found[0]) >= _BY_CHANCE:
        return None
    return LeftOut(finished=found[1], reason="its time is more than 4 sigma from that of the other runs of its cap")


def _by_cap(runs: Iterable[FinishedRun]) -> dict[float, list[FinishedRun]]:
    by_cap: dict[float, list[FinishedRun]] = {}
    for finished in runs:
        by_cap.setdefault(finished.run.cap_w, []).append(finished)
    return by_cap


def _shared_scatter(groups: Sequence[Sequence[Used]], of: _Energy) -> BatchErrors:
    """Relative standard deviations from run to run, pooled over caps: with a few repeats, a cap's own deviation says
    little of its error; infinite, as nothing is known of it, where every cap was run once. of: the energy of a run that
    it is about."""
    dof = sum(len(group) - 1 for group in groups)
    if dof < 1:
        return BatchErrors(time=math.inf, energy=math.inf, correlation=0.0)
    logs = [np.log([[used.time_s, of(used)] for used in group]) for group in groups]
    deviations = np.concatenate([some - some.mean(axis=0) for some in logs])
    covariance = deviations.T @ deviations / dof
    return BatchErrors.of(float(covariance[0, 0]), float(covariance[1, 1]), float(covariance[0, 1]))


def _row(cap_w: float, group: Sequence[Used], counted: BatchErrors, of_gpus: BatchErrors) -> CapRow:
    measurement, gpus = _mean_run(cap_w, group, _COUNTED, counted), _mean_run(cap_w, group, _OF_GPUS, of_gpus)
    each_j = list(zip(*(used.energy_j for used in group), strict=True))
    return CapRow(
        measurement=measurement if group[0].node_j is None else measurement.with_gpus(gpus),
        repeats=len(group),
        time_sd_s=_sd([used.time_s for used in group]),
        power_sd_w=_sd([used.counted_j / used.time_s for used in group]),
        energy_sd_j=_sd([used.counted_j for used in group]),
        gpus_power_sd_w=_sd([used.gpus_j / used.time_s for used in group]),
        gpus_energy_sd_j=_sd([used.gpus_j for used in group]),
        gpu_energy_j=tuple(map(fmean, each_j)),
        gpu_power_w=tuple(
            fmean([energy_j / used.time_s for energy_j, used in zip(one_j, group, strict=True)]) for one_j in each_j
        ),
    )


def _mean_run(cap_w: float, group: Sequence[Used], of: _Energy, scatter: BatchErrors) -> Measurement:
    n = len(group)
    return Measurement(
        setting=(cap_w,) * len(group[0].energy_j),
        start_s=0.0,
        duration_s=sum(used.time_s for used in group),
        iterations=n,
        period_s=fmean([used.time_s for used in group]),
        period_rel_stderr=scatter.time / math.sqrt(n),
        power_w=fmean([of(used) / used.time_s for used in group]),
        power_rel_stderr=scatter.power / math.sqrt(n),
        energy_per_iteration_j=fmean([of(used) for used in group]),
        energy_rel_stderr=scatter.energy / math.sqrt(n),
        time_energy_corr=scatter.correlation,
    )


def _sd(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
