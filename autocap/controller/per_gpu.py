"""SEARCHING and CONFIRMING with a cap per GPU: from a common cap that was kept to caps per GPU, or back to it.

In data-parallel training an iteration takes as long as the slowest card needs. At a common cap the more efficient cards
are done before it and wait, and a card that waits draws less than one that computes. So how much less a card draws than
caps make cards draw says how long it waits. With P ∝ c^q and t ∝ c^−ε near the common cap (both fitted to the search's
own trials), d the draw of card i at its cap, and u = d/c^q,

    busy share of card i    b with u / max u = b + w (1 − b)
    its own time            t = b T
    the cap at which it would take the time T₀ that the common cap needs    c (t/T₀)^(1/ε)

where w is what a waiting card draws of what it draws computing. It is not known; taken to be low, it makes b too large,
so that steps stop short of where the card would be the slowest; once they get nowhere, it is taken to be high. Draws
only say where to look. What is kept is decided by the job's own time and energy, measured in turn with the common cap:
every window at caps per GPU lies between two at the common one. In a trial the time must not grow beyond noise; several
rounds at the end must show that energy falls beyond noise as well, and the metric with it, or all is undone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import le

import numpy as np
from numpy.typing import NDArray

from autocap.config import TuneConfig
from autocap.controller.budget import SlowdownBudget
from autocap.controller.comparison import PerGpuComparison
from autocap.controller.context import Keep, StepContext
from autocap.controller.search import Search
from autocap.controller.steps import Decided, Happened, JobSeemsChanged
from autocap.controller.tuning import TUNING
from autocap.events import State
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.measurement.drift import changed_since
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.progress import Progress
from autocap.records import Cost, Measurement, Sample
from autocap.strategies.grid import CapGrid

Caps = tuple[float, ...]
Floats = NDArray[np.float64]

_LEAST_STEP_W = 1e-3
_GRACE = 1e-6  # relative, so that a target on the grid is not rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How draw and time per iteration follow the cap: P ∝ c^draw, t ∝ c^−time."""

    draw: float
    time: float


def response(common_w: float, measured: Sequence[Measurement]) -> Response:
    """The response near a common cap, from windows at common caps; the usual one where they tell none.

    Straight lines in logarithms by weighted least squares. A window at a distance d in ln c counts for less the farther
    it is, as what it shows may be off the line by a curvature times d², besides its own error.
    """
    if len({window.setting for window in measured}) < 2:
        return Response(draw=TUNING.per_gpu_usual_draw, time=TUNING.per_gpu_usual_time)
    distances = np.log([window.setting[0] / common_w for window in measured])
    draws = [(window.of_gpus().power_w, window.of_gpus().power_rel_stderr) for window in measured]
    draw = _slope(distances, draws, curvature=TUNING.per_gpu_draw_curvature)
    times = [(window.period_s, window.period_rel_stderr) for window in measured]
    time = _slope(distances, times, curvature=TUNING.per_gpu_time_curvature)
    return Response(
        draw=float(np.clip(draw, TUNING.per_gpu_least_draw, TUNING.per_gpu_most_draw)),
        time=float(np.clip(-time, TUNING.per_gpu_least_time, TUNING.per_gpu_most_time)),
    )


