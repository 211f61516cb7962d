"""SEARCHING and CONFIRMING: from a measured baseline to a decision.

One measurement is under way at a time, and what is to be done with its result is kept beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.actions import Decision, Outbox
from autocap.controller.budget import SlowdownBudget
from autocap.controller.confirmation import WINDOW_ERROR, Confirmation, Verdict
from autocap.controller.per_gpu.balancing import Balancing
from autocap.controller.per_gpu.lowering import Lowering, response
from autocap.controller.search import Search
from autocap.events import State
from autocap.measurement.drift import changed_since, ratios
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.progress import Mark, Progress
from autocap.records import Measurement, Sample, Trial, TrialState

_REVISIT_TRIALS, _REVISIT_S = 4, 120.0  # the baseline is measured again after as many, or so long,
_STILL = 0.01  # and twice that whenever it has not moved by as much
_FRESH_S = 90.0  # a trial this old, at its end, says how the cap does now
_AT_ARRIVAL = "at the limit found on arrival"


class Exploration:
    """One search and its confirmation.

    budget: what trials may cost the job in time, `None` where nothing limits it.
    """

    def __init__(
        self,
        *,
        config: TuneConfig,
        search: Search,
        prober: Prober,
        outbox: Outbox,
        accounts: RunningTotals,
        progress: Progress,
        budget: SlowdownBudget | None,
    ) -> None:
        self.search = search
        self._config, self._prober, self._out = config, prober, outbox
        self._accounts, self._progress, self._budget = accounts, progress, budget
        self._then: Callable[[ProbeResult], Decision | None] = self._end_trial
        self._asked_w: float | None = None
        self._spent_from: events.Tally | None = None  # when the trial under way began, which costs from `_budget`
        self._since_baseline = 0  # trials
        self._patience = 1.0  # grows while the baseline stays where it is
        self._baseline_s = outbox.now_s
        self._trial: tuple[float, Measurement] | None = None  # when the latest complete one ended, and what it showed
        self._refused: set[float] = set()
        self._balancing: Balancing | None = None  # after the common cap was kept
        self._holding = False  # whether what is measured is held already

    def begin(self) -> Decision | None:
        """Start the search; a decision where there is nothing to try."""
        self._out.enter(State.SEARCHING)
        return self._next_trial()

    def check(self, caps_w: tuple[float, ...]) -> Decision | None:
        """Measure caps that are held in turn with the limits found on arrival, to see whether they still save."""
        self._holding = True
        return self._confirm(caps_w, None)

    def feed(self, sample: Sample, marks: Sequence[Mark], *, paused: bool) -> Decision | None:
        """A decision once there is one."""
        if self._balancing is not None:
            decision = self._balancing.feed(sample, marks, paused=paused)
            self._balancing = self._balancing if decision is None else None
            return decision
        if self._asked_w is not None and self._prober.resting:
            self._start_trial(self._asked_w)
        result = self._prober.feed(sample, marks, paused=paused)
        if result is None and marks and self._overspent():
            result = self._prober.cut("the slowdown that --max-slowdown allows so far is used up")
        return None if result is None else self._then(result)

    def abandon(self, reason: str) -> None:
        """Nothing more is measured; a trial that was under way has failed."""
        if self._asked_w is not None:
            unfinished = Trial(cap_w=self._asked_w, state=TrialState.FAILED, reason=reason)
            self._out.announce(events.TrialEnded(t_s=self._out.now_s, trial=unfinished))
        self._asked_w = None
        if self._balancing is not None:
            self._balancing.abandon(reason)

    # Searching.

    def _next_trial(self) -> Decision | None:
        cap_w = self.search.ask()
        if cap_w is None:
            return self._end_search()
        self._asked_w = cap_w
        aged_s = self._out.now_s - self._baseline_s
        if max(self._since_baseline / _REVISIT_TRIALS, aged_s / _REVISIT_S) >= self._patience:
            self._measure(self._out.original_w, self._end_revisit)
            return None
        self._announce_trial(cap_w)
        self._start_trial(cap_w)
        return None

    def _announce_trial(self, cap_w: float) -> None:
        self._out.announce(events.TrialStarted(t_s=self._out.now_s, cap_w=cap_w, expected=self.search.expected_trials))

    def _end_revisit(self, result: ProbeResult) -> Decision | None:
        """A slow drift cancels, as what follows is compared with the baseline of its own time."""
        self._since_baseline, self._baseline_s = 0, self._out.now_s
        assert self._asked_w is not None
        if result.measurement is not None:
            changed = changed_since(self.search.baseline, result.measurement, _AT_ARRIVAL)
            if changed is not None:
                self._asked_w = None
                return Decision(caps_w=None, reference=result.measurement, changed=changed)
            moved = max(abs(ratio - 1) for ratio, _ in ratios(self.search.baseline, result.measurement).values())
            self._patience = 2 * self._patience if moved < _STILL else 1.0
            self.search.rebase(result.measurement)
            self._out.announce(events.BaselineMeasured(t_s=self._out.now_s, measurement=result.measurement))
        self._announce_trial(self._asked_w)
        self._start_trial(self._asked_w)
        return None

    def _start_trial(self, cap_w: float) -> None:
        """Begin, or wait at the limit found on arrival until the job has saved up what the trial will cost."""
        tally = self._accounts.tally(self._out.now_s)
        if self._budget is not None and tally is not None:
            if self._budget.saved_s(tally) < self._budget.expected_loss_s(cap_w):
                self._out.set(self._out.original_w)
                return
            self._spent_from = tally
        self._out.set(self._out.every(cap_w))
        self._then = self._end_trial
        rules = self.search.rules(cap_w, self._prober.rules)
        self._prober.start(
            self._out.caps_w, self.search.cost, rules, hopeless=self.search.hopeless, decided=self.search.decided
        )

    def _overspent(self) -> bool:
        """Whether the trial under way has cost the job all the time it had saved up."""
        if self._budget is None or self._spent_from is None or self._asked_w is None:
            return False
        now = self._accounts.tally(self._out.now_s)
        return now is not None and self._budget.saved_s(now) < 0

    def _end_trial(self, result: ProbeResult) -> Decision | None:
        assert self._asked_w is not None
        trial = result.as_trial(self._asked_w, self._progress.trouble)
        self._asked_w = self._spent_from = None
        self._since_baseline += 1
        self._out.announce(events.TrialEnded(t_s=self._out.now_s, trial=trial))
        if self._budget is not None:
            self._budget.learn(trial)
        self._trial = None
        if trial.state is TrialState.COMPLETE and trial.measurement is not None:
            self._trial = (self._out.now_s, trial.measurement)
        self.search.tell(trial)
        if self.search.blind:
            self._out.warn(f"the search ends early, several trials in a row have failed: {trial.reason}")
            return self._end_search()
        return self._next_trial()

    def _end_search(self) -> Decision | None:
        cap_w, predictions = self.search.recommend(), self.search.predictions()
        if predictions:
            self._out.announce(events.Predicted(t_s=self._out.now_s, caps=predictions))
        if cap_w is None:
            verdict = Verdict(confirmed=False, reason="no cap that was tried is allowed and better")
            return self._decide(None, verdict, unsure=self._cut_short)
        if self._out.every(cap_w) == self._out.original_w:
            return self._decide(None, Verdict(confirmed=False, reason="the limit found on arrival is already the best"))
        return self._confirm(self._out.every(cap_w), self._shown(cap_w))

    @property
    def _cut_short(self) -> bool:
        """Whether caps were not tried that may be better, as trials failed or the job had saved up too little time."""
        return self.search.blind or self._budget is not None

    def _shown(self, cap_w: float) -> Measurement | None:
        """What the last trial has just shown of a cap; `None` where it was of another, or too long ago."""
        if self._trial is None or self._out.now_s - self._trial[0] > _FRESH_S:
            return None
        return self._trial[1] if self._trial[1].cap_w == self._out.every(cap_w) else None

    # Confirming.

    def _confirm(self, caps_w: tuple[float, ...], shown: Measurement | None) -> Decision | None:
        confirmation = Confirmation(self._config.metric, shown)
        if self._out.state is not State.CONFIRMING:
            self._out.enter(State.CONFIRMING)
        self._next_window(confirmation, caps_w)
        return None

    def _next_window(self, confirmation: Confirmation, caps_w: tuple[float, ...]) -> None:
        next_w = self._out.original_w if confirmation.baseline_next else caps_w
        self._measure(next_w, lambda result: self._end_window(confirmation, caps_w, result))

    def _end_window(
        self, confirmation: Confirmation, caps_w: tuple[float, ...], result: ProbeResult
    ) -> Decision | None:
        if result.measurement is None:
            why = f"it could not be confirmed: {self._progress.trouble or result.reason}"
            return self._decide(None, Verdict(confirmed=False, reason=why), unsure=True)
        verdict = confirmation.add(result.measurement)
        if verdict is None:
            self._next_window(confirmation, caps_w)
            return None
        changed = None
        if verdict.baseline is not None:
            changed = changed_since(self.search.baseline, verdict.baseline, _AT_ARRIVAL)
        if changed is not None:
            return Decision(caps_w=None, reference=verdict.baseline, changed=changed)
        if verdict.too_slow:
            self._refused.add(max(caps_w))
            other_w = self.search.runner_up(self._refused)
            if other_w is not None:
                return self._confirm(self._out.every(other_w), None)
        if verdict.baseline is not None:
            self.search.rebase(verdict.baseline)
        return self._decide(caps_w if verdict.confirmed else None, verdict, unsure=not verdict.confirmed)

    def _measure(self, caps_w: tuple[float, ...], then: Callable[[ProbeResult], Decision | None]) -> None:
        self._then = then
        self._out.set(caps_w)
        rules = replace(self._prober.rules, target_stderr=WINDOW_ERROR * self._config.target_stderr)
        self._prober.start(caps_w, self.search.cost, rules, decided=self.search.decided)

    def _decide(self, caps_w: tuple[float, ...] | None, verdict: Verdict, *, unsure: bool = False) -> Decision | None:
        self._out.announce(
            events.Decided(
                t_s=self._out.now_s,
                cap_w=None if caps_w is None else max(caps_w),
                confirmed=verdict.confirmed,
                reason=verdict.reason,
                measurement=verdict.measurement if verdict.confirmed else None,
                baseline=verdict.baseline if verdict.confirmed else None,
                expected=self.search.expectation(),
            )
        )
        reference = verdict.measurement if caps_w is not None else verdict.baseline or self.search.baseline
        if caps_w is not None and verdict.measurement is not None and self._may_balance:
            return self._balance(max(caps_w), verdict.measurement)
        return Decision(caps_w=caps_w, reference=reference, unsure=unsure)

    # A cap per GPU.

    @property
    def _may_balance(self) -> bool:
        """Whether a cap per GPU was asked for and can be found, now that a common one is kept."""
        if not self._config.per_gpu or self._holding:
            return False
        if len(self._out.original_w) == 1:
            self._out.warn("--per-gpu changes nothing for a job on one GPU: its cap is the common one")
            return False
        if self._progress.confidence == "low":
            self._out.warn(
                f"no cap per GPU is looked for: iterations from {self._progress.kind} are too uncertain for it"
            )
            return False
        return True

    def _balance(self, common_w: float, common: Measurement) -> Decision | None:
        measured = [trial.measurement for trial in self.search.history if trial.measurement is not None]
        near = response(common_w, [self.search.first, *measured])
        self._balancing = Balancing(
            config=self._config,
            lowering=Lowering(common_w, len(self._out.original_w), self.search.grid, near),
            prober=self._prober,
            outbox=self._out,
            accounts=self._accounts,
            budget=self._budget,
            baseline=self.search.baseline,
            common=common,
        )
        return self._balancing.begin()
