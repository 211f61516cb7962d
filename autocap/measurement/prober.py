"""The probe that is under way, and how to begin it anew after an interruption."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from autocap.config import TuneConfig
from autocap.measurement import proxy
from autocap.measurement.metering import Metered
from autocap.measurement.probe import Probe, ProbeResult, ProbeRules
from autocap.measurement.tuning import TUNING
from autocap.measurement.wander import Wander
from autocap.measurement.window import Window
from autocap.records import Cost, Measurement, SensorInfo


class Prober:
    """Measures one cap at a time by the rules of the run; at rest where nothing is to be measured.

    rules: those of a trial.
    """

    def __init__(self, config: TuneConfig, sensor: SensorInfo) -> None:
        self.rules = ProbeRules(
            settle_s=sensor.settle_s,
            target_stderr=config.target_stderr,
            limit_s=config.trial_s,
            min_batches=config.min_batches,
        )
        self._metric = config.metric
        # Whatever is held against a limit on slowdown is held against the baseline.
        self._baseline_error = 1.0 if config.metric.max_slowdown is None else TUNING.baseline_error_share
        self._by_proxy: Callable[[Measurement], Measurement] = lambda found: found
        self._wander = Wander()
        self._windows = [0, 0]  # that were exact in time, and rough
        self._is_quick = config.trial_s <= TUNING.window_quick_trial_s
        self._seen: Measurement | None = None  # of the last look at a window, with its own errors
        self._build: Callable[[], Probe] | None = None
        self._probe: Probe | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being measured."""
        return self._probe is not None

    @property
    def collecting(self) -> bool:
        """Whether samples count: the cap has settled, and nothing disturbs."""
        return self._probe is not None and self._probe.collecting

    def expect(self, iteration_s: float | None) -> None:
        """Leave every measurement from now on the time for iterations of so many seconds; `None` changes nothing."""
        if iteration_s is not None:
            self.rules = replace(self.rules, iteration_s=iteration_s)

    def count_by_proxy(self, baseline: Measurement | None) -> None:
        """A proxy stands for the iterations of what is measured from now on, and was there in the baseline; `None`
        where they are counted."""
        self._by_proxy = (lambda found: found) if baseline is None else partial(proxy.beside, baseline)

    @property
    def may_wander(self) -> bool:
        """Whether other work is about: windows are mostly rough when their time is over. A single one may be a job that
        changed in its middle."""
        exact, rough = self._windows
        return not self._is_quick and rough >= max(TUNING.wander_rough_windows, exact)

    def paced(self, running_s: float) -> ProbeRules:
        """The rules for a job that has run so long: nobody knows that it will last much longer than it has, so that a
        window may take only a part of that, and a smaller one where the machine wanders, as then it is the turns that
        tell. Not where a limit on the slowdown asks for exact times."""
        if self._is_quick or self._metric.max_slowdown is not None:
            return self.rules
        pace_s = running_s / (TUNING.window_parts_wandering if self.may_wander else TUNING.window_parts)
        return replace(self.rules, pace_s=max(TUNING.window_pace_least_s, pace_s))

    def start_baseline(
        self,
        settings: tuple[float, ...],
        window: Window | None = None,
        running_s: float = math.inf,
        *,
        shared: bool = False,
    ) -> None:
        """Measure at the limits found on arrival, once the job gets neither faster nor slower. window: what was
        collected before. running_s: for how long the job has run. shared: as well as to be held against those of other
        jobs."""
        rules = replace(self.paced(running_s), level=True)
        rules = replace(rules, target_stderr=rules.target_stderr * self._baseline_error)
        if shared:
            rules = replace(rules, limit_s=max(rules.limit_s, TUNING.baseline_shared_s))
        decided = _well_timed if shared else _decided

        def build(window: Window | None = None) -> Probe:
            return Probe(settings, rules, self._own_cost, decided=decided, window=window, known=self._noted)

        self._build, self._probe = build, build(window)

    def start(
        self,
        settings: tuple[float, ...],
        cost: Callable[[Measurement], Cost],
        rules: ProbeRules,
        *,
        hopeless: Callable[[Measurement, Cost], str | None] = lambda measurement, cost: None,
        decided: Callable[[Measurement], bool] = lambda measurement: True,
        repeated: bool = False,
    ) -> None:
        """Measure at these caps, watts; the rest as Probe has it. repeated: as one of several windows, which show
        themselves how far they are from each other."""
        known, by_proxy = self._alone if repeated else self._noted, self._by_proxy
        self._build = lambda: Probe(
            settings, rules, cost, hopeless=hopeless, decided=decided, known=lambda found: known(by_proxy(found))
        )
        self._probe = self._build()

    def add(self, metered: Metered) -> ProbeResult | None:
        """Take in a sample; the result, once; `None` before, and while nothing is measured."""
        result = None if self._probe is None else self._probe.add(metered)
        if result is not None:
            self._note(result)
            self.rest()
        return result

    def _note(self, result: ProbeResult) -> None:
        """See how windows of the same caps agree; none may be shorter from now on than twice the longest burst of other
        work, as far as its limit allows."""
        if result.measurement is not None and self._seen is not None:
            self._wander.add(self._seen)
            self._windows[result.is_rough] += 1
        if self._probe is not None:
            self._wander.disturbed(self._probe.burst_s)
        least_s = max(TUNING.window_least_s, min(TUNING.window_bursts * self._wander.burst_s, self.rules.limit_s / 2))
        self.rules = replace(self.rules, least_s=least_s)

    def begin_anew(self) -> None:
        """The job has changed, so that nothing is a repeat of what was measured before."""
        self._wander.begin_anew()
        self.rules = replace(self.rules, least_s=TUNING.window_least_s)

    @property
    def is_quiet(self) -> bool:
        """Whether no other work on the machine was seen."""
        return self._wander.is_quiet

    @property
    def least_errors(self) -> tuple[float, float]:
        """Of the time and the energy of any window on a machine that wanders as this one was seen to, relative."""
        return self._wander.least_errors if self.may_wander else (0.0, 0.0)

    def cut(self, why: str) -> ProbeResult | None:
        """End the present measurement with what it has shown so far."""
        result = None if self._probe is None else self._probe.cut(why)
        self.rest()
        return result

    @property
    def so_far(self) -> Measurement | None:
        """What the present measurement has shown so far; `None` where that is too little."""
        return None if self._probe is None else self._probe.cut("").measurement

    def again(self) -> None:
        """Begin the present measurement anew."""
        if self._build is not None:
            self._probe = self._build()

    def resume(self) -> None:
        """Go on with the present measurement, which saw no sample while its caps were put back for a pause."""
        if self._probe is not None:
            self._probe.resume()

    def rest(self) -> None:
        """Measure nothing."""
        self._build = self._probe = None

    def _alone(self, seen: Measurement) -> Measurement:
        """A window with its own errors."""
        self._seen = None if seen.is_relative else seen
        return seen

    def _noted(self, seen: Measurement) -> Measurement:
        """A window with the errors that it has beside others."""
        return self.widened(self._alone(seen))

    def widened(self, shown: Measurement) -> Measurement:
        """What was measured, with errors by how far windows of the same caps are from each other."""
        return shown if shown.is_relative else self._wander.widened(shown)

    def _own_cost(self, found: Measurement) -> Cost:
        return self._metric.cost(found, found)


def _well_timed(found: Measurement) -> bool:
    return found.period_rel_stderr <= TUNING.baseline_shared_error


def _decided(found: Measurement) -> bool:
    return True
