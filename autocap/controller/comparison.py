"""Two sets of caps measured in turn, so that slow drift of the machine cancels; and what that says: whether a cap is
really better than the baseline, and whether caps per GPU gain anything over the common cap that they came from."""

import math
from dataclasses import dataclass, replace
from enum import Enum, auto

from autocap.controller.tuning import TUNING
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.batches import as_at, compared, together, with_errors
from autocap.measurement.drift import impossible, sped_up
from autocap.measurement.probe import ProbeRules
from autocap.metrics import Metric, slowdown
from autocap.records import Cost, Measurement

Caps = tuple[float, ...]

_ENERGY = Metric(name="energy")
# Two windows of the cap, each measured to √2 of the target, together reach the target.
WINDOW_ERROR = math.sqrt(2)


class Comparison:
    """Windows that alternate outer, inner, outer, inner, outer: each at the inner caps lies between two at the outer.

    opening: a window at the outer caps that was measured just before, and stands for the first one.
    """

    def __init__(self, outer_w: Caps, inner_w: Caps, opening: Measurement | None = None) -> None:
        self.outer_w, self.inner_w = outer_w, inner_w
        self._outer = [] if opening is None else [opening]
        self._inner: list[Measurement] = []
        self._given = len(self._outer)

    @property
    def begun(self) -> bool:
        """Whether a window was added."""
        return bool(self._inner) or len(self._outer) > self._given

    @property
    def fresh(self) -> Measurement | None:
        """What it has shown of the outer caps that was not known before; `None` while that is nothing."""
        return together(self._outer[self._given :]) if len(self._outer) > self._given else None

    @property
    def inner_next(self) -> bool:
        """Whether the next window is to be taken at the inner caps."""
        return len(self._outer) > len(self._inner)

    @property
    def next_w(self) -> Caps:
        """The caps of the next window, watts per device."""
        return self.inner_w if self.inner_next else self.outer_w

    @property
    def rounds(self) -> int:
        """How many inner windows there are; 0 while the last of them has no outer one after it."""
        return len(self._inner) if self.inner_next else 0

    def add(self, window: Measurement) -> None:
        """Add the window that was asked for. One of few iterations scatters as the longer ones at the outer caps do."""
        if self.inner_next:
            self._inner.append(scattering_as(window, self._outer[-1]))
        else:
            self._outer.append(window)

    @property
    def faster(self) -> float:
        """By what the window added last was faster than the one before at the same caps, as `sped_up` has it."""
        same = self._outer if self.inner_next else self._inner
        return sped_up(same[-2], same[-1]) if len(same) > 1 else 1.0

    @property
    def both(self) -> tuple[Measurement, Measurement]:
        """The outer and the inner caps, to be held against each other."""
        return compared(self._outer, self._inner)

    @property
    def outer(self) -> Measurement:
        return together(self._outer)

    @property
    def inner(self) -> Measurement:
        return together(self._inner)