def _slope(distances: Floats, measured: Sequence[tuple[float, float]], *, curvature: float) -> float:
    """measured: values with their relative errors."""
    values, errors = np.array(measured).T
    sigmas = np.hypot(np.maximum(errors, TUNING.per_gpu_least_error), curvature * distances**2)
    return float(np.polyfit(distances, np.log(values), 1, w=1 / sigmas)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What caps showed, measured in turn with the common cap.

    settings, draws_w: per device, watts. time: per iteration, over that at the common cap. accepted: whether time did
    not grow beyond noise.
    """

    settings: Caps
    draws_w: Caps
    time: Cost
    accepted: bool


class Lowering:
    """The plan: `ask` for caps to try, `learn` what they showed; `best` is what was accepted last, at first the common
    cap, and again what was accepted before where it is refused later.

    Every cap is on the grid and at most the common one. Where caps were refused, what follows lies between them and the
    best: first with the slowest cards raised, then with only half of the cards lowered, and with the other half.
    """

    def __init__(self, common_w: float, devices: int, grid: CapGrid, near: Response) -> None:
        self.common_w: Caps = (common_w,) * devices
        self._accepted = [self.common_w]
        self._allowed_w = [setting for setting in grid if setting <= common_w]
        self._near = near
        self._refused: set[Caps] = set()
        self._next: list[Caps] = []
        self._trials = 0

    @property
    def best(self) -> Caps:
        """The caps accepted last."""
        return self._accepted[-1]

    @property
    def lowered(self) -> bool:
        """Whether anything below the common cap was accepted."""
        return self.best != self.common_w

    def ask(self) -> Caps | None:
        """The caps to try next, `None` when no card is left that seems to wait, or enough was tried."""
        while self._next and self._trials < TUNING.per_gpu_most_trials:
            settings = self._next.pop(0)
            if settings != self.best and not self._hopeless(settings):
                return settings
        return None

    def learn(self, shown: Shown) -> None:
        """Take in what caps showed; those of the common cap come first."""
        self._trials += shown.settings != self.common_w
        if shown.accepted:
            self._accepted += [shown.settings] if shown.settings != self.best else []
            for waiting in (TUNING.per_gpu_waiting_low, TUNING.per_gpu_waiting_high):
                lower_w = self._lower(shown, waiting)
                if lower_w != self.best:
                    break
            self._next = self._halves(shown, lower_w) if self._hopeless(lower_w) else [lower_w]
            return
        if self.lowered and shown.settings == self.best:  # refused when it was looked at again
            self._accepted.pop()
            self._next = []
        self._refused.add(shown.settings)
        self._next = self._next or self._back(shown)

    def _lower(self, shown: Shown, waiting: float) -> Caps:
        """Each card where it would just not be the slowest."""
        wanted_w = self._wanted(shown, max(self._loads(shown)), waiting)
        return tuple(map(min, wanted_w, shown.settings))

    def _back(self, shown: Shown) -> list[Caps]:
        """Something between what was refused and the best. One of the lowered cards must have become the slowest."""
        loads = self._loads(shown)
        slowest = max(self._lowered(shown.settings), key=lambda device: loads[device])
        between_w = map(max, self._wanted(shown, loads[slowest], TUNING.per_gpu_waiting_low), shown.settings)
        raised_w = list(map(min, between_w, self.best))
        if raised_w[slowest] == shown.settings[slowest]:
            raised_w[slowest] = self._on_grid(shown.settings[slowest] + _LEAST_STEP_W)
        return [tuple(raised_w), *self._halves(shown, shown.settings)]

    def _halves(self, shown: Shown, settings: Caps) -> list[Caps]:
        """Caps for only half of the cards that they lower, those that seem to wait longest, and for the other half."""
        loads = self._loads(shown)
        lowered = sorted(self._lowered(settings), key=lambda device: loads[device])
        middle = len(lowered) // 2
        return [
            tuple(settings[device] if device in half else setting for device, setting in enumerate(self.best))
            for half in (lowered[:middle], lowered[middle:])
        ]

    def _lowered(self, settings: Caps) -> list[int]:
        """The devices that caps lower from the best."""
        return [device for device, setting in enumerate(settings) if setting < self.best[device]]

    def _hopeless(self, settings: Caps) -> bool:
        """Whether no cap is higher than in a set that was refused: this one would be as well."""
        return any(all(map(le, settings, refused_w)) for refused_w in self._refused)

    def _wanted(self, shown: Shown, top: float, waiting: float) -> Caps:
        """The cap at which each card would take the time that the common cap needs. top: the load of the slowest.
        waiting: w."""
        beyond_noise = abs(shown.time.value - 1) > TUNING.per_gpu_sigmas * shown.time.stderr or not shown.accepted
        grown = shown.time.value if beyond_noise else 1.0
        wanted_w, farthest = [], TUNING.per_gpu_farthest_step
        for setting, load in zip(shown.settings, self._loads(shown), strict=True):
            busy = max(TUNING.per_gpu_least_busy, 1 - (1 - min(1.0, load / top)) / (1 - waiting))
            step = min(max(math.log(busy * grown) / self._near.time, -farthest), farthest)
            wanted_w.append(self._on_grid(setting * math.exp(step)))
        return tuple(wanted_w)

    def _loads(self, shown: Shown) -> list[float]:
        """How much each card draws of what cards draw at its cap, up to a common factor."""
        return [
            draw_w / setting**self._near.draw for draw_w, setting in zip(shown.draws_w, shown.settings, strict=True)
        ]

    def _on_grid(self, setting: float) -> float:
        """The lowest cap of the grid that is not below, or the common one."""
        return next((one_w for one_w in self._allowed_w if one_w >= setting * (1 - _GRACE)), self._allowed_w[-1])


_SPENT = "the slowdown that --max-slowdown allows so far is used up"


def usual_windows() -> int:
    """Of a search for a cap per GPU: each at caps per GPU has one at the common cap after it."""
    return 1 + 2 * (TUNING.per_gpu_most_trials + TUNING.per_gpu_most_rounds)


def most_windows() -> int:
    """At most: what was accepted last is refused when it is confirmed, and so is all that was accepted before."""
    return 1 + 2 * TUNING.per_gpu_most_trials * (1 + TUNING.per_gpu_most_rounds)


def hindrance(original_w: Caps, progress: Progress) -> str | None:
    """Why no cap per GPU can be found; `None` where one may be."""
    if len(original_w) == 1:
        return "--per-gpu changes nothing for a job on one GPU: its cap is the common one"
    if progress.confidence == "low":
        return f"no cap per GPU is looked for: iterations from {progress.kind} are too uncertain for it"
    return None


class Balancing:
    """One search for a cap per GPU.

    baseline, common: the limits found on arrival and the common cap, as they were confirmed. budget: what trials may
    cost the job in time.
    """

    def __init__(
        self,
        *,
        config: TuneConfig,
        lowering: Lowering,
        prober: Prober,
        context: StepContext,
        budget: SlowdownBudget,
        baseline: Measurement,
        common: Measurement,
    ) -> None:
        self._config, self._lowering, self._prober, self._context = config, lowering, prober, context
        self._budget, self._baseline, self._common = budget, baseline, common
        self._comparison: PerGpuComparison | None = None  # under way; `None` while the common cap alone is measured
        self._draws = DevicePower()
        self._draws_w: Caps | None = None  # of the caps that were tried last
        self._opening = common

    @classmethod
    def after(
        cls,
        common: Measurement,
        search: Search,
        config: TuneConfig,
        prober: Prober,
        context: StepContext,
        budget: SlowdownBudget,
    ) -> "Balancing":
        """One that begins at the common cap that a search has come to, as confirmed."""
        common_w = max(common.setting)
        lowering = Lowering(common_w, len(common.setting), search.grid, response(common_w, search.shown))
        return cls(
            config=config,
            lowering=lowering,
            prober=prober,
            context=context,
            budget=budget,
            baseline=search.baseline,
            common=common,
        )

    @property
    def common_w(self) -> float:
        """The common cap that it began at, watts."""
        return self._lowering.common_w[0]

    def begin(self) -> None:
        """Start with a window at the common cap."""
        self._context.enter(State.SEARCHING)
        self._measure(self._lowering.common_w)

    def take(self, metered: Metered) -> Happened | None:
        """Take in a sample; what is decided, once something is."""
        comparison, result = self._comparison, self._prober.add(metered)
        if result is not None:
            return self._end_opening(result) if comparison is None else self._end_window(comparison, result)
        if (
            comparison is not None
            and comparison.inner_next
            and metered.marks
            and self._budget.saved_s(self._context.now_s) < 0
        ):
            return self._undo(_SPENT)
        if self._prober.collecting:
            self._draws.add(metered)
        else:
            self._draws = DevicePower()
        return None

    def abandon(self, reason: str) -> None:
        """Nothing more is measured, and no cap per GPU is kept."""
        self._decide(self._lowering.common_w, reason)

    # Searching.

    def _end_opening(self, result: ProbeResult) -> Happened | None:
        draws_w = self._draws.mean_w()
        if result.measurement is None or draws_w is None:
            return self._undo(f"the common cap could not be measured: {result.reason or 'a GPU shows no power'}")
        changed = self._changed(result.measurement)
        if changed is not None:
            return changed
        self._opening = result.measurement
        unmoved = Cost(value=1.0, stderr=0.0)
        self._lowering.learn(Shown(settings=self._lowering.common_w, draws_w=draws_w, time=unmoved, accepted=True))
        return self._next_trial()

    def _next_trial(self) -> Happened | None:
        settings = self._lowering.ask()
        if settings is None and self._lowering.lowered:
            self._context.enter(State.CONFIRMING)
            settings = self._lowering.best
        elif settings is None:
            return self._undo("no GPU waits for the others by so much that a lower cap of its own saves energy")
        elif self._budget.saved_s(self._context.now_s) <= 0:
            return self._undo(_SPENT)
        comparison = PerGpuComparison(self._lowering.common_w, settings, self._opening, self._config.metric)
        self._comparison = comparison
        self._measure(comparison.next_w)
        return None

    def _end_window(self, comparison: PerGpuComparison, result: ProbeResult) -> Happened | None:
        if result.measurement is None:
            return self._undo(f"a window could not be measured: {result.reason}")
        at_common = not comparison.inner_next
        comparison.add(result.measurement)
        if at_common:
            self._opening = result.measurement
            changed = self._changed(result.measurement)
            if changed is not None:
                return changed
        else:
            self._draws_w = self._draws.mean_w()
        if not comparison.rounds or (self._confirming and not comparison.settled):
            self._measure(comparison.next_w)
            return None
        return self._judge(comparison)

    @property
    def _confirming(self) -> bool:
        return self._context.state is State.CONFIRMING

    def _judge(self, comparison: PerGpuComparison) -> Happened | None:
        """After a trial, or after the rounds that confirm it."""
        if self._draws_w is None:
            return self._undo("a GPU shows no power")
        then = comparison.as_at(self._common)
        why_not = comparison.objection() if self._confirming else comparison.hindrance()
        if why_not is None and not self._config.metric.allows(then, self._baseline):
            why_not = "not surely within the slowdown limit"
        cost = self._config.metric.versus(then, self._baseline)
        self._context.announce(
            PerGpuTried(
                t_s=self._context.now_s,
                setting=comparison.inner_w,
                accepted=why_not is None,
                reason=why_not or comparison.gain(),
                cost=cost.value,
                cost_stderr=cost.stderr,
                measurement=then,
            )
        )
        settings, accepted = comparison.inner_w, why_not is None
        self._lowering.learn(Shown(settings=settings, draws_w=self._draws_w, time=comparison.time, accepted=accepted))
        if self._confirming and accepted:
            return self._decide(settings, comparison.gain(), comparison)
        if self._confirming:
            self._context.enter(State.SEARCHING)
        return self._next_trial()

    # Ends.

    def _changed(self, common: Measurement) -> Happened | None:
        changed = changed_since(self._common, common, "at the common cap")
        if changed is None:
            return None
        self._decide(self._lowering.common_w, changed)
        return JobSeemsChanged(why=changed, sure=True)

    def _undo(self, reason: str) -> Happened:
        self._prober.rest()
        return self._decide(self._lowering.common_w, reason)

    def _decide(self, settings: Caps, reason: str, comparison: PerGpuComparison | None = None) -> Happened:
        self._context.announce(
            PerGpuDecided(
                t_s=self._context.now_s,
                setting=settings,
                kept=comparison is not None,
                reason=reason,
                measurement=None if comparison is None else comparison.inner,
                common=None if comparison is None else comparison.outer,
                as_confirmed=None if comparison is None else comparison.as_at(self._common),
            )
        )
        reference = self._opening if comparison is None else comparison.inner
        return Decided(decision=Keep(settings=settings, reference=reference))

    # Measuring.

    def _measure(self, settings: Caps) -> None:
        self._draws = DevicePower()
        self._context.set(settings)
        error = TUNING.per_gpu_confirming_error if self._confirming else TUNING.per_gpu_trial_error
        self._prober.start(settings, _larger_error, replace(self._prober.rules, target_stderr=error))


def _larger_error(found: Measurement) -> Cost:
    """A window is exact enough when both its time and its energy are."""
    return Cost(value=1.0, stderr=max(found.period_rel_stderr, found.energy_rel_stderr))


class DevicePower:
    """Adds up each device's energy and time over the samples of a window; pauses of the job are left out."""

    def __init__(self) -> None:
        self._energies_j: list[float] = []
        self._seconds = 0.0
        self._before: Sample | None = None

    def add(self, metered: Metered) -> None:
        """Add a sample: what a device's own counter has gained or, where it has none, its power."""
        before, self._before = self._before, metered.sample
        if before is None or metered.paused:
            return
        self._seconds += metered.t_s - before.t_s
        self._energies_j = self._energies_j or [0.0] * len(before.readings)
        for device, (then, now) in enumerate(zip(before.readings, metered.sample.readings, strict=True)):
            if then.energy_j is not None and now.energy_j is not None:
                self._energies_j[device] += now.energy_j - then.energy_j
            elif metered.gained.held:
                self._energies_j[device] += metered.gained.held[device]

    def mean_w(self) -> tuple[float, ...] | None:
        """The mean draw of each device, watts; `None` where there were no samples, or a device showed no power."""
        if self._seconds <= 0 or min(self._energies_j) <= 0:
            return None
        return tuple(energy_j / self._seconds for energy_j in self._energies_j)
