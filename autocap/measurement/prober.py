"""The probe that is under way, and how to begin it anew after an interruption; and what is known beyond its own errors,
where others use the machine as well, and where a proxy stands for the iterations.

The scatter within a window says nothing of what comes and goes more slowly than that. It shows where a cap is measured
again, and is an error of each window that others are compared with, however long that window is. Each window is held
against the nearer of the two before it, so that a slow drift adds little, and what comes once, a burst or another
workload, adds once; of all that, the median counts, which such a thing does not move.

Where a cap lowers the SM clock to 1/R of what it was, an iteration takes at most R times as long: that is work which
follows the clock. What the host, the memory or the network take does not follow it, and how much that is nobody sees;
so the truth lies between 1 and R. The proxy counts by the middle of that range, and its errors span the whole of it: a
range of two standard errors reaches from 1 to R. All windows of a cap share that error, and none gets better by it.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from autocap.config import TuneConfig
from autocap.measurement.batches import BatchErrors
from autocap.measurement.metering import Metered
from autocap.measurement.probe import Probe, ProbeResult, ProbeRules
from autocap.measurement.tuning import TUNING
from autocap.measurement.window import Window
from autocap.progress import COUNTED
from autocap.records import Cost, Measurement, SensorInfo


def beside(baseline: Measurement, found: Measurement) -> Measurement:
    """A window by the proxy with the errors that it has against the baseline; a window at its caps has its own."""
    if found.setting == baseline.setting:
        return replace(found, proxy_rel_stderr=0.0)
    ratio = found.period_s / baseline.period_s  # (1 + R) / 2
    shared = math.hypot((ratio - 1) / (2 * ratio), TUNING.proxy_clock_error)
    whole = _widened(replace(found, gpu=None), shared)
    return whole if found.gpu is None else whole.with_gpus(_widened(found.of_gpus(), shared))


def _widened(found: Measurement, shared: float) -> Measurement:
    """With an error more that time and energy have in common."""
    var_t, var_e = found.period_rel_stderr**2 + shared**2, found.energy_rel_stderr**2 + shared**2
    covariance = found.time_energy_corr * found.period_rel_stderr * found.energy_rel_stderr + shared**2
    return replace(
        found,
        period_rel_stderr=math.sqrt(var_t),
        energy_rel_stderr=math.sqrt(var_e),
        time_energy_corr=covariance / math.sqrt(var_t * var_e),
        proxy_rel_stderr=shared,
    )


_BEFORE = 2  # windows of the same caps
_MEDIAN = (0.455, 0.150)  # half the squared distance of a normal number from one other, and from the nearer of two


class Wander:
    """That of one run. burst_s: the longest stretch of other work that was seen, seconds."""

    def __init__(self) -> None:
        self._before: dict[tuple[float, ...], deque[Measurement]] = {}
        self._apart: list[tuple[float, float, float]] = []  # var of time, of energy, their covariance, beyond errors
        self.burst_s = 0.0

    def add(self, window: Measurement) -> None:
        """Take in a window, with the errors that it has by itself."""
        window = window.of_gpus()
        if not math.isfinite(sum(_squares(window))):
            return
        before = self._before.setdefault(window.setting, deque(maxlen=_BEFORE))
        if before:
            nearest = min(before, key=lambda one: abs(_time(window, one)))
            time, energy = _time(window, nearest), _energy(window, nearest)
            error = math.hypot(window.period_rel_stderr, nearest.period_rel_stderr)
            if abs(time) > max(TUNING.wander_apart, TUNING.wander_apart_sigmas * error):
                self.disturbed((window if time > 0 else nearest).duration_s)
            share = 2 * _MEDIAN[len(before) - 1]
            own = [(a + b) / 2 for a, b in zip(_squares(window), _squares(nearest), strict=True)]
            seen = (time**2 / share, energy**2 / share, time * energy / share)
            self._apart.append((seen[0] - own[0], seen[1] - own[1], seen[2] - own[2]))
        before.append(window)

    def disturbed(self, lasted_s: float) -> None:
        """A stretch of other work was seen."""
        self.burst_s = max(self.burst_s, lasted_s)

    def begin_anew(self) -> None:
        """The job has changed: windows of the one before are no repeats, and its last stretch was no other work."""
        self._before.clear()
        self.burst_s = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether no burst of other work was seen so far."""
        return self.burst_s == 0

    @property
    def least_errors(self) -> tuple[float, float]:
        """Of the time and the energy of any window, relative; 0 while unknown."""
        time, energy, _ = self._beyond
        return math.sqrt(time), math.sqrt(energy)

    def widened(self, window: Measurement) -> Measurement:
        """The window with that in its errors."""
        time, energy, covariance = self._beyond
        if max(time, energy) <= 0:
            return window
        whole = _wider(replace(window, gpu=None), time, energy, covariance)
        return whole if window.gpu is None else whole.with_gpus(_wider(window.of_gpus(), time, energy, covariance))

    @property
    def _beyond(self) -> tuple[float, float, float]:
        """Relative variances of time and energy beyond a window's errors, and their covariance; 0 where unknown."""
        if len(self._apart) < TUNING.wander_fewest:
            return 0.0, 0.0, 0.0
        time, energy, both = (sorted(part)[(len(part) - 1) // 2] for part in zip(*self._apart, strict=True))
        time, energy = max(0.0, time), max(0.0, energy)
        most = math.sqrt(time * energy)
        return time, energy, min(most, max(-most, both))


def _time(window: Measurement, other: Measurement) -> float:
    return math.log(window.period_s / other.period_s)


def _energy(window: Measurement, other: Measurement) -> float:
    return math.log(window.energy_per_iteration_j / other.energy_per_iteration_j)


def _squares(window: Measurement) -> tuple[float, float, float]:
    time, energy = window.period_rel_stderr, window.energy_rel_stderr
    return time**2, energy**2, window.time_energy_corr * time * energy


def _wider(window: Measurement, time: float, energy: float, covariance: float) -> Measurement:
    own_t, own_e, own = _squares(window)
    errors = BatchErrors.of(own_t + time, own_e + energy, own + covariance)
    return replace(
        window,
        period_rel_stderr=errors.time,
        energy_rel_stderr=errors.energy,
        power_rel_stderr=errors.power,
        time_energy_corr=errors.correlation,
    )


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
            covers_s=sensor.covers_s,
        )
        self._metric, self._update_s, self._edge_s = config.metric, sensor.update_s, 0.0
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

    def expect(self, iteration_s: float | None, counted_by: str) -> None:
        """Leave every measurement from now on the time for iterations of so many seconds; `None` changes nothing.
        counted_by: a kind of progress; where a period begins and ends is known to an update of the sensor."""
        self._edge_s = 0.0 if counted_by in COUNTED else self._update_s
        if iteration_s is not None:
            self.rules = replace(self.rules, iteration_s=iteration_s)

    def count_by_proxy(self, baseline: Measurement | None) -> None:
        """A proxy stands for the iterations of what is measured from now on, and was there in the baseline; `None`
        where they are counted."""
        self._by_proxy = (lambda found: found) if baseline is None else partial(beside, baseline)

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

        def own_cost(found: Measurement) -> Cost:
            return self._metric.cost(found, found)

        def decided(found: Measurement) -> bool:
            return not shared or found.period_rel_stderr <= TUNING.baseline_shared_error

        def build(window: Window | None = None) -> Probe:
            return Probe(settings, rules, own_cost, decided=decided, window=window, known=self._noted)

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
            self._windows[result.is_rough and self._scatter(result.measurement) > TUNING.wander_rough_scatter] += 1
        if self._probe is not None:
            self._wander.disturbed(self._probe.burst_s)
        least_s = max(TUNING.window_least_s, min(TUNING.window_bursts * self._wander.burst_s, self.rules.limit_s / 2))
        self.rules = replace(self.rules, least_s=least_s)

    def _scatter(self, window: Measurement) -> float:
        """Of an iteration's time, relative, as far as the window's error tells, beyond what its ends explain."""
        beyond = window.period_rel_stderr**2 - (2 * self._edge_s / window.duration_s) ** 2
        return math.sqrt(max(0.0, beyond) * window.iterations)

    def begin_anew(self, *, warmed_up: bool = False) -> None:
        """The job has changed, so that nothing is a repeat of what was measured before. warmed_up: as each one does at
        first, which was taken for what others do on the machine."""
        if warmed_up:
            self._wander, self._windows = Wander(), [0, 0]
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
