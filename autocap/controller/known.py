"""All that a search knows, in a record: what changes makes another one, and the rest follows from it.

Where the baseline's limit may not hold, as a budget gives less, the ceiling itself stands for the baseline. Caps are
compared with it and with each other, so that a strategy sees the same problem as without a ceiling: a highest cap at
which all ratios are 1. What the metric ranks stays the same, and what it allows is over the baseline at the limit
found, as without a ceiling.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from autocap.controller.known_curve import KnownCurve
from autocap.controller.tuning import TUNING
from autocap.knobs import Knob
from autocap.measurement.batches import measured_beside
from autocap.metrics import Metric
from autocap.records import GpuEnergy, Measurement, Prediction, Trial, TrialState, same_limit
from autocap.strategies.grid import CapGrid

_LEAST_SLOWER = 1e-9
WORSE = "worse than the baseline"
MOVED = "the budget gives other watts now"


def near_ceiling() -> float:
    """Of a ceiling: from there on a cap counts as it."""
    return 1 - TUNING.ceiling_same / 2


def is_instead(setting: float, found: float, knob: Knob) -> bool:
    """Whether a setting may be held instead of the one found on arrival, or of a ceiling: a cap only where it is
    lower."""
    return setting < found if knob.is_power_limit else not same_limit(setting, found)


def worse_than(setting: float, knob: Knob) -> str:
    """Why a trial ended that is worse than a cap."""
    return f"worse than {knob.text(setting)}"


def ceiling_reference(curve: KnownCurve, ceiling_w: float) -> Measurement:
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


def metric_against(metric: Metric, baseline: Measurement, ceiling: Measurement) -> Metric | None:
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
    if not near_ceiling() * ceiling_w <= trial.setting < ceiling_w:
        return trial
    shown = trial.measurement and replace(trial.measurement, setting=(ceiling_w,) * len(trial.measurement.setting))
    return replace(trial, setting=ceiling_w, measurement=shown)


_MOST_HELD = 24

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a strategy is built for, and the trials that it is told of, oldest first. history: those before, or of caps
    that it may not ask for."""

    grid: CapGrid
    metric: Metric
    baseline: Measurement
    history: tuple[Trial, ...]
    trials: tuple[Trial, ...]

    def goes_on_from(self, other: "Problem") -> bool:
        """Whether it is the other one, with more trials or as many."""
        return replace(self, trials=self.trials[: len(other.trials)]) == other


