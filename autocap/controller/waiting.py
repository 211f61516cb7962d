"""Before a search: samples are taken at the limits found on arrival until one may begin from a rough baseline, or until
the job is steady and its BASELINE is measured.

Every published curve has its optimum well below the draw, and each second at the limit found on arrival costs most. So
a search does not wait until activity is known to be steady and the baseline is known well: it begins from a rough one,
as the first iterations show it. Whether the job is steady shows in the first trial, and the baseline is measured in
turn with the cap that is to be kept, when all that is stated depends on it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import StepContext
from autocap.controller.steps import Failed, FirstBaselineEnded, RoughBaseline, Steady
from autocap.controller.tuning import TUNING
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.batches import as_at
from autocap.measurement.drift import differences
from autocap.measurement.energy import implausible
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.window import Window
from autocap.progress import COUNTED, Progress
from autocap.records import Measurement, SensorInfo, Trial, TrialState, same_limits
from autocap.strategies.grid import CapGrid


class FirstLook:
    """Takes samples at the limits found on arrival, watts, one per device, until they show a rough baseline.

    Of iterations that are counted, two will do. A period in the power is known only after many, which say well enough
    how exact they are; what a clock did says nothing at once. batches: fewest behind an error. knob: of the limits.
    """

    def __init__(self, settings: tuple[float, ...], sensor: SensorInfo, batches: int, knob: Knob = POWER_LIMIT) -> None:
        self._sensor, self._batches, self._knob = sensor, batches, knob
        self._from_s = math.inf
        self.begin(settings)

    def begin(self, settings: tuple[float, ...]) -> None:
        """These are the limits, and what was seen so far does not count."""
        self._settings = settings
        self._window: Window | None = None

    def add(self, metered: Metered, kind: str) -> Measurement | None:
        """Take in a sample; the rough baseline, its errors stated as such, once there is one. kind: of the progress."""
        if metered.disturbed is not None or metered.paused or metered.sample.node is not None:
            self._window = None
            return None
        if self._window is None:
            self._window = Window(self._settings, self._sensor.covers_s)
            self._from_s = metered.t_s + self._sensor.window_s
        self._window.add(metered, [mark for mark in metered.marks if mark.t_s >= self._from_s])
        if not metered.marks or kind == "speed":
            return None
        if kind not in COUNTED:
            return self._window.measure(self._batches)
        if self._window.iterations < TUNING.baseline_rough_iterations or self._window.span_s < TUNING.baseline_rough_s:
            return None
        t_s, counts = self._window.marks()
        if t_s.size < TUNING.baseline_rough_iterations + 1:  # a sample may bring more than one iteration
            return None
        last_s = (t_s[-1] - t_s[-2]) / (counts[-1] - counts[-2])
        before_s = (t_s[-2] - t_s[0]) / (counts[-2] - counts[0])
        if not 1 / (1 + TUNING.baseline_rough_alike) < last_s / before_s < 1 + TUNING.baseline_rough_alike:
            self._window.trim(float(t_s[-2]))  # what came before was another kind of iteration
            return None
        seen = self._window.measure(TUNING.baseline_rough_iterations)
        if seen is None:
            return None
        idles = seen.of_gpus().power_w < TUNING.baseline_rough_draw * sum(self._settings)
        return None if self._knob.is_power_limit and idles else rough(seen)


def rough(seen: Measurement) -> Measurement:
    """With errors that do not rest on the scatter of a few iterations alone: a job may do something else at first. This
    only ever widens what is said, and what is known better takes its place before anything is confirmed."""
    return replace(
        seen,
        period_rel_stderr=math.hypot(seen.period_rel_stderr, TUNING.baseline_rough_floor),
        energy_rel_stderr=math.hypot(seen.energy_rel_stderr, TUNING.baseline_rough_floor),
        power_rel_stderr=math.hypot(seen.power_rel_stderr, TUNING.baseline_rough_floor),
        time_energy_corr=0.0,
    )


class Proving:
    """A trial at another cap, before anything is measured, for a period in the power that nothing else can prove.

    It is set once, a little below the draw, for as long as some cycles take, and the limits found on arrival are back
    before anything is measured. What the period does there proves it, or ends it (`progress.period.period_ratio`).
    grid: the caps that may be set.
    """

    def __init__(
        self, config: TuneConfig, progress: Progress, context: StepContext, sensor: SensorInfo, grid: CapGrid
    ) -> None:
        self._progress, self._context, self._grid, self._sensor = progress, context, grid, sensor
        # Who only observes sets nothing, and under a limit on slowdown nothing has been saved up that it could cost.
        self._may = grid.knob.is_power_limit and not config.observe and config.metric.max_slowdown is None
        self._until_s: float | None = None
        self._draw_w: float | None = None
        self._drawn_s = 0.0

    @property
    def is_under_way(self) -> bool:
        return self._until_s is not None

    def take(self, metered: Metered) -> None:
        """Take in a sample: the trial begins, goes on, or ends."""
        self._see(metered)
        period_s = self._progress.unproven_s
        if self._until_s is not None:
            if period_s is None or metered.t_s >= self._until_s or metered.long_pause:
                self.end()
            return
        if not self._may or period_s is None or metered.paused:
            return
        setting = self._cap_w()
        if setting is None:
            return
        self._may = False
        lasts_s = max(TUNING.period_trial_cycles * period_s, TUNING.period_trial_least_s)
        self._until_s = metered.t_s + self._sensor.settle_s + min(lasts_s, TUNING.period_trial_most_s)
        self._context.warn(
            f"a period of {period_s:.3g} s shows in the power that a faster load could feign: a trial at "
            f"{setting:g} W, of {self._until_s - metered.t_s:.0f} s at most, tells them apart"
        )
        self._context.set(self._context.every(setting))

    def end(self) -> None:
        """Have the limits found on arrival hold again."""
        if self._until_s is not None:
            self._until_s = None
            self._context.set(self._context.uncapped_w)

    def _see(self, metered: Metered) -> None:
        """Follow the mean draw of the device that draws most, watts."""
        watts = [reading.power_w for reading in metered.sample.readings]
        known = [power_w for power_w in watts if power_w is not None]
        if not known:
            return
        since_s, self._drawn_s = metered.t_s - self._drawn_s, metered.t_s
        share = 1.0 if self._draw_w is None else min(1.0, since_s / TUNING.period_trial_draw_s)
        before_w = self._draw_w or 0.0
        self._draw_w = before_w + share * (max(known) - before_w)

    def _cap_w(self) -> float | None:
        """The highest cap clearly below the draw, watts; `None` where there is none."""
        if self._draw_w is None:
            return None
        most_w = TUNING.period_trial_below_draw * self._draw_w
        below = [setting for setting in self._grid if setting <= most_w and self._context.allows(setting)]
        return max(below, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What an earlier run of the same job says of its best cap: that one is held from the first second, and believed
    once the job shows there what it showed then.

    setting: the common cap, watts. at_cap: what it showed then; baseline: what the limits found on arrival did.
    """

    setting: float
    at_cap: Measurement
    baseline: Measurement

    @classmethod
    def of(cls, setting: float | None, history: Sequence[Trial], original_w: tuple[float, ...]) -> "Remembered | None":
        """What the trials of earlier runs, oldest first, say of a cap, watts; `None` where they miss that cap, or the
        limits that were found on arrival now."""
        known: dict[float, Measurement] = {}
        for trial in history:
            if (
                trial.state is TrialState.COMPLETE
                and trial.measurement is not None
                and not trial.measurement.is_relative
            ):
                known[trial.setting] = trial.measurement
        arrival = [one for one in known.values() if same_limits(one.setting, original_w)]
        if setting is None or setting not in known or not arrival or len(known[setting].setting) != len(original_w):
            return None
        return cls(setting=setting, at_cap=known[setting], baseline=arrival[-1])

    def doubt(self, seen: Measurement) -> str | None:
        """What is another now at the cap, as `+12 % time`; `None` where the job does what it did."""
        return differences(self.at_cap, seen)

    def baseline_beside(self, seen: Measurement) -> Measurement:
        """What the limits found on arrival should show now, given what the cap does."""
        return as_at(self.baseline, self.at_cap, seen)


