"""One cap, measured: settle, then as few whole iterations as the target error needs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autocap.measurement.metering import Metered
from autocap.measurement.tuning import TUNING
from autocap.measurement.window import Window
from autocap.progress import Mark
from autocap.records import Cost, Measurement, Trial, TrialLength, TrialState

_WORTH_SAYING = 0.05  # of a window


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRules:
    """When a probe ends.

    settle_s: seconds discarded after the cap was set, then warm_up iterations more: the first was cut by the change.
    target_stderr: relative error of the cost at which it is well enough measured. limit_s: longest time, without
    pauses of the job and disturbances, and longest time of disturbances. min_batches: fewest batch means. least_s,
    least_iterations: of the window, however exact it is. level: only once the job gets neither faster nor slower.
    patience_s: after which an error of coarse_stderr does. pace_s: after which a window ends that is far from exact, as
    on a machine that others use; after a few times as long also one that is not, and where the job gets faster or
    slower.
    iteration_s: an iteration at the limits found on arrival, seconds, 0 while unknown: where so few fit into limit_s
    that nothing could be measured, the probe goes on until it can be.
    covers_s: of the time before it, each reading of power, seconds.
    """

    settle_s: float
    target_stderr: float
    limit_s: float
    min_batches: int
    warm_up: int = 1
    least_s: float = field(default_factory=lambda: TUNING.window_least_s)
    least_iterations: int = 0
    level: bool = False
    iteration_s: float = 0.0
    patience_s: float = math.inf
    coarse_stderr: float = 0.0
    pace_s: float = math.inf
    covers_s: float = math.inf

    def target(self, elapsed_s: float) -> float:
        """The relative error of the cost that does after so many seconds."""
        return self.target_stderr if elapsed_s < self.patience_s else max(self.target_stderr, self.coarse_stderr)

    @property
    def longest_s(self) -> float:
        """After which a probe ends in any case, seconds: the fewest iterations fit in at any cap."""
        iterations = 1 + self.warm_up + max(self.min_batches, self.least_iterations)
        return max(self.limit_s, self.settle_s + TUNING.probe_slowest_iteration * iterations * self.iteration_s)

    def lasting(self, length: TrialLength) -> "ProbeRules":
        """The same limit on time, but otherwise a window of this length."""
        return replace(
            self,
            settle_s=length.settle_s,
            target_stderr=math.inf,
            min_batches=min(self.min_batches, length.iterations),
            warm_up=length.warm_up,
            least_s=length.seconds,
            least_iterations=length.iterations,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """How a probe ended; a failed one has neither cost nor measurement. is_rough: far from exact, by a limit
    on time."""

    state: TrialState
    reason: str | None = None
    measurement: Measurement | None = None
    cost: Cost | None = None
    is_rough: bool = False

    def as_trial(self, setting: float, trouble: str | None) -> Trial:
        """The trial of a cap that ended so. trouble: of the progress, which says better why a failed one failed."""
        return Trial(
            setting=setting,
            state=self.state,
            reason=self.reason if self.cost is not None else trouble or self.reason,
            cost=None if self.cost is None else self.cost.value,
            cost_stderr=None if self.cost is None else self.cost.stderr,
            measurement=self.measurement,
        )


class Probe:
    """Takes samples until it gives a result.

    settings: the cap per device while it lasts. cost: what a measurement costs, with its error. hopeless: why a
    measurement is already lost, `None` while it is not. decided: whether what else is asked of it is answered. window:
    samples collected before, at the same cap. known: what a window says, with errors that measuring on does not lessen;
    how long to measure is decided without these.
    """

    def __init__(
        self,
        settings: tuple[float, ...],
        rules: ProbeRules,
        cost: Callable[[Measurement], Cost],
        *,
        hopeless: Callable[[Measurement, Cost], str | None] = lambda measurement, cost: None,
        decided: Callable[[Measurement], bool] = lambda measurement: True,
        window: Window | None = None,
        known: Callable[[Measurement], Measurement] = lambda measurement: measurement,
    ) -> None:
        self.settings, self._rules = settings, rules
        self._cost, self._hopeless, self._decided, self._known = cost, hopeless, decided, known
        self._window = window
        self._settled = window is not None
        self._resumes = False
        # The count of iterations from which the window's are whole; not known before the cap has settled.
        self._whole_from = None if window is None else -math.inf
        self._start_s: float | None = None  # the first sample after the cap was set, or after a disturbance
        self._last_s = 0.0
        self._paused_s = self._disturbed_s = self._gap_s = 0.0
        self._settled_s = math.inf
        self._node_updates = 0  # fresh readings of the machine since the cap has settled
        self._look_at = self._first_look
        self._retakes = 0
        self._stretched = False

    def add(self, metered: Metered) -> ProbeResult | None:
        """Take in a sample; the result once there is one."""
        t_s = metered.t_s
        if self._start_s is None:
            self._start_s = self._last_s = t_s
            self._settled_s = t_s + self._rules.settle_s
        if metered.paused or self._resumes:
            self._paused_s += t_s - self._last_s
        if self._resumes:
            self._resumes = False
            self._unsettle(t_s + self._rules.settle_s)
        since_s, self._last_s = self._last_s, t_s
        if t_s - since_s > TUNING.probe_short_gap_s:  # a driver that did not answer: of its time nothing was to be had
            self._paused_s += t_s - since_s
        if metered.disturbed is not None:
            return self._disturbed(metered, t_s - since_s, metered.disturbed)
        self._gap_s = 0.0
        if not self._settled and self._has_settled(metered, self._start_s):
            self._settled = True
            self._window = self._window or Window(self.settings, self._rules.covers_s)
        if self._window is not None and not self._settled:
            self._window.leave_out(metered)
        elif self._window is not None:
            self._window.add(metered, self._whole(metered.marks))
            if self._due(self._window):
                result = self._look(self._window, t_s - self._start_s - self._paused_s)
                if result is not None:
                    return result
        return self._late(t_s - self._start_s - self._paused_s)

    @property
    def collecting(self) -> bool:
        """Whether the cap has settled, so that samples count."""
        return self._settled

    @property
    def burst_s(self) -> float:
        """The longest stretch that was left out of the window because of other work, seconds; 0 where none was."""
        return 0.0 if self._window is None else self._window.burst_s

    def resume(self) -> None:
        """The caps were put back for a pause of the job, while no sample came, and are set again now: what was measured
        before stays, and nothing counts until they have settled."""
        self._resumes = self._start_s is not None

    def cut(self, why: str) -> ProbeResult:
        """End now: pruned with what was measured, failed where that is too little."""
        return self._ended(TrialState.PRUNED, why) or ProbeResult(state=TrialState.FAILED, reason=why)

    def _ended(self, state: TrialState, reason: str) -> ProbeResult | None:
        """The result by what was measured so far; `None` where that is too little."""
        measurement = None if self._window is None else self._window.measure(self._rules.min_batches)
        if measurement is None:
            return None
        measurement = self._known(measurement)
        said = self._with_left_out(reason) if state is TrialState.COMPLETE else reason
        return ProbeResult(state=state, reason=said, measurement=measurement, cost=self._cost(measurement))

    def _has_settled(self, metered: Metered, start_s: float) -> bool:
        """Whether readings describe the new cap alone; of the machine's this shows only as they come."""
        if metered.t_s < self._settled_s:
            return False
        if metered.sample.node is None:
            return True
        self._node_updates += metered.node_fresh and metered.t_s > start_s
        if self._node_updates < TUNING.probe_node_updates:
            return False
        self._settled_s = metered.t_s  # no iteration before counts
        return True

    @property
    def _first_look(self) -> float:
        return float(max(self._rules.min_batches, self._rules.least_iterations))

    def _due(self, window: Window) -> bool:
        if window.iterations < self._look_at or window.span_s < self._rules.least_s:
            return False
        self._look_at = window.iterations * TUNING.probe_look_growth
        return True

    def _whole(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """The marks from which whole iterations of the window count: not the first after settling, which may end an
        iteration that began before. Marks found afterwards, as from the power signal, come many at a time."""
        settled = [mark for mark in marks if mark.t_s >= self._settled_s]
        if self._whole_from is None:
            if not settled:
                return []
            self._whole_from = settled[0].iterations + self._rules.warm_up
        return [mark for mark in settled if mark.iterations >= self._whole_from]

    def _look(self, window: Window, elapsed_s: float) -> ProbeResult | None:
        if self._rules.level and window.drifts() and elapsed_s < TUNING.probe_level_paces * self._rules.pace_s:
            window.newer_half()
            self._look_at = self._first_look
            return None
        seen = window.measure(self._rules.min_batches)
        if seen is None:
            return None
        measurement, scatter = self._known(seen), self._cost(seen)
        cost = self._cost(measurement)
        lost = self._hopeless(measurement, cost)
        if lost is not None:
            return ProbeResult(state=TrialState.PRUNED, reason=lost, measurement=measurement, cost=cost)
        if scatter.stderr <= self._rules.target(elapsed_s) * scatter.value and self._decided(seen):
            reason = self._with_left_out(None)
            return ProbeResult(state=TrialState.COMPLETE, reason=reason, measurement=measurement, cost=cost)
        is_rough = seen.period_rel_stderr > TUNING.probe_rough_error
        if elapsed_s >= self._rules.pace_s * (1.0 if is_rough else TUNING.probe_close_paces):
            reason = self._with_left_out(
                f"{'roughly, ' if is_rough else ''}after {elapsed_s:.0f} s of a job that may be short"
            )
            return ProbeResult(
                state=TrialState.COMPLETE,
                reason=reason,
                measurement=measurement,
                cost=cost,
                is_rough=is_rough,
            )
        return None

    def _with_left_out(self, reason: str | None) -> str | None:
        """Why a window ended, and how much of it does not count; `None` where there is nothing to say."""
        share = 0.0 if self._window is None else self._window.burst_share
        if share < _WORTH_SAYING:
            return reason
        left = f"{100 * share:.0f} % of it left out, as other work made iterations longer"
        return left if reason is None else f"{reason}; {left}"

    def _late(self, elapsed_s: float) -> ProbeResult | None:
        if elapsed_s < self._rules.limit_s:
            return None
        retakes = self._rules.level and self._retakes < TUNING.probe_retakes
        if retakes and self._window is not None and self._window.drifts():
            self._retakes += 1
            self._start_s, self._paused_s = self._last_s, 0.0
            return None
        stretched = f", stretched to {self._window.iterations:g} iterations" if self._stretched and self._window else ""
        result = self._ended(TrialState.COMPLETE, f"time limit of {self._rules.limit_s:.3g} s{stretched}")
        if result is not None and result.measurement is not None:
            return replace(result, is_rough=result.measurement.period_rel_stderr > TUNING.probe_rough_error)
        if elapsed_s < self._rules.longest_s:
            self._stretched = True
            return None
        needed, window = self._rules.min_batches, self._window or Window(self.settings)
        too_few = window.shortage(needed) or f"{window.iterations:g} iterations"
        longest_s = round(self._rules.longest_s, 1)
        reason = f"only {too_few} within {longest_s:g} s, {needed} are needed; pass a larger --trial-seconds"
        return ProbeResult(state=TrialState.FAILED, reason=reason)

    def _disturbed(self, metered: Metered, lasted_s: float, why: str) -> ProbeResult | None:
        """What overlaps a disturbance does not count. The window goes on after a short gap, in which the job does as
        before; after any other it begins anew once that is over."""
        self._disturbed_s += lasted_s
        self._gap_s += lasted_s
        if self._disturbed_s > self._rules.limit_s:
            return ProbeResult(state=TrialState.FAILED, reason=f"for {self._rules.limit_s:g} s: {why}")
        if self._window is not None and not metered.known and self._gap_s <= TUNING.probe_short_gap_s:
            self._paused_s += lasted_s
            self._window.leave_out(metered)
            return None
        if self._window is not None:
            self._retakes += 1
            if self._retakes > TUNING.probe_retakes:
                return ProbeResult(state=TrialState.FAILED, reason=f"{self._retakes} windows in a row: {why}")
            self._window = None
            self._look_at = self._first_look
        self._start_s, self._paused_s = metered.t_s, 0.0
        self._unsettle(max(self._settled_s, metered.t_s + TUNING.probe_calm_s))
        return None

    def _unsettle(self, until_s: float) -> None:
        """Readings do not describe the cap before until_s."""
        self._settled, self._whole_from, self._node_updates, self._settled_s = False, None, 0, until_s
