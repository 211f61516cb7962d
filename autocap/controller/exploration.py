"""SEARCHING and CONFIRMING: from a measured baseline to a decision."""

from dataclasses import replace
from typing import assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.actions import Decision, Keep, Outbox, Revert, RevertForNow, SearchAnew
from autocap.controller.budget import SlowdownBudget
from autocap.controller.comparison import WINDOW_ERROR, Caps, Comparison, Judgement, Ruling, judge
from autocap.controller.outlook import REVISIT_TRIALS
from autocap.controller.per_gpu.balancing import Balancing
from autocap.controller.per_gpu.lowering import Lowering, response
from autocap.controller.search import Search
from autocap.controller.steps import AtTrial, Confirming, Step, TrialStage
from autocap.events import State
from autocap.measurement.drift import changed_since, ratios
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.progress import Progress
from autocap.records import Measurement, TrialState

_REVISIT_S = 120.0  # the baseline is measured again after so long, or so many trials,
_STILL = 0.01  # and twice that whenever it has not moved by as much
_FRESH_S = 90.0  # a trial this old, at its end, says how the cap does now
_AT_ARRIVAL = "at the limit found on arrival"


class Exploration:
    """One search and its confirmation. budget: what trials may cost the job in time. stretch: how many times as long
    as usual trials are."""

    def __init__(
        self,
        *,
        config: TuneConfig,
        search: Search,
        prober: Prober,
        outbox: Outbox,
        progress: Progress,
        budget: SlowdownBudget,
        stretch: float = 1.0,
    ) -> None:
        self.search = search
        self._config, self._prober, self._out = config, prober, outbox
        self._progress, self._budget = progress, budget
        self._revisit_s, self._fresh_s = stretch * _REVISIT_S, stretch * _FRESH_S
        self._step: Step = None
        self._since_baseline = 0  # trials
        self._patience = 1.0  # grows while the baseline stays where it is
        self._baseline_s = outbox.now_s
        self._trial: tuple[float, Measurement] | None = None  # when the latest complete one ended, and what it showed
        self._refused: set[float] = set()

    def begin(self) -> Decision | None:
        """Start the search; a decision where there is nothing to try."""
        self._out.enter(State.SEARCHING)
        return self._next_trial()

    def check(self, caps_w: Caps) -> None:
        """Measure caps that are held in turn with the limits found on arrival, to see whether they still save."""
        self._confirm(caps_w, held=True)

    def take(self, metered: Metered) -> Decision | None:
        """Take in a sample; a decision once there is one."""
        if isinstance(self._step, Balancing):
            decision = self._step.take(metered)
        else:
            if isinstance(self._step, AtTrial) and self._step.stage is TrialStage.SAVING_UP:
                self._start_trial(self._step.cap_w)
            result = self._prober.add(metered)
            if result is None and metered.marks and self._overspent():
                result = self._prober.cut("the slowdown that --max-slowdown allows so far is used up")
            decision = None if result is None else self._end(result)
        if decision is not None:
            self._step = None
        return decision

    def _end(self, result: ProbeResult) -> Decision | None:
        """What the step measured has come to an end."""
        match self._step:
            case AtTrial(cap_w=cap_w, stage=TrialStage.REVISITING):
                return self._end_revisit(cap_w, result)
            case AtTrial(cap_w=cap_w):
                return self._end_trial(cap_w, result)
            case Confirming():
                return self._end_window(self._step, result)
            case None | Balancing():
                raise AssertionError(f"nothing was being measured: {self._step}")
            case _:
                assert_never(self._step)

    def abandon(self, reason: str) -> None:
        """Nothing more is measured, as the job or its tuning has come to an end. A trial that was under way is left
        out: it has not failed, and nobody knows what it would have shown."""
        match self._step:
            case Balancing():
                self._step.abandon(reason)
            case None | AtTrial() | Confirming():
                pass
            case _:
                assert_never(self._step)
        self._step = None

    # Searching.

    def _next_trial(self) -> Decision | None:
        cap_w = self.search.ask()
        if cap_w is None:
            return self._end_search()
        aged_s = self._out.now_s - self._baseline_s
        if max(self._since_baseline / REVISIT_TRIALS, aged_s / self._revisit_s) >= self._patience:
            self._step = AtTrial(cap_w=cap_w, stage=TrialStage.REVISITING)
            self._measure(self._out.original_w)
        else:
            self._announce_trial(cap_w)
        return None

    def _announce_trial(self, cap_w: float) -> None:
        self._out.announce(events.TrialStarted(t_s=self._out.now_s, cap_w=cap_w, expected=self.search.expected_trials))
        self._start_trial(cap_w)

    def _end_revisit(self, cap_w: float, result: ProbeResult) -> Decision | None:
        """A slow drift cancels, as what follows is compared with the baseline of its own time."""
        self._since_baseline, self._baseline_s = 0, self._out.now_s
        if result.measurement is not None:
            changed = changed_since(self.search.baseline, result.measurement, _AT_ARRIVAL)
            if changed is not None:
                return SearchAnew(why=changed)
            moved = max(abs(ratio - 1) for ratio, _ in ratios(self.search.baseline, result.measurement).values())
            self._patience = 2 * self._patience if moved < _STILL else 1.0
            self.search.rebase(result.measurement)
            self._out.announce(events.BaselineMeasured(t_s=self._out.now_s, measurement=result.measurement))
        self._announce_trial(cap_w)
        return None

    def _start_trial(self, cap_w: float) -> None:
        """Begin, or wait at the limit found on arrival until the job has saved up what the trial will cost."""
        if self._budget.saved_s(self._out.now_s) < self._budget.expected_loss_s(cap_w):
            self._step = AtTrial(cap_w=cap_w, stage=TrialStage.SAVING_UP)
            self._out.set(self._out.original_w)
            return
        self._step = AtTrial(cap_w=cap_w, stage=TrialStage.TRYING)
        self._out.set(self._out.every(cap_w))
        rules = self.search.rules(cap_w, self._prober.rules)
        self._prober.start(
            self._out.every(cap_w), self.search.cost, rules, hopeless=self.search.hopeless, decided=self.search.decided
        )

    def _overspent(self) -> bool:
        """Whether the trial under way has cost the job all the time it had saved up."""
        trying = isinstance(self._step, AtTrial) and self._step.stage is TrialStage.TRYING
        return trying and self._budget.saved_s(self._out.now_s) < 0

    def _end_trial(self, cap_w: float, result: ProbeResult) -> Decision | None:
        trial = result.as_trial(cap_w, self._progress.trouble)
        self._step = None
        self._since_baseline += 1
        self._out.announce(events.TrialEnded(t_s=self._out.now_s, trial=trial))
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
            # Caps were not tried that may be better, where trials failed or the job had saved up too little time.
            unsure = self.search.blind or self._config.metric.max_slowdown is not None
            return self._put_back("no cap that was tried is allowed and better", self.search.baseline, unsure=unsure)
        if self._out.every(cap_w) == self._out.original_w:
            return self._put_back("the limit found on arrival is already the best", self.search.baseline, unsure=False)
        self._confirm(self._out.every(cap_w), self._shown(cap_w))
        return None

    def _shown(self, cap_w: float) -> Measurement | None:
        """What the last trial has just shown of a cap; `None` where it was of another, or too long ago."""
        if self._trial is None or self._out.now_s - self._trial[0] > self._fresh_s:
            return None
        return self._trial[1] if self._trial[1].cap_w == self._out.every(cap_w) else None

    # Confirming.

    def _confirm(self, caps_w: Caps, shown: Measurement | None = None, *, held: bool = False) -> None:
        if self._out.state is not State.CONFIRMING:
            self._out.enter(State.CONFIRMING)
        comparison = Comparison(caps_w, self._out.original_w, shown)
        self._step = Confirming(comparison=comparison, held=held)
        self._measure(comparison.next_w)

    def _end_window(self, step: Confirming, result: ProbeResult) -> Decision | None:
        comparison = step.comparison
        if result.measurement is None:
            why = f"it could not be confirmed: {self._progress.trouble or result.reason}"
            return self._put_back(why, self.search.baseline, unsure=True)
        comparison.add(result.measurement)
        found = judge(comparison, self._config.metric)
        if found is None:
            self._measure(comparison.next_w)
            return None
        changed = changed_since(self.search.baseline, found.baseline, _AT_ARRIVAL)
        if changed is not None:
            return SearchAnew(why=changed)
        if found.ruling is Ruling.TOO_SLOW:
            self._refused.add(max(comparison.outer_w))
            other_w = self.search.runner_up(self._refused)
            if other_w is not None:
                self._confirm(self._out.every(other_w), held=step.held)
                return None
        self.search.rebase(found.baseline)
        match found.ruling:
            case Ruling.BETTER:
                return self._keep(comparison.outer_w, found, held=step.held)
            case Ruling.NOT_BETTER | Ruling.TOO_SLOW:
                return self._put_back(found.reason, found.baseline, unsure=True)
            case _:
                assert_never(found.ruling)

    def _measure(self, caps_w: Caps) -> None:
        self._out.set(caps_w)
        rules = replace(self._prober.rules, target_stderr=WINDOW_ERROR * self._config.target_stderr)
        self._prober.start(caps_w, self.search.cost, rules, decided=self.search.decided)

    # Decisions.

    def _put_back(self, reason: str, reference: Measurement, *, unsure: bool) -> Decision:
        """unsure: a later search may find something better."""
        expected = self.search.expectation()
        self._out.announce(
            events.Decided(t_s=self._out.now_s, cap_w=None, confirmed=False, reason=reason, expected=expected)
        )
        return RevertForNow(reference=reference) if unsure else Revert(reference=reference)

    def _keep(self, caps_w: Caps, found: Judgement, *, held: bool) -> Decision | None:
        """held: the caps hold already, and were only looked at again."""
        self._out.announce(
            events.Decided(
                t_s=self._out.now_s,
                cap_w=max(caps_w),
                confirmed=True,
                reason=found.reason,
                measurement=found.measurement,
                baseline=found.baseline,
                expected=self.search.expectation(),
            )
        )
        if self._config.per_gpu and not held and self._can_balance():
            self._step = self._balancing(max(caps_w), found.measurement)
            return self._step.begin()
        return Keep(caps_w=caps_w, reference=found.measurement)

    def _can_balance(self) -> bool:
        """Whether a cap per GPU can be found; says why not."""
        if len(self._out.original_w) == 1:
            self._out.warn("--per-gpu changes nothing for a job on one GPU: its cap is the common one")
            return False
        if self._progress.confidence == "low":
            self._out.warn(
                f"no cap per GPU is looked for: iterations from {self._progress.kind} are too uncertain for it"
            )
            return False
        return True

    def _balancing(self, common_w: float, common: Measurement) -> Balancing:
        measured = [trial.measurement for trial in self.search.history if trial.measurement is not None]
        near = response(common_w, [self.search.first, *measured])
        return Balancing(
            config=self._config,
            lowering=Lowering(common_w, len(self._out.original_w), self.search.grid, near),
            prober=self._prober,
            outbox=self._out,
            budget=self._budget,
            baseline=self.search.baseline,
            common=common,
        )