@dataclass(frozen=True, kw_only=True)
class Known:
    """Measurements are as at the first baseline.

    caps: all that may be asked for at some time. metric: by which they are ranked. first, baseline: as measured at the
    beginning, and last. before: trials of earlier searches. told: those of this one, oldest first, with what they cost
    when they ended. held: what caps have shown while they were held, one after the other. close: what each has at a
    close look; looked_s: when that was. most_w: above which no cap may be asked for now, watts. ceiling_w: what stands
    for the baseline in the eyes of the strategy, as that one's limit may not hold, watts; `None` where it may.
    """

    caps: CapGrid
    metric: Metric
    first: Measurement
    baseline: Measurement
    before: tuple[Trial, ...] = ()
    told: tuple[Trial, ...] = ()
    held: tuple[Measurement, ...] = ()
    close: tuple[Measurement, ...] = ()
    looked_s: Mapping[float, float] = field(default_factory=dict)
    most_w: float = math.inf
    ceiling_w: float | None = None

    def at_first(self, measurement: Measurement) -> Measurement:
        """What caps would have shown at the first baseline, given what they showed beside the one measured last: no
        better known than that one is, where that is less than the first."""
        return measured_beside(measurement, self.baseline, self.first)

    @property
    def recosted(self) -> "Known":
        """With what the trials cost by the metric of now against the first baseline of now."""
        return replace(self, told=tuple(costed(trial, self.first, self.metric) for trial in self.told))

    @cached_property
    def history(self) -> tuple[Trial, ...]:
        """All that were measured."""
        return tuple(trial for trial in self.told if trial.measurement is not None)

    @cached_property
    def complete(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.told if trial.state is TrialState.COMPLETE)

    @cached_property
    def shown(self) -> tuple[Measurement, ...]:
        """The first baseline, and what the trials have shown."""
        return self.first, *(trial.measurement for trial in self.told if trial.measurement is not None)

    @property
    def seen(self) -> tuple[Measurement, ...]:
        """What trials and caps that were held have shown."""
        return (*self.shown[1:], *self.close, *self.held)

    @cached_property
    def grid(self) -> CapGrid:
        """The caps that may be asked for now."""
        if self.ceiling_w is None:
            return self._up_to(self.most_w)
        below = (setting for setting in self.caps if setting < near_ceiling() * self.ceiling_w)
        return CapGrid([*below, self.ceiling_w], self.caps.knob)

    def _up_to(self, most_w: float) -> CapGrid:
        """All caps up to one, watts, the lowest in any case, and what was measured beside them, as at a ceiling."""
        asked = [setting for setting in self.caps if setting <= most_w] or self.caps[:1]
        highest_w = min(most_w, max(self.first.setting))
        measured = (trial.setting for trial in self.history if trial.setting <= highest_w)
        return CapGrid(sorted({*asked, *measured}), self.caps.knob)

    @cached_property
    def problem(self) -> Problem:
        """What the strategy has to solve where the baseline's own limit may hold."""
        trials = [as_now(trial, {MOVED}) for trial in self.told]
        return self._problem(self.grid, trials, self.first, self.metric)

    @cached_property
    def whole_problem(self) -> Problem:
        """The same on all caps, with what they have shown at a close look as trials."""
        looks = (as_trial(one, self.first, self.metric) for one in self.close if max(one.setting) in self.caps)
        return self._problem(self._up_to(math.inf), [*self.told, *looks], self.first, self.metric)

    def problem_below(self, ceiling_w: float, curve: KnownCurve) -> Problem | None:
        """The same where a ceiling, watts, stands for the baseline; `None` where it is slower than allowed already.
        What was measured above it is history, the baseline too."""
        ceiling = ceiling_reference(curve, ceiling_w)
        metric = metric_against(self.metric, self.first, ceiling)
        if metric is None:
            return None
        above = {trial.setting for trial in self.told if trial.setting > ceiling_w}
        refuted = {MOVED, WORSE, *(worse_than(one, self.caps.knob) for one in above)}
        now = (at_ceiling(as_now(trial, refuted), ceiling_w) for trial in self.told)
        trials = [as_trial(self.first, ceiling, metric), *(costed(trial, ceiling, metric) for trial in now)]
        if not any(trial.setting == ceiling_w and trial.state is TrialState.COMPLETE for trial in trials):
            trials.append(as_trial(ceiling, ceiling, metric))
        return self._problem(self.grid, trials, ceiling, metric)

    def _problem(self, grid: CapGrid, trials: Sequence[Trial], baseline: Measurement, metric: Metric) -> Problem:
        outside = (trial for trial in trials if trial.setting not in grid and trial.measurement is not None)
        inside = tuple(trial for trial in trials if trial.setting in grid)
        return Problem(grid=grid, metric=metric, baseline=baseline, history=(*self.before, *outside), trials=inside)

    def curve(self, predicted: Sequence[Prediction]) -> KnownCurve:
        """All that is known of the caps, those included that may not be asked for now. predicted: by the strategy."""
        believed = {one.setting for one in predicted}
        shown = [one for one in (*self.shown[1:], *self.close) if max(one.setting) not in believed]
        return KnownCurve.of(self.first, shown, predicted, self.metric, self.held, self.caps.knob)


def costed(trial: Trial, baseline: Measurement, metric: Metric) -> Trial:
    """A trial with what it costs by a metric against a baseline."""
    if trial.measurement is None:
        return trial
    cost = metric.cost(trial.measurement, baseline)
    return replace(trial, cost=cost.value, cost_stderr=cost.stderr)


def as_trial(shown: Measurement, baseline: Measurement, metric: Metric) -> Trial:
    """What a common cap has shown, as a trial that was completed."""
    setting = max(shown.setting)
    made = Trial(setting=setting, state=TrialState.COMPLETE, cost=1.0, cost_stderr=0.0, measurement=shown)
    return costed(made, baseline, metric)


def latest(held: Sequence[T], setting: Callable[[T], float]) -> tuple[T, ...]:
    """What caps have shown, one after the other, without the oldest where it is too much: of those first that others
    were held beside later, so that what is known of caps apart from these stays."""
    if len(held) <= _MOST_HELD:
        return tuple(held)
    beside = (
        place
        for place, one in enumerate(held)
        if any(abs(setting(other) / setting(one) - 1) < TUNING.held_beside for other in held[place + 1 :])
    )
    gone = next(beside, 0)
    return (*held[:gone], *held[gone + 1 :])
