"""SEARCHING and CONFIRMING with a cap per GPU: from a common cap that was kept to caps per GPU, or back to it.

Every window at caps per GPU lies between two at the common cap. In a trial the time must not grow beyond noise; several
rounds at the end must show that energy falls beyond noise as well, and the metric with it, or all is undone.
"""

from dataclasses import replace

from autocap.config import TuneConfig
from autocap.controller.actions import Keep
from autocap.controller.budget import SlowdownBudget
from autocap.controller.comparison import PerGpuComparison
from autocap.controller.context import StepContext
from autocap.controller.per_gpu.lowering import Caps, Lowering, Shown, response
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