_DISTURBED = "no iteration ended without a missing power reading or thermal throttling"
_UNDISTURBED = "see to the sensors and the cooling, or pass a larger --wait if that takes its time"


class Waiting:
    """Takes samples until it is known how to go on.

    baseline: a rough one, by a few iterations or as an earlier run has it. window: what was seen of a steady job;
    iteration_s: of an iteration, seconds; `None` where nothing was.
    proving: of a period that only a trial proves. look: for a rough baseline, with which a search need not wait; `None`
    where it has to. remembered: whose cap holds meanwhile; `None` where the limits found on arrival do.
    """

    def __init__(
        self,
        config: TuneConfig,
        progress: Progress,
        context: StepContext,
        proving: Proving,
        *,
        look: FirstLook | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        self._config, self._progress, self._context = config, progress, context
        self._since_s, self._until_s = context.now_s, context.now_s + config.wait_s
        self._proving, self._look, self._remembered = proving, look, remembered
        self._watch = SteadinessWatch(context.uncapped_w)
        self.baseline: Measurement | None = None
        self.window: Window | None = None
        self.iteration_s: float | None = None

    @classmethod
    def first(
        cls,
        config: TuneConfig,
        progress: Progress,
        context: StepContext,
        proving: Proving,
        sensor: SensorInfo,
        remembered: Remembered | None,
    ) -> "Waiting":
        """That of a run. Under a limit on slowdown nothing has been saved up yet that another cap could cost, and who
        only observes loses nothing."""
        if config.observe or config.metric.max_slowdown is not None:
            return cls(config, progress, context, proving)
        look = FirstLook(context.uncapped_w, sensor, config.min_batches, context.knob)
        known = remembered if progress.kind in COUNTED else None
        return cls(config, progress, context, proving, look=look, remembered=known)

    def begin(self) -> None:
        """The first sample has come."""
        if self._remembered is not None:
            self._context.set(self._context.every(self._remembered.setting))
        self.again()

    def again(self) -> None:
        """What was seen so far does not count."""
        self._watch = SteadinessWatch(self._context.decided_w)

    def limited(self) -> None:
        """Other limits hold where no cap is tried."""
        self._proving.end()
        if self._remembered is not None and not self._context.allows(self._remembered.setting):
            self._remembered = None
        if self._remembered is None:
            self._context.set(self._context.uncapped_w)
        if self._look is not None:
            self._look.begin(self._context.uncapped_w)
        self.again()

    def insist(self) -> None:
        """A rough baseline does not do: one is measured at the limits found on arrival."""
        self._look = None
        if self._context.decided_w != self._context.uncapped_w:
            self._context.set(self._context.uncapped_w)
            self.again()

    def take(self, metered: Metered) -> RoughBaseline | Steady | Failed | None:
        """Take in a sample; how the wait has ended, once it has."""
        if self._remembered is not None:
            return self._at_remembered(self._remembered, metered)
        if self._is_proving(metered):
            return None
        steady = self._watch.add(metered)  # also where a rough baseline is found: it may not do
        self.baseline = None if self._look is None else self._look.add(metered, self._progress.kind)
        if self.baseline is not None:
            return RoughBaseline()
        longer_s = self._longer_s
        if steady is None and metered.t_s < max(self._until_s + longer_s, self._progress.worth_until_s):
            return None
        if self._progress.notice is not None:  # more was waited for
            longer_s = max(longer_s, metered.t_s - self._until_s)
        waited_s = self._config.wait_s + round(longer_s)
        if steady is None and self._watch.iterations == 0:
            why, advice = _DISTURBED, _UNDISTURBED
            if self._progress.trouble is not None:
                why, advice = self._progress.trouble, self._progress.advice
            return Failed(why=f"{why} within {waited_s:g} s, so nothing is tuned; {advice}")
        if steady is None:
            self._context.warn(f"activity was not steady within {waited_s:g} s; measuring it all the same")
        self.window, self.iteration_s = steady, self._watch.iteration_s
        return Steady()

    def _is_proving(self, metered: Metered) -> bool:
        """Whether a trial for a period is under way, or just ended: nothing of it counts, and the wait begins anew."""
        before = self._proving.is_under_way
        self._proving.take(metered)
        if before and not self._proving.is_under_way:
            self._since_s, self._until_s = metered.t_s, metered.t_s + self._config.wait_s
            if self._look is not None:
                self._look.begin(self._context.uncapped_w)
            self.again()
        return before or self._proving.is_under_way

    @property
    def _longer_s(self) -> float:
        """How much longer to wait, where iterations are long. What counts them says at once when one has ended, so
        that the first one may still be under way where none has."""
        if self._progress.kind in COUNTED and self._watch.is_at_first:
            return TUNING.wait_first_iteration * (self._until_s - self._since_s)
        return max(0.0, self._watch.fair_s - self._until_s)

    def _at_remembered(self, remembered: Remembered, metered: Metered) -> RoughBaseline | None:
        """At the cap that was best, until the job is steady there and shows what it showed then. A period in the power,
        which may have to do, is learned where no cap flattens it: for that none is held."""
        steady = self._watch.add(metered)
        seen = None if steady is None else steady.measure(self._config.min_batches)
        uncounted = metered.marks and self._progress.kind not in COUNTED
        if seen is None and not uncounted and metered.t_s < self._until_s + self._longer_s:
            return None
        doubt = None if seen is None else remembered.doubt(seen)
        self._remembered = None
        if seen is not None and doubt is None:
            self.baseline = rough(remembered.baseline_beside(seen))
            return RoughBaseline()
        if doubt is not None:
            where = self._context.knob.text(remembered.setting)
            self._context.warn(f"the job is not as it is remembered: {doubt} per iteration at {where}")
        self.insist()
        self._context.set(self._context.uncapped_w)
        self._since_s, self._until_s = metered.t_s, metered.t_s + self._config.wait_s
        self.again()
        return None


class Baseline:
    """measured: the latest one. failed: how often it could not be measured, in a row."""

    def __init__(self, context: StepContext, prober: Prober, progress: Progress) -> None:
        self._context, self._prober, self._progress = context, prober, progress
        self.measured: Measurement | None = None
        self.failed = 0

    def begin(self, steady: Window | None = None) -> None:
        """steady: what was seen already. Under a budget that has room for the limits found, it is measured long: what
        other jobs get depends on it."""
        running_s = math.inf if self._context.has_room else self._context.now_s
        self._prober.start_baseline(self._context.uncapped_w, steady, running_s, shared=self._context.has_room)

    def take(self, metered: Metered) -> FirstBaselineEnded | None:
        """Take in a sample; that it was measured, once it was."""
        result = self._prober.add(metered)
        return None if result is None else self._ended(result)

    def _ended(self, result: ProbeResult) -> FirstBaselineEnded:
        if result.measurement is None:
            self.failed += 1
            return FirstBaselineEnded(
                failed=f"the baseline could not be measured: {self._progress.trouble or result.reason}"
            )
        baseline = result.measurement
        if self._progress.confidence == "low":
            baseline = replace(baseline, proxy_rel_stderr=0.0)
        self._prober.count_by_proxy(baseline if baseline.is_relative else None)
        self.measured, self.failed = baseline, 0
        doubt = implausible(baseline.power_w, baseline.of_gpus().power_w)
        if doubt is not None:
            self._context.warn(doubt)
        self._context.announce(events.BaselineMeasured(t_s=self._context.now_s, measurement=baseline))
        self._prober.expect(baseline.period_s, self._progress.kind)
        return FirstBaselineEnded()
