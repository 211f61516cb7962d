"""The state machine: samples go in, actions come out. It owns no clock, thread, file or device.

WAITING → BASELINE → SEARCHING → CONFIRMING → HOLDING → DONE; PAUSED within any of them while the job does not train.
"""

from collections.abc import Callable, Sequence

from autocap import events
from autocap.actions import Action, Announce, SetCaps
from autocap.budget import SlowdownBudget
from autocap.config import TuneConfig
from autocap.confirm import WINDOW_ERROR, Confirmation, Verdict
from autocap.errors import StrategyError
from autocap.events import State
from autocap.holding import Hold
from autocap.pauses import PauseWatch
from autocap.probe import ProbeResult
from autocap.probing import Prober
from autocap.progress import Mark, Progress
from autocap.records import Measurement, Sample, SensorInfo, Trial, TrialState
from autocap.search import Search
from autocap.strategy import CapGrid, StrategyLike
from autocap.tally import Accounts
from autocap.waiting import SteadinessWatch

_TALLY_EVERY_S = 5.0
_REPEAT_ERROR = 0.5  # a cap asked for again is measured to this share of the target error


class Controller:
    """Decides which caps to set, from nothing but the samples it is fed.

    original_w: the limits found on arrival, one per device. grid: the common caps to search among.
    new_strategy: builds the strategy once the baseline is known, from that and the trials of the searches before.
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
    ) -> None:
        self._config, self._original_w, self._grid = config, original_w, grid
        self._progress, self._new_strategy = progress, new_strategy
        self._state = State.WAITING
        self.ended_because: str | None = None  # why the tuning ended before the job did
        self._started = False
        self._seen_progress = False
        self._watch = SteadinessWatch(original_w)
        self._accounts = Accounts()
        self._tallied_s = 0.0
        self._caps_w = original_w
        self._prober = Prober(config, sensor)
        self._pauses = PauseWatch()
        self._paused = False  # as announced
        self._search: Search | None = None
        self._asked_w: float | None = None
        self._budget: SlowdownBudget | None = None
        self._spent_from: events.Tally | None = None  # when the trial under way began, which costs from `_budget`
        self._confirmation: Confirmation | None = None
        self._kept_w = 0.0  # the cap that is being confirmed
        self._hold: Hold | None = None
        self._searches = 0
        self._searched_from_s = 0.0
        self._out: list[Action] = []
        self._now_s = 0.0

    @property
    def state(self) -> State:
        return State.PAUSED if self._paused else self._state

    @property
    def caps_w(self) -> tuple[float, ...]:
        """The limits that should hold now, watts, one per device."""
        return self._caps_w

    def feed(self, sample: Sample) -> list[Action]:
        """Take in a sample; the actions it leads to, in order."""
        self._out, self._now_s = [], sample.t_s
        if not self._started:
            self._started = True
            self._enter(State.WAITING)
        marks = self._progress.feed(sample)
        if marks and not self._seen_progress:
            self._seen_progress = True
            self._announce(
                events.ProgressFound(t_s=sample.t_s, kind=self._progress.kind, confidence=self._progress.confidence)
            )
        self._pauses.feed(sample, marks, self._progress, self._caps_w)
        self._heed_pause()
        self._accounts.feed(sample, marks, self.state, paused=self._pauses.ended)
        try:
            self._advance(sample, marks)
        except StrategyError as error:
            self._fail(f"{error}; the limit found on arrival is kept")
        if sample.t_s - self._tallied_s >= _TALLY_EVERY_S:
            self._tally()
        return self._out

    def interrupted(self, t_s: float) -> list[Action]:
        """The caps were put back meanwhile (the process was stopped): set them again, and begin the window anew."""
        self._out, self._now_s = [], t_s
        self._prober.again()
        if self._state is State.WAITING:
            self._watch = SteadinessWatch(self._original_w)
        elif self._caps_w != self._original_w and self._state is not State.DONE:
            self._out.append(SetCaps(caps_w=self._caps_w))
        return self._out

    def retune(self, t_s: float) -> list[Action]:
        """Somebody asks to tune anew: done from HOLDING, and not needed before."""
        self._out, self._now_s = [], t_s
        if self._hold is not None:
            self._hold.ask()
        else:
            self._warn(f"nothing to tune anew in the state {self.state}")
        return self._out

    def stop(self, t_s: float, reason: str) -> list[Action]:
        """End the tuning, in whatever state it is; whoever calls this puts the limits found on arrival back."""
        self._out, self._now_s = [], t_s
        if self._state is State.DONE:
            return []
        if self._asked_w is not None:
            unfinished = Trial(cap_w=self._asked_w, state=TrialState.FAILED, reason=reason)
            self._announce(events.TrialEnded(t_s=t_s, trial=unfinished))
        self._caps_w = self._original_w
        self._finish()
        return self._out

    def close(self, t_s: float) -> list[Action]:
        """The job has ended: the last totals."""
        out = self.stop(t_s, "the job ended")
        self._out = []
        self._tally()
        return out + self._out

    # The states, in their order.

    def _advance(self, sample: Sample, marks: Sequence[Mark]) -> None:
        if self._state is State.DONE:
            return
        if self._state is State.WAITING:
            self._wait(sample, marks)
            return
        if self._search is not None and self._asked_w is not None and self._prober.resting:
            self._start_trial(self._search, self._asked_w)
        if self._hold is not None:
            why = self._hold.feed(sample, marks, paused=self._paused or self._pauses.ended)
            if why is not None:
                self._tune_anew(why)
            return
        result = self._prober.feed(sample, marks, paused=self._paused)
        if result is None and self._overspent(marks):
            result = self._prober.cut("the slowdown that --max-slowdown allows so far is used up")
        if result is not None:
            self._conclude(result)

    def _heed_pause(self) -> None:
        paused = self._pauses.paused and self._state not in (State.WAITING, State.DONE)
        if paused != self._paused:
            self._paused = paused
            self._announce(events.StateEntered(t_s=self._now_s, state=self.state))

    def _wait(self, sample: Sample, marks: Sequence[Mark]) -> None:
        steady = self._watch.feed(sample, marks)
        if steady is None and sample.t_s < self._config.wait_s:
            return
        if steady is None and self._watch.iterations == 0:
            self._fail(
                f"{self._progress.trouble} within {self._config.wait_s:g} s, so nothing is tuned; pass a larger --wait "
                "if the job starts slowly, or call autocap.step() once an iteration"
            )
            return
        if steady is None:
            self._warn(f"activity was not steady within {self._config.wait_s:g} s; measuring it all the same")
        self._accounts.open()
        self._enter(State.BASELINE)
        metric = self._config.metric
        self._prober.start(self._original_w, lambda found: metric.cost(found, found), window=steady)

    def _conclude(self, result: ProbeResult) -> None:
        if self._search is None or self._state is State.BASELINE:
            self._begin_search(result)
        elif self._confirmation is None:
            self._end_trial(self._search, result)
        else:
            self._end_window(self._search, self._confirmation, result)

    def _begin_search(self, result: ProbeResult) -> None:
        if result.measurement is None:
            self._fail(f"the baseline could not be measured: {self._why_failed(result)}")
            return
        self._announce(events.BaselineMeasured(t_s=self._now_s, measurement=result.measurement))
        history = () if self._search is None else self._search.history
        self._searches += 1
        self._search = Search(
            lambda baseline: self._new_strategy(baseline, history),
            self._grid,
            self._config.metric,
            result.measurement,
            self._config.prune_sigmas,
        )
        if self._config.metric.max_slowdown is not None:
            self._budget = SlowdownBudget(
                self._config.metric.max_slowdown,
                result.measurement,
                self._prober.settle_s,
                self._config.min_batches,
                since=self._accounts.tally(self._now_s) if self._searches > 1 else None,
            )
        if self._config.observe:
            first_w = self._search.ask()
            self._announce(events.WouldTry(t_s=self._now_s, caps_w=() if first_w is None else (first_w,)))
            self._enter(State.HOLDING)
            return
        self._searched_from_s = self._now_s
        self._enter(State.SEARCHING)
        self._next_trial(self._search)

    def _next_trial(self, search: Search) -> None:
        cap_w = search.ask()
        if cap_w is None:
            self._begin_confirmation(search)
            return
        self._asked_w = cap_w
        self._announce(events.TrialStarted(t_s=self._now_s, cap_w=cap_w))
        self._start_trial(search, cap_w)

    def _start_trial(self, search: Search, cap_w: float) -> None:
        """Begin, or wait at the limit found on arrival until the job has saved up what the trial will cost."""
        tally = self._accounts.tally(self._now_s)
        if self._budget is not None and tally is not None:
            if self._budget.saved_s(tally) < self._budget.expected_loss_s(cap_w):
                self._set(self._original_w)
                return
            self._spent_from = tally
        share = _REPEAT_ERROR if search.measured(cap_w) else 1.0
        self._set(self._every(cap_w))
        self._prober.start(self._caps_w, search.cost, error=share, hopeless=search.hopeless)

    def _overspent(self, marks: Sequence[Mark]) -> bool:
        """Whether the trial under way has cost the job all the time it had saved up."""
        if self._budget is None or self._spent_from is None or not marks or self._asked_w is None:
            return False
        now = self._accounts.tally(self._now_s)
        return now is not None and self._budget.saved_s(now) < 0

    def _end_trial(self, search: Search, result: ProbeResult) -> None:
        assert self._asked_w is not None
        trial = result.as_trial(self._asked_w, self._progress.trouble)
        self._asked_w = self._spent_from = None
        self._announce(events.TrialEnded(t_s=self._now_s, trial=trial))
        if self._budget is not None:
            self._budget.learn(trial)
        search.tell(trial)
        if search.blind:
            self._warn(f"the search ends early, several trials in a row have failed: {trial.reason}")
            self._begin_confirmation(search)
        else:
            self._next_trial(search)

    def _begin_confirmation(self, search: Search) -> None:
        cap_w = search.recommend()
        if cap_w is None:
            self._decide(None, Verdict(confirmed=False, reason="no cap that was tried is allowed and better"))
        elif self._every(cap_w) == self._original_w:
            self._decide(None, Verdict(confirmed=False, reason="the limit found on arrival is already the best"))
        else:
            self._confirmation = Confirmation(self._config.metric)
            self._enter(State.CONFIRMING)
            self._next_window(search, self._confirmation, cap_w)

    def _next_window(self, search: Search, confirmation: Confirmation, cap_w: float) -> None:
        self._kept_w = cap_w
        self._set(self._original_w if confirmation.baseline_next else self._every(cap_w))
        self._prober.start(self._caps_w, search.cost, error=WINDOW_ERROR)

    def _end_window(self, search: Search, confirmation: Confirmation, result: ProbeResult) -> None:
        if result.measurement is None:
            self._decide(
                None, Verdict(confirmed=False, reason=f"it could not be confirmed: {self._why_failed(result)}")
            )
            return
        verdict = confirmation.add(result.measurement)
        if verdict is None:
            self._next_window(search, confirmation, self._kept_w)
        else:
            self._decide(self._kept_w if verdict.confirmed else None, verdict)

    def _decide(self, cap_w: float | None, verdict: Verdict) -> None:
        self._announce(
            events.Decided(
                t_s=self._now_s,
                cap_w=cap_w,
                confirmed=verdict.confirmed,
                reason=verdict.reason,
                measurement=verdict.measurement if verdict.confirmed else None,
                baseline=verdict.baseline,
                expected=None if self._search is None else self._search.expectation(),
            )
        )
        self._set(self._original_w if cap_w is None else self._every(cap_w))
        self._enter(State.HOLDING)
        assert self._search is not None
        # The first change is acted on at once; a job that keeps changing gets longer and longer rests.
        rest_s = (self._searches - 1) * (self._now_s - self._searched_from_s)
        reference = verdict.measurement if cap_w is not None else verdict.baseline or self._search.baseline
        self._hold = Hold(self._config.retune, reference, self._now_s, self._prober.settle_s, rest_s)

    def _tune_anew(self, why: str) -> None:
        """Back to BASELINE, at the limit found on arrival; the trials so far go to the next search as history."""
        self._warn(f"tuning anew: {why}")
        self._hold = self._confirmation = self._budget = None
        self._set(self._original_w)
        self._enter(State.BASELINE)
        metric = self._config.metric
        self._prober.start(self._original_w, lambda found: metric.cost(found, found))

    # Small moves.

    def _why_failed(self, result: ProbeResult) -> str | None:
        return self._progress.trouble or result.reason

    def _every(self, cap_w: float) -> tuple[float, ...]:
        return (cap_w,) * len(self._original_w)

    def _set(self, caps_w: tuple[float, ...]) -> None:
        if caps_w != self._caps_w:
            self._caps_w = caps_w
            self._out.append(SetCaps(caps_w=caps_w))

    def _fail(self, why: str) -> None:
        self._warn(why)
        self.ended_because = why
        self._finish()

    def _finish(self) -> None:
        self._paused, self._hold, self._asked_w = False, None, None
        self._prober.rest()
        self._set(self._original_w)
        self._enter(State.DONE)

    def _enter(self, state: State) -> None:
        self._state = state
        self._announce(events.StateEntered(t_s=self._now_s, state=state))

    def _tally(self) -> None:
        self._tallied_s = self._now_s
        tally = self._accounts.tally(self._now_s)
        if tally is not None:
            self._announce(tally)

    def _warn(self, text: str) -> None:
        self._announce(events.Warned(t_s=self._now_s, text=text))

    def _announce(self, event: events.Event) -> None:
        self._out.append(Announce(event=event))
