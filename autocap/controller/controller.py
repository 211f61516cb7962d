"""The state machine: samples go in, actions come out. It owns no clock, thread, file or device.

WAITING → BASELINE → SEARCHING → CONFIRMING → HOLDING → DONE; PAUSED within any of them while the job does not train.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.actions import Action, Decision, Keep, Outbox, Revert, SearchAnew
from autocap.controller.budget import SlowdownBudget
from autocap.controller.exploration import Exploration
from autocap.controller.holding import HoldPlan
from autocap.controller.outlook import Outlook
from autocap.controller.pace import Pace
from autocap.controller.phases import Baseline, Done, Exploring, Holding, Observing, Phase
from autocap.controller.remembered import Remembered
from autocap.controller.search import Search
from autocap.controller.waiting import Hopeless, Ready, Rough, Steady, Waiting
from autocap.errors import StrategyError
from autocap.events import State
from autocap.measurement.energy import implausible
from autocap.measurement.idle import IdleWatch
from autocap.measurement.metering import Metered, Metering
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.measurement.window import Window
from autocap.progress import Progress
from autocap.records import Measurement, Sample, SensorInfo, Trial
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid

_TALLY_EVERY_S = 5.0
_MOST_BASELINES = 3  # that cannot be measured, in a row


class Controller:
    """Decides which caps to set, from nothing but the samples it is fed.

    original_w: the limits found on arrival, one per device. grid: the common caps to search among.
    new_strategy: builds the strategy once the baseline is known, from that and the trials of the searches before.
    idle: what was seen of the machine at rest before. remembered: of an earlier run; `None` where nothing is.
    """

    def __init__(
        self,
        *,
        config: TuneConfig,
        sensor: SensorInfo,
        original_w: tuple[float, ...],
        grid: CapGrid,
        progress: Progress,
        new_strategy: Callable[[Measurement, Sequence[Trial]], StrategyLike],
        idle: IdleWatch | None = None,
        remembered: Remembered | None = None,
    ) -> None:
        self._config, self._grid, self._settle_s = config, grid, sensor.settle_s
        self._progress, self._new_strategy = progress, new_strategy
        self.ended_because: str | None = None  # why the tuning ended before the job did
        self._started = self._seen_progress = False
        self._noticed: str | None = None  # of the progress
        self._counted_by: str | None = None  # a kind of progress
        self._out = Outbox(original_w)
        self._phase: Phase = Waiting.first(config, progress, self._out, sensor, remembered)
        self._metering, self._pace = Metering(), Pace(sensor)
        self._totals = RunningTotals()
        self._tallied_s = 0.0
        self._done = 0.0  # iterations
        self._prober = Prober(config, sensor)
        self._idle = idle or IdleWatch()
        self._failed_baselines = 0  # in a row
        self._history: tuple[Trial, ...] = ()  # of the searches before
        self._plan = HoldPlan(config.retune, sensor.settle_s)

    @property
    def state(self) -> State:
        return self._out.shown

    @property
    def caps_w(self) -> tuple[float, ...]:
        """The limits that should hold now, watts, one per device."""
        return self._out.caps_w

    @property
    def interval_s(self) -> float:
        """How soon after the last sample the next one is needed, seconds."""
        calm = self._phase.hold.is_calm if isinstance(self._phase, Holding) else False
        return self._pace.interval_s(
            held=calm or isinstance(self._phase, Observing | Done),
            follows_power=self._progress.follows_power,
            iteration_s=0.0 if isinstance(self._phase, Waiting) else self._prober.rules.iteration_s,
        )

    @property
    def needs_count(self) -> bool:
        """Whether something is measured by the iterations that are counted now."""
        if isinstance(self._phase, Holding):
            return not self._phase.hold.is_calm
        return not isinstance(self._phase, Observing | Done)

    def feed(self, sample: Sample) -> list[Action]:
        """Take in a sample; the actions it leads to, in order."""
        self._out.open(sample.t_s)
        self._pace.take(sample)
        if not self._started:
            self._started = True
            self._out.enter(State.WAITING)
            if isinstance(self._phase, Waiting):
                self._phase.begin()
        marks, kind = self._progress.marks(sample), self._progress.kind
        metered = self._metering.meter(sample, marks, kind, self._out.decided_w)
        if marks:
            self._count_by(kind)
            self._done = marks[-1].iterations
        if marks and not self._seen_progress:
            self._seen_progress = True
            self._out.announce(events.ProgressFound(t_s=sample.t_s, kind=kind, confidence=self._progress.confidence))
        if isinstance(self._phase, Waiting) and self._progress.notice not in (None, self._noticed):
            self._noticed = self._progress.notice
            self._out.warn(self._noticed)
        idle_w = self._idle.add(metered, kind)
        if idle_w is not None:
            self._out.announce(events.IdleEstimated(t_s=sample.t_s, power_w=idle_w, seen_s=self._idle.seen_s))
        self._out.heed_pause(paused=metered.paused)
        self._totals.add(metered, self.state)
        self._heed_long_pause(metered)
        try:
            if not self._out.is_aside:
                self._advance(metered)
        except StrategyError as error:
            self._fail(f"{error}; the limit found on arrival is kept")
        if sample.t_s - self._tallied_s >= _TALLY_EVERY_S:
            self._tally()
        return self._out.actions

    def interrupted(self, t_s: float) -> list[Action]:
        """The caps were put back meanwhile (the process was stopped): set them again, and begin the window anew."""
        self._out.open(t_s)
        self._prober.again()
        if isinstance(self._phase, Waiting):
            self._phase.again()
        self._out.set_again()
        return self._out.actions

    def retune(self, t_s: float) -> list[Action]:
        """Somebody asks to tune anew: done from HOLDING, and not needed before."""
        self._out.open(t_s)
        if isinstance(self._phase, Holding):
            self._phase.hold.ask()
        else:
            self._out.warn(f"nothing to tune anew in the state {self.state}")
        return self._out.actions

    def stop(self, t_s: float, reason: str) -> list[Action]:
        """End the tuning, in whatever state it is; whoever calls this puts the limits found on arrival back."""
        self._out.open(t_s)
        if isinstance(self._phase, Done):
            return []
        if isinstance(self._phase, Exploring):
            self._phase.exploration.abandon(reason)
        self._out.decided_w = self._out.original_w
        self._finish()
        return self._out.actions

    def close(self, t_s: float) -> list[Action]:
        """The job has ended: the last totals."""
        out = self.stop(t_s, "the job ended")
        self._out.open(t_s)
        self._tally()
        return out + self._out.actions

    def _heed_long_pause(self, metered: Metered) -> None:
        """A cap that is not kept yet slows down nothing but training: whatever the job does instead for long, or the
        end of a training that failed, has the limits found on arrival."""
        if metered.marks:
            if self._out.is_aside:
                self._prober.resume()
            self._out.come_back()
        elif metered.long_pause and isinstance(self._phase, Exploring) and self._out.decided_w != self._phase.held_w:
            self._out.step_aside()

    def _count_by(self, kind: str) -> None:
        """Begin anew where iterations are counted by something else from now on: nothing that was measured can be
        compared with what is to come."""
        before, self._counted_by = self._counted_by, kind
        if before in (None, kind) or isinstance(self._phase, Done):
            return
        self._out.warn(f"iterations are counted by {kind} from now on, not by {before} any more, so all begins anew")
        self._seen_progress, self._history, self._totals = False, (), RunningTotals()
        self._prober.rest()
        self._out.set(self._out.original_w)
        self._await_steadiness()

    def _await_steadiness(self) -> None:
        self._phase = Waiting(self._config, self._progress, self._out)
        self._out.enter(State.WAITING)

    # The phases, in their order.

    def _advance(self, metered: Metered) -> None:
        match self._phase:
            case Waiting():
                self._end_waiting(self._phase, self._phase.take(metered))
            case Baseline():
                result = self._prober.add(metered)
                if result is not None:
                    self._end_baseline(result)
            case Exploring(exploration=exploration):
                self._heed(self._phase, exploration.take(metered))
            case Holding():
                self._keep(self._phase, metered)
            case Observing() | Done():
                pass
            case _:
                assert_never(self._phase)

    def _end_waiting(self, waiting: Waiting, ready: Ready | None) -> None:
        match ready:
            case None:
                pass
            case Rough(baseline=baseline):
                search = self._new_search(baseline)
                if search.has_own_length:
                    waiting.insist()
                else:
                    self._begin_roughly(search)
            case Steady(window=window, iteration_s=iteration_s):
                self._prober.expect(iteration_s)
                self._totals.open()
                self._measure_baseline(window)
            case Hopeless(why=why):
                self._fail(why)
            case _:
                assert_never(ready)

    def _begin_roughly(self, search: Search) -> None:
        """Search before the baseline is known well."""
        self._prober.expect(search.first.period_s)
        self._totals.open()
        self._out.enter(State.BASELINE)
        self._out.announce(events.BaselineMeasured(t_s=self._out.now_s, measurement=search.first, rough=True))
        self._begin_search(search, rough=True)

    def _measure_baseline(self, steady: Window | None = None) -> None:
        self._phase = Baseline()
        self._out.enter(State.BASELINE)
        self._prober.start_baseline(self._out.original_w, steady)

    def _end_baseline(self, result: ProbeResult) -> None:
        if result.measurement is not None and self._progress.confidence == "low":
            result = replace(result, measurement=replace(result.measurement, proxy_rel_stderr=0.0))
        if result.measurement is not None:
            self._prober.count_by_proxy(result.measurement if result.measurement.is_relative else None)
            self._failed_baselines = 0
            doubt = implausible(result.measurement.power_w, result.measurement.of_gpus().power_w)
            if doubt is not None:
                self._out.warn(doubt)
            self._out.announce(events.BaselineMeasured(t_s=self._out.now_s, measurement=result.measurement))
            self._prober.expect(result.measurement.period_s)
            self._begin_search(self._new_search(result.measurement))
            return
        why = f"the baseline could not be measured: {self._progress.trouble or result.reason}"
        self._failed_baselines += 1
        if self._failed_baselines >= _MOST_BASELINES:
            self._fail(why)
            return
        self._out.warn(f"{why}; waiting for steady activity again")
        self._await_steadiness()

    def _new_search(self, baseline: Measurement) -> Search:
        return Search(
            lambda measured: self._new_strategy(measured, self._history),
            self._grid,
            self._config.metric,
            baseline,
            self._config.prune_sigmas,
        )

    def _begin_search(self, search: Search, *, rough: bool = False) -> None:
        """rough: the baseline is known from a few iterations alone."""
        baseline = search.first
        outlook = Outlook(self._config, search, self._settle_s)
        unknown = self._config.iterations is None or baseline.is_relative
        left = None if unknown else (self._config.iterations or 0) - self._done
        too_short = outlook.objection(left)
        if too_short is not None:
            self._fail(too_short)
            return
        self._plan.begin_search(baseline, self._out.now_s, outlook.stretch)
        if self._config.observe:
            first_w = search.ask()
            self._out.announce(events.WouldTry(t_s=self._out.now_s, caps_w=() if first_w is None else (first_w,)))
            self._phase = Observing()
            self._out.enter(State.HOLDING)
            return
        takes_long = outlook.notice()
        if takes_long is not None:
            self._out.warn(takes_long)
        budget = SlowdownBudget(
            self._config.metric.max_slowdown,
            self._totals,
            baseline,
            settle_s=self._settle_s,
            fewest=self._config.min_batches,
            since=self._totals.tally(self._out.now_s) if self._plan.searches > 1 else None,
        )
        exploration = Exploration(
            config=self._config,
            search=search,
            prober=self._prober,
            outbox=self._out,
            progress=self._progress,
            budget=budget,
            stretch=outlook.stretch,
            rough=rough,
        )
        self._phase = Exploring(exploration=exploration)
        self._heed(self._phase, exploration.begin())

    def _heed(self, phase: Exploring, decision: Decision | None) -> None:
        match decision:
            case None:
                pass
            case Keep(caps_w=caps_w):
                self._hold(phase, decision, caps_w)
            case Revert():
                self._hold(phase, decision, self._out.original_w)
            case SearchAnew(why=why):
                self._tune_anew(phase, why)
            case _:
                assert_never(decision)

    def _hold(self, phase: Exploring, decision: Keep | Revert, caps_w: tuple[float, ...]) -> None:
        self._out.set(caps_w)
        self._out.enter(State.HOLDING)
        hold = self._plan.hold(decision, self._out.now_s, checked=phase.held_w is not None)
        self._phase = Holding(exploration=phase.exploration, hold=hold, caps_w=caps_w)

    def _keep(self, holding: Holding, metered: Metered) -> None:
        why = holding.hold.why_anew(metered)
        if why is not None:
            self._tune_anew(holding, why)
        elif holding.hold.check_due(metered):
            self._plan.begin_check()
            self._phase = Exploring(exploration=holding.exploration, held_w=holding.caps_w)
            holding.exploration.check(holding.caps_w)

    def _tune_anew(self, phase: Exploring | Holding, why: str) -> None:
        """Back to BASELINE, at the limit found on arrival; the trials so far go to the next search as history."""
        self._out.warn(f"tuning anew: {why}")
        self._history = phase.exploration.search.history
        self._out.set(self._out.original_w)
        self._measure_baseline()

    def _fail(self, why: str) -> None:
        self._out.warn(why)
        self.ended_because = why
        self._finish()

    def _finish(self) -> None:
        self._phase = Done()
        self._prober.rest()
        self._out.set(self._out.original_w)
        self._out.enter(State.DONE)

    def _tally(self) -> None:
        self._tallied_s = self._out.now_s
        tally = self._totals.tally(self._out.now_s)
        if tally is not None:
            self._out.announce(tally)
