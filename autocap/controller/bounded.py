"""A search whose baseline's limit may not hold, as a budget gives less: what stands for the baseline there.

It is the ceiling itself. Caps are compared with it and with each other, so that a strategy sees the same problem as
without a ceiling: a highest cap at which all ratios are 1. What the metric ranks stays the same, and what it allows is
over the baseline at the limit found, as without a ceiling.
"""

from collections.abc import Collection
from dataclasses import replace

from autocap.controller.known_curve import KnownCurve
from autocap.controller.tuning import TUNING
from autocap.knobs import Knob
from autocap.metrics import Metric
from autocap.records import GpuEnergy, Measurement, Trial, TrialState, same_limit

_LEAST_SLOWER = 1e-9
WORSE = "worse than the baseline"
MOVED = "the budget gives other watts now"


def near() -> float:
    """Of a ceiling: from there on a cap counts as it."""
    return 1 - TUNING.ceiling_same / 2


def is_instead(setting: float, found: float, knob: Knob) -> bool:
    """Whether a setting may be held instead of the one found on arrival, or of a ceiling: a cap only where it is
    lower."""
    return setting < found if knob.is_power_limit else not same_limit(setting, found)


def worse_than(setting: float, knob: Knob) -> str:
    """Why a trial ended that is worse than a cap."""
    return f"worse than {knob.text(setting)}"


def reference(curve: KnownCurve, ceiling_w: float) -> Measurement:
    """What is known of a ceiling, watts, in place of a baseline. What is no device's power is taken to be the same."""
    base, at = curve.baseline, curve.expected(ceiling_w)
    if base.gpu is None:
        return at
    power_w = max(at.power_w - (base.power_w - base.gpu.power_w), 0.01 * base.gpu.power_w)
    gpu = GpuEnergy(
        power_w=power_w,
        power_rel_stderr=at.power_rel_stderr * at.power_w / power_w,
        energy_per_iteration_j=power_w * at.period_s,
        energy_rel_stderr=at.energy_rel_stderr * at.power_w / power_w,
        time_energy_corr=at.time_energy_corr,
    )
    return replace(at, gpu=gpu)


def against(metric: Metric, baseline: Measurement, ceiling: Measurement) -> Metric | None:
    """The metric that ranks and allows against the ceiling what the given one does against the baseline; `None` where
    the ceiling itself is slower than allowed, so that it is the best there is. A metric that is a product has no
    weights, and one in money or grams none that depend on what it is taken against."""
    energy = ceiling.energy_per_iteration_j / baseline.energy_per_iteration_j
    time = ceiling.period_s / baseline.period_s
    k = None if metric.k is None else 1 + (metric.k - 1) * energy / time
    if metric.max_slowdown is None:
        return replace(metric, k=k)
    slower = (1 + metric.max_slowdown) / time - 1
    return replace(metric, k=k, max_slowdown=slower) if slower > _LEAST_SLOWER else None


def as_now(trial: Trial, refuted: Collection[str]) -> Trial:
    """A trial as it counts now. refuted: reasons for which one was ended that hold no more, as what it was worse than
    may not hold itself: it counts with what it has shown."""
    if trial.state is TrialState.PRUNED and trial.measurement is not None and trial.reason in refuted:
        return replace(trial, state=TrialState.COMPLETE, reason=None)
    return trial


def at_ceiling(trial: Trial, ceiling_w: float) -> Trial:
    """A trial of a cap just below a ceiling, watts, as of that."""
    if not near() * ceiling_w <= trial.setting < ceiling_w:
        return trial
    shown = trial.measurement and replace(trial.measurement, setting=(ceiling_w,) * len(trial.measurement.setting))
    return replace(trial, setting=ceiling_w, measurement=shown)