class Ruling(Enum):
    """What a confirmation says of a cap."""

    BETTER = auto()  # than the baseline by more than two sigma, and not too slow
    NOT_BETTER = auto()
    TOO_SLOW = auto()  # or not surely within the limit on slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """reason: a sentence with numbers. measurement: of the cap, baseline: of the windows between, with the errors that
    they have beside each other. alone: both, with those that they have beside what they show at other times."""

    ruling: Ruling
    reason: str
    measurement: Measurement
    baseline: Measurement
    alone: tuple[Measurement, Measurement]


def judge(windows: Comparison, metric: Metric, fewest: int = 1, knob: Knob = POWER_LIMIT) -> Judgement | None:
    """What windows of a cap (outer) and of the baseline (inner) say of the cap; `None` while that is open, and in fewer
    rounds than so many. knob: whose setting the cap is."""
    if windows.rounds < max(1, fewest):
        return None
    (cap, baseline), last = windows.both, windows.rounds >= TUNING.confirm_rounds
    cost = metric.versus(cap, baseline)
    numbers = f"{metric.name} {cost.value:.4f} ± {cost.stderr:.4f} of the baseline's"

    allowed = f"{100 * (metric.max_slowdown or 0):g} % allowed"

    def found(ruling: Ruling, reason: str) -> Judgement:
        return Judgement(
            ruling=ruling, reason=reason, measurement=cap, baseline=baseline, alone=(windows.outer, windows.inner)
        )

    wrong = impossible(cap, baseline, knob) if cap.period_s < baseline.period_s else None
    if wrong is not None and windows.rounds < TUNING.confirm_most_rounds:
        return None
    if wrong is not None:
        return found(Ruling.NOT_BETTER, f"not better for sure: {wrong}: other work has held the baseline up")
    if metric.forbids(cap, baseline):
        return found(Ruling.TOO_SLOW, f"too slow: {_slowdown(cap, baseline)}, {allowed}")
    if cost.value - 2 * cost.stderr > 1:
        return found(Ruling.NOT_BETTER, f"worse than the baseline: {numbers}")
    if not metric.allows(cap, baseline):
        unsure = f"not surely within the slowdown limit: {_slowdown(cap, baseline)}, {allowed}"
        return found(Ruling.TOO_SLOW, unsure) if last else None
    time_error = slowdown(cap, baseline)[1]
    if cost.value + 2 * cost.stderr < 1 and 2 * time_error <= TUNING.confirm_known_time:
        return found(Ruling.BETTER, numbers)
    # Each second of it is spent at the cap or as without one, so that more rounds lose next to nothing.
    most = TUNING.confirm_most_rounds
    then = math.sqrt(windows.rounds / most)  # the share of the errors that is left after the most rounds
    slack = TUNING.confirm_unsure if windows.rounds < most / 2 else 1.0
    hopeful = cost.value + 2 * then * cost.stderr < 1 and 2 * then * time_error <= slack * TUNING.confirm_known_time
    if not last or (hopeful and windows.rounds < most):
        return None
    if cost.value + 2 * cost.stderr < 1:
        saves = (
            f"{knob.text(max(cap.setting))} ({metric.name} {100 * (cost.value - 1):+.0f} ± {100 * cost.stderr:.0f} %)"
        )
        points, time = 100 * TUNING.confirm_known_time, _slowdown(cap, baseline)
        return found(
            Ruling.NOT_BETTER,
            f"{saves} is not confirmed, as what it costs in time is not known to within {points:g} points: {time}",
        )
    return found(Ruling.NOT_BETTER, f"not better beyond its error: {numbers} at {knob.text(max(cap.setting))}")


def between(usual: ProbeRules, compared: Comparison, baseline: Measurement, metric: Metric) -> ProbeRules:
    """When a window of the baseline ends that lies between two of a cap. At the limits found on arrival each second
    costs most: how iterations scatter, the cap's own windows show, and where a sensor shows too little for a small
    error soon, the error stays as large as the verdict allows, within reason.

    baseline: as it is known so far.
    """
    few = min(TUNING.confirm_baseline_iterations, usual.min_batches)
    if metric.max_slowdown is not None:
        return replace(usual, min_batches=few)
    scatter = compared.outer.period_rel_stderr * math.sqrt(compared.outer.iterations)
    enough = math.ceil((scatter / TUNING.confirm_baseline_error) ** 2)
    rules = replace(usual, min_batches=min(few, max(TUNING.confirm_baseline_fewest, enough)))
    saved = abs(1.0 - metric.cost(compared.outer, baseline).value)
    return brief(rules, saved / TUNING.confirm_clear_sigmas)


def brief(usual: ProbeRules, coarse: float = math.inf) -> ProbeRules:
    """The same, but for a sensor that shows too little soon: then a relative error of `coarse` does, 4 % at most."""
    coarse = min(coarse, TUNING.confirm_coarsest_error)
    return replace(usual, patience_s=TUNING.confirm_baseline_s, coarse_stderr=coarse)


def scattering_as(few: Measurement, many: Measurement) -> Measurement:
    """A window of few iterations, with errors no smaller than if they scattered as those of a longer window do: of a
    few, the scatter itself is hardly known."""
    if few.is_relative:
        return few
    share = max(1.0, many.iterations / few.iterations)
    return replace(
        few,
        period_rel_stderr=max(few.period_rel_stderr, many.period_rel_stderr * math.sqrt(share)),
        energy_rel_stderr=max(few.energy_rel_stderr, many.energy_rel_stderr * math.sqrt(share)),
        power_rel_stderr=max(few.power_rel_stderr, many.power_rel_stderr * math.sqrt(share)),
    )


def _slowdown(cap: Measurement, baseline: Measurement) -> str:
    ratio, error = slowdown(cap, baseline)
    return f"{100 * (ratio - 1):+.2f} ± {100 * error:.2f} % time"


class PerGpuComparison(Comparison):
    """Caps per GPU (inner) against the common cap (outer).

    opening: the window at the common cap that came before. metric: what must not be worse, besides energy and time.
    """

    def __init__(self, common_w: Caps, tried_w: Caps, opening: Measurement, metric: Metric) -> None:
        super().__init__(common_w, tried_w, opening)
        self._metric = metric

    def add(self, window: Measurement) -> None:
        """Add the window that was asked for; all are as long."""
        (self._inner if self.inner_next else self._outer).append(window)

    @property
    def time(self) -> Cost:
        """Time per iteration over that at the common cap, errors of both included."""
        ratio, stderr = slowdown(self.inner, self.outer)
        return Cost(value=ratio, stderr=stderr)

    @property
    def settled(self) -> bool:
        """Whether there are rounds enough for a verdict."""
        is_exact = self.rounds >= TUNING.per_gpu_fewest_rounds and self.time.stderr <= TUNING.per_gpu_exact_error
        return is_exact or self.rounds >= TUNING.per_gpu_most_rounds

    def hindrance(self) -> str | None:
        """Why the caps tried must not be kept: time grows beyond noise; `None` where it does not."""
        return f"slower than the common cap: {percent(self.time)} time" if self._slower else None

    def objection(self) -> str | None:
        """Why the caps tried are no gain: they hinder, energy does not fall beyond noise, or the metric is worse;
        `None` where they are one."""
        energy, metric = _ENERGY.versus(self.inner, self.outer), self._metric.versus(self.inner, self.outer)
        if self._slower:
            return self.hindrance()
        if energy.value + TUNING.per_gpu_sigmas * energy.stderr >= 1:
            return f"no energy saved beyond its error: {percent(energy)}"
        if metric.value >= 1:
            return f"worse than the common cap: {self._metric.name} {percent(metric)}"
        return None

    @property
    def _slower(self) -> bool:
        """Whether time grows beyond noise: by one standard error and what is negligible."""
        return self.time.value > 1 + TUNING.per_gpu_negligible_time + self.time.stderr

    def gain(self) -> str:
        """What the caps tried change, in words."""
        energy = _ENERGY.versus(self.inner, self.outer)
        return f"energy {percent(energy)}, time {percent(self.time)}, against the common cap"

    def as_at(self, then: Measurement) -> Measurement:
        """What the caps tried would have shown when the common cap showed `then`: in time and energy they are to it as
        they are to the common cap now, errors of all three included."""
        now, tried = self.outer, self.inner
        moved = with_errors(as_at(tried, now, then), (now, tried, then))
        if moved.gpu is None:
            return moved
        return moved.with_gpus(with_errors(moved.of_gpus(), (now.of_gpus(), tried.of_gpus(), then.of_gpus())))


def percent(ratio: Cost) -> str:
    """A ratio as a change: `-3.1 ± 0.2 %`."""
    return f"{100 * (ratio.value - 1):+.2f} ± {100 * ratio.stderr:.2f} %"
