"""The state machine: samples go in, actions come out. It owns no clock, thread, file or device.

WAITING → BASELINE → SEARCHING → CONFIRMING → HOLDING → DONE
"""

from collections.abc import Callable, Sequence

from autocap import events
from autocap.actions import Action, Announce, SetCaps
from autocap.config import TuneConfig
from autocap.confirm import WINDOW_ERROR, Confirmation, Verdict
from autocap.errors import StrategyError
from autocap.events import State
from autocap.probe import Probe, ProbeResult, ProbeRules
from autocap.progress import Mark, Progress
from autocap.records import Measurement, Sample, SensorInfo, Trial, TrialState
from autocap.search import Search
from autocap.strategy import CapGrid, StrategyLike
from autocap.tally import Accounts
from autocap.waiting import SteadinessWatch
from autocap.window import Window

_TALLY_EVERY_S = 5.0


class Controller:
    """Decides which caps to set, from nothing but the samples it is fed.

    original_w: the limits found on arrival, one per device. grid: the common caps to search among.
    new_strategy: builds the strategy once the baseline is known.
    """

    def __init__(
        self,
        *,
        config: TuneConfig,
        sensor: SensorInfo,
        original_w: tuple[float, ...],
        grid: CapGrid,
        progress: Progress,
        new_strategy: Callable[[Measurement], StrategyLike],
    ) -> None:
        self._config, self._sensor, self._original_w, self._grid = config, sensor, original_w, grid
        self._progress, self._new_strategy = progress, new_strategy
        self._state = State.WAITING
        self.ended_because: str | None = None  # why the tuning ended before the job did
        self._started = False
        self._seen_progress = False
        self._watch = SteadinessWatch(original_w)
        self._accounts = Accounts()
        self._tallied_s = 0.0
        self._caps_w = original_w
        self._probe: Probe | None = None
        self._again: Callable[[], Probe] | None = None  # builds the present probe anew, after an interruption
        self._search: Search | None = None
        self._asked_w: float | None = None
        self._confirmation: Confirmation | None = None
        self._kept_w = 0.0  # the cap that is being confirmed
        self._out: list[Action] = []
        self._now_s = 0.0

    @property
    def state(self) -> State:
        return self._state

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
        self._accounts.feed(sample, marks, self._state)
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
        if self._again is not None:
            self._probe = self._again()
        if self._state is State.WAITING:
            self._watch = SteadinessWatch(self._original_w)
        elif self._caps_w != self._original_w and self._state is not State.DONE:
            self._out.append(SetCaps(caps_w=self._caps_w))
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
        if self._state is State.WAITING:
            self._wait(sample, marks)
        elif self._probe is not None:
            result = self._probe.feed(sample, marks)
            if result is not None:
                self._conclude(result)

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
        rules, metric = self._rules(self._config.target_stderr), self._config.metric

        def probe(window: Window | None = None) -> Probe:
            return Probe(self._original_w, rules, lambda found: metric.cost(found, found), window=window)

        self._again, self._probe = probe, probe(steady)

    def _conclude(self, result: ProbeResult) -> None:
        self._probe = self._again = None
        if self._search is None:
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
        self._search = Search(
            self._new_strategy, self._grid, self._config.metric, result.measurement, self._config.prune_sigmas
        )
        if self._config.observe:
            first_w = self._search.ask()
            self._announce(events.WouldTry(t_s=self._now_s, caps_w=() if first_w is None else (first_w,)))
            self._enter(State.HOLDING)
            return
        self._enter(State.SEARCHING)
        self._next_trial(self._search)

    def _next_trial(self, search: Search) -> None:
        cap_w = search.ask()
        if cap_w is None:
            self._begin_confirmation(search)
            return
        self._asked_w = cap_w
        self._announce(events.TrialStarted(t_s=self._now_s, cap_w=cap_w))
        caps_w, rules = self._every(cap_w), search.rules(cap_w, self._rules(self._config.target_stderr))
        self._start_probe(caps_w, lambda: Probe(caps_w, rules, search.cost, hopeless=search.hopeless))

    def _end_trial(self, search: Search, result: ProbeResult) -> None:
        assert self._asked_w is not None
        trial = result.as_trial(self._asked_w, self._progress.trouble)
        self._asked_w = None
        self._announce(events.TrialEnded(t_s=self._now_s, trial=trial))
        search.tell(trial)
        if search.blind:
            self._warn(f"the search ends early, several trials in a row have failed: {trial.reason}")
            self._begin_confirmation(search)
        else:
            self._next_trial(search)

    def _begin_confirmation(self, search: Search) -> None:
        cap_w, predictions = search.recommend(), search.predictions()
        if predictions:
            self._announce(events.Predicted(t_s=self._now_s, caps=predictions))
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
        caps_w = self._original_w if confirmation.baseline_next else self._every(cap_w)
        rules = self._rules(self._config.target_stderr * WINDOW_ERROR)
        self._start_probe(caps_w, lambda: Probe(caps_w, rules, search.cost))

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

    # Small moves.

    def _rules(self, target_stderr: float) -> ProbeRules:
        return ProbeRules(
            settle_s=self._sensor.settle_s,
            target_stderr=target_stderr,
            limit_s=self._config.trial_s,
            min_batches=self._config.min_batches,
        )

    def _why_failed(self, result: ProbeResult) -> str | None:
        return self._progress.trouble or result.reason

    def _every(self, cap_w: float) -> tuple[float, ...]:
        return (cap_w,) * len(self._original_w)

    def _start_probe(self, caps_w: tuple[float, ...], build: Callable[[], Probe]) -> None:
        self._set(caps_w)
        self._again, self._probe = build, build()

    def _set(self, caps_w: tuple[float, ...]) -> None:
        if caps_w != self._caps_w:
            self._caps_w = caps_w
            self._out.append(SetCaps(caps_w=caps_w))

    def _fail(self, why: str) -> None:
        self._warn(why)
        self.ended_because = why
        self._finish()

    def _finish(self) -> None:
        self._probe = self._again = None
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
