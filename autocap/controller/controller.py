"""The state machine: samples go in, actions come out. It owns no clock, thread, file or device.

WAITING → BASELINE → SEARCHING → CONFIRMING → HOLDING → DONE; PAUSED within any of them while the job does not train.
"""

from collections.abc import Callable, Sequence

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.actions import Action, Decision, Outbox
from autocap.controller.budget import SlowdownBudget, objection
from autocap.controller.exploration import Exploration
from autocap.controller.holding import Hold, HoldRules, first_check_s
from autocap.controller.search import Search
from autocap.errors import StrategyError
from autocap.events import State
from autocap.measurement.energy import implausible
from autocap.measurement.idle import IdleWatch
from autocap.measurement.pauses import PauseWatch
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.totals import RunningTotals
from autocap.progress import Mark, Progress
from autocap.records import Measurement, Sample, SensorInfo, Trial
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid

_TALLY_EVERY_S = 5.0
_MOST_BASELINES = 3  # that cannot be measured, in a row
_DISTURBED = "no iteration was seen without a gap in the power, or heat,"
_RETRY_S = 300.0  # after a search that was disturbed, or ended in doubt


class Controller:
    """Decides which caps to set, from nothing but the samples it is fed.

    original_w: the limits found on arrival, one per device. grid: the common caps to search among.
    new_strategy: builds the strategy once the baseline is known, from that and the trials of the searches before.
    idle: what was seen of the machine at rest before.
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
    ) -> None:
        self._config, self._grid, self._settle_s = config, grid, sensor.settle_s
        self._progress, self._new_strategy = progress, new_strategy
        self.ended_because: str | None = None  # why the tuning ended before the job did
        self._started = self._seen_progress = False
        self._out = Outbox(original_w)
        self._watch = SteadinessWatch(original_w)
        self._wait_until_s = config.wait_s
        self._accounts = RunningTotals()
        self._tallied_s = 0.0
        self._done = 0.0  # iterations
        self._prober = Prober(config, sensor)
        self._pauses = PauseWatch()
        self._idle = idle or IdleWatch()
        self._paused = False  # as announced
        self._failed_baselines = 0  # in a row
        self._exploration: Exploration | None = None
        self._hold: Hold | None = None
        self._held_w: tuple[float, ...] | None = None  # what is held, or checked, while it is held
        self._check_s = 0.0  # the next rest between two looks at the baseline
        self._searches = 0
        self._searched_from_s = 0.0

    @property
    def state(self) -> State:
        return State.PAUSED if self._paused else self._out.state

    @property
    def caps_w(self) -> tuple[float, ...]:
        """The limits that should hold now, watts, one per device."""
        return self._out.caps_w

    def feed(self, sample: Sample) -> list[Action]:
        """Take in a sample; the actions it leads to, in order."""
        self._out.open(sample.t_s)
        if not self._started:
            self._started = True
            self._out.enter(State.WAITING)
        marks = self._progress.feed(sample)
        if marks:
            self._done = marks[-1].iterations
        if marks and not self._seen_progress:
            self._seen_progress = True
            self._out.announce(
                events.ProgressFound(t_s=sample.t_s, kind=self._progress.kind, confidence=self._progress.confidence)
            )
        idle_w = self._idle.feed(sample, marks, self._progress)
        if idle_w is not None:
            self._out.announce(events.IdleEstimated(t_s=sample.t_s, power_w=idle_w, seen_s=self._idle.seen_s))
        self._pauses.feed(sample, marks, self._progress, self._out.caps_w)
        self._heed_pause()
        self._accounts.feed(sample, marks, self.state, paused=self._pauses.ended)
        try:
            self._advance(sample, marks)
        except StrategyError as error:
            self._fail(f"{error}; the limit found on arrival is kept")
        if sample.t_s - self._tallied_s >= _TALLY_EVERY_S:
            self._tally()
        return self._out.actions

    def interrupted(self, t_s: float) -> list[Action]:
        """The caps were put back meanwhile (the process was stopped): set them again, and begin the window anew."""
        self._out.open(t_s)
        self._prober.again()
        if self._out.state is State.WAITING:
            self._watch = SteadinessWatch(self._out.original_w)
        elif self._out.state is not State.DONE:
            self._out.set_again()
        return self._out.actions

    def retune(self, t_s: float) -> list[Action]:
        """Somebody asks to tune anew: done from HOLDING, and not needed before."""
        self._out.open(t_s)
        if self._hold is not None:
            self._hold.ask()
        else:
            self._out.warn(f"nothing to tune anew in the state {self.state}")
        return self._out.actions

    def stop(self, t_s: float, reason: str) -> list[Action]:
        """End the tuning, in whatever state it is; whoever calls this puts the limits found on arrival back."""
        self._out.open(t_s)
        if self._out.state is State.DONE:
            return []
        if self._exploration is not None:
            self._exploration.abandon(reason)
        self._out.caps_w = self._out.original_w
        self._finish()
        return self._out.actions

    def close(self, t_s: float) -> list[Action]:
        """The job has ended: the last totals."""
        out = self.stop(t_s, "the job ended")
        self._out.open(t_s)
        self._tally()
        return out + self._out.actions

    # The states, in their order.

    def _advance(self, sample: Sample, marks: Sequence[Mark]) -> None:
        match self._out.state:
            case State.WAITING:
                self._wait(sample, marks)
            case State.BASELINE:
                result = self._prober.feed(sample, marks, paused=self._paused)
                if result is not None:
                    self._end_baseline(result)
            case State.SEARCHING | State.CONFIRMING if self._exploration is not None:
                self._heed(self._exploration.feed(sample, marks, paused=self._paused))
            case State.HOLDING if self._hold is not None:
                self._keep(self._hold, sample, marks)

    def _heed_pause(self) -> None:
        paused = self._pauses.paused and self._out.state not in (State.WAITING, State.DONE)
        if paused != self._paused:
            self._paused = paused
            self._out.announce(events.StateEntered(t_s=self._out.now_s, state=self.state))

    def _wait(self, sample: Sample, marks: Sequence[Mark]) -> None:
        steady = self._watch.feed(sample, marks)
        if steady is None and sample.t_s < self._wait_until_s:
            return
        if steady is None and self._watch.iterations == 0:
            self._fail(
                f"{self._progress.trouble or _DISTURBED} within {self._config.wait_s:g} s, so nothing is tuned; pass a "
                "larger --wait if the job starts slowly, or call autocap.step() once an iteration"
            )
            return
        if steady is None:
            self._out.warn(f"activity was not steady within {self._config.wait_s:g} s; measuring it all the same")
        self._accounts.open()
        self._out.enter(State.BASELINE)
        self._prober.start_baseline(self._out.original_w, steady)

    def _end_baseline(self, result: ProbeResult) -> None:
        if result.measurement is not None:
            self._failed_baselines = 0
            doubt = implausible(result.measurement.power_w, result.measurement.of_gpus().power_w)
            if doubt is not None:
                self._out.warn(doubt)
            self._out.announce(events.BaselineMeasured(t_s=self._out.now_s, measurement=result.measurement))
            self._begin_search(result.measurement)
            return
        why = f"the baseline could not be measured: {self._progress.trouble or result.reason}"
        self._failed_baselines += 1
        if self._failed_baselines >= _MOST_BASELINES:
            self._fail(why)
            return
        self._out.warn(f"{why}; waiting for steady activity again")
        self._watch = SteadinessWatch(self._out.original_w)
        self._wait_until_s = self._out.now_s + self._config.wait_s
        self._out.enter(State.WAITING)

    def _begin_search(self, baseline: Measurement) -> None:
        history = () if self._exploration is None else self._exploration.search.history
        left = None if self._config.iterations is None else self._config.iterations - self._done
        too_short = objection(left, baseline, self._settle_s)
        if too_short is not None:
            self._fail(too_short)
            return
        self._searches += 1
        search = Search(
            lambda measured: self._new_strategy(measured, history),
            self._grid,
            self._config.metric,
            baseline,
            self._config.prune_sigmas,
        )
        if self._config.observe:
            first_w = search.ask()
            self._out.announce(events.WouldTry(t_s=self._out.now_s, caps_w=() if first_w is None else (first_w,)))
            self._out.enter(State.HOLDING)
            return
        self._searched_from_s, self._check_s = self._out.now_s, first_check_s(baseline)
        self._exploration = Exploration(
            config=self._config,
            search=search,
            prober=self._prober,
            outbox=self._out,
            accounts=self._accounts,
            progress=self._progress,
            budget=self._budget(baseline),
        )
        self._heed(self._exploration.begin())

    def _budget(self, baseline: Measurement) -> SlowdownBudget | None:
        if self._config.metric.max_slowdown is None:
            return None
        since = self._accounts.tally(self._out.now_s) if self._searches > 1 else None
        return SlowdownBudget(
            self._config.metric.max_slowdown, baseline, self._settle_s, self._config.min_batches, since=since
        )

    def _heed(self, decision: Decision | None) -> None:
        if decision is None:
            return
        checked_w, self._held_w = self._held_w, decision.caps_w
        if decision.changed is not None:
            self._tune_anew(decision.changed)
            return
        self._out.set(decision.caps_w or self._out.original_w)
        self._out.enter(State.HOLDING)
        # The first change is acted on at once; a job that keeps changing gets longer and longer rests.
        rest_s = 0.0 if checked_w is not None else (self._searches - 1) * (self._out.now_s - self._searched_from_s)
        tuning_anew = self._config.retune != "never"
        rules = HoldRules(
            retune=self._config.retune,
            settle_s=self._settle_s,
            rest_s=rest_s,
            retry_s=_RETRY_S * 2**self._searches if decision.unsure and tuning_anew else None,
            check_s=self._check_s if decision.caps_w is not None and tuning_anew else None,
        )
        self._hold = Hold(rules, decision.reference, self._out.now_s)

    def _keep(self, hold: Hold, sample: Sample, marks: Sequence[Mark]) -> None:
        why = hold.feed(sample, marks, paused=self._paused or self._pauses.ended)
        if why is not None:
            self._tune_anew(why)
        elif hold.check_due(sample.t_s, paused=self._paused) and self._exploration and self._held_w is not None:
            self._hold = None
            self._check_s *= 2
            self._heed(self._exploration.check(self._held_w))

    def _tune_anew(self, why: str) -> None:
        """Back to BASELINE, at the limit found on arrival; the trials so far go to the next search as history."""
        self._out.warn(f"tuning anew: {why}")
        self._hold = self._held_w = None
        self._out.set(self._out.original_w)
        self._out.enter(State.BASELINE)
        self._prober.start_baseline(self._out.original_w)

    def _fail(self, why: str) -> None:
        self._out.warn(why)
        self.ended_because = why
        self._finish()

    def _finish(self) -> None:
        self._paused, self._hold, self._exploration = False, None, None
        self._prober.rest()
        self._out.set(self._out.original_w)
        self._out.enter(State.DONE)

    def _tally(self) -> None:
        self._tallied_s = self._out.now_s
        tally = self._accounts.tally(self._out.now_s)
        if tally is not None:
            self._out.announce(tally)
