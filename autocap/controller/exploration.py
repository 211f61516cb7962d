"""SEARCHING and CONFIRMING: carries out what the plan says of a search, and tells what came of it."""

import math
from dataclasses import dataclass, replace
from typing import assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller import bounded, steps
from autocap.controller.actions import Keep, Kept
from autocap.controller.announcing import Announcer
from autocap.controller.budget import SlowdownBudget, TrialCosts
from autocap.controller.comparison import (
    WINDOW_ERROR,
    Caps,
    Comparison,
    Judgement,
    Ruling,
    between,
    brief,
    judge,
    scattering_as,
)
from autocap.controller.context import StepContext
from autocap.controller.doubts import Doubt, Doubts
from autocap.controller.per_gpu.balancing import Balancing, hindrance
from autocap.controller.plan import Facts
from autocap.controller.revisits import Revisits
from autocap.controller.search import Search
from autocap.controller.steps import CeilingMoved, During, Happened, SearchStep
from autocap.controller.tuning import TUNING
from autocap.events import State
from autocap.measurement.drift import changed_since
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult, ProbeRules
from autocap.measurement.prober import Prober
from autocap.progress import Progress
from autocap.records import Measurement, Trial, TrialState, same_limits

_AT_ARRIVAL = "at the limit found on arrival"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirming:
    """A cap in turn with the baseline. held: it holds already, and is only checked."""

    comparison: Comparison
    held: bool


UnderWay = None | steps.TryCap | steps.BaselineAgain | Confirming | Balancing


class Exploration:
    """One search and its confirmation. budget: what trials may cost the job in time. stretch: how many times as long
    as usual trials are. judged: what was last held against the baseline, and how it was found. before: what was decided
    before the strategy asked for more; `None` in a search of its own."""

    def __init__(
        self,
        *,
        config: TuneConfig,
        search: Search,
        prober: Prober,
        context: StepContext,
        progress: Progress,
        budget: SlowdownBudget,
        stretch: float = 1.0,
        rough: bool = False,
    ) -> None:
        self.search = search
        self._config, self._prober, self._context = config, prober, context
        self._progress, self._budget, self._costs = progress, budget, TrialCosts(budget, search, context)
        self._begun_s, self._fresh_s = context.now_s, stretch * TUNING.trial_fresh_s
        self._doubts = Doubts(search)
        self._revisits = Revisits(stretch, context.now_s, patience=TUNING.revisit_rough_patience if rough else 1.0)
        self._under_way: UnderWay = None
        self._saves_up = False  # for the trial that is under way, at the limit found on arrival
        self._trial: tuple[float, Measurement] | None = None  # when the latest complete one ended, and what it showed
        self._refused: set[float] = set()
        self._rough, self._told = rough, Announcer(search, context)
        self.judged: Judgement | None = None
        self.before: Kept | None = None
        self._window_error: float | None = None  # of a check
        self._decided_again, self._looks_changed = 0, False
        self._is_cut = False  # the trial under way, for want of savings
        self._has_recommended = False  # just now
        self._doubt: tuple[float, Doubt] | None = None  # of a cap, watts, to be told
        self._confirmed: tuple[Caps, Judgement] | None = None  # before the search went on
        self._ended_at_w: float | None = None  # the ceiling under which it ended by its curve

    def facts(self, facts: Facts) -> Facts:
        """The same, with what the search adds to it."""
        return replace(
            facts,
            rough=self._rough,
            baseline_holds=self.is_anchored,
            baseline_old=self._revisits.due(self._context.now_s),
            knob=self.search.knob,
            has_slowdown_limit=self.search.metric.max_slowdown is not None,
            is_blind=self.search.blind,
            confirmed_w=None if self._confirmed is None else max(self._confirmed[0]),
            held_before=self.before,
        )

    def carry_out(self, step: SearchStep) -> Happened | None:
        """Take a step; what came of it, where that is known at once."""
        if self._has_recommended and not isinstance(step, steps.BaselineAgain):
            self._told.predictions()
        self._has_recommended = False
        match step:
            case steps.AskForCap():
                if self._under_way is not None:  # else what is held may be being measured
                    self._prober.rest()
                self._search_on(None)
                return steps.Asked(setting=self.search.ask() if self._context.allows(self.search.grid[0]) else None)
            case steps.TryCap():
                self._search_on(step)
                if not step.announced:
                    self._told.trial(step.setting)
                self._start_trial(step.setting)
            case steps.BaselineAgain():
                self._search_on(step)
                # One that was rough is only to be a better one, as the confirmation measures it again.
                is_brief = self._rough and step.then_w is not None
                self._measure(self._context.uncapped_w, brief(self._window_rules) if is_brief else None)
            case steps.AskForBest():
                self._has_recommended, setting = True, self.search.recommend()
                is_no_cap = setting is not None and self._context.every(setting) == self._context.uncapped_w
                return steps.Recommended(setting=setting, is_no_cap=is_no_cap)
            case steps.ConfirmBest(setting=setting):
                before = self._under_way
                if isinstance(before, Confirming):
                    self._confirm(self._context.every(setting), held=before.held)
                else:
                    self._confirm(self._context.every(setting), self._shown(setting))
            case steps.NextWindow():
                assert isinstance(self._under_way, Confirming)
                self._measure_next(self._under_way.comparison)
            case steps.KeepConfirmed():
                return self._keep()
            case steps.KeepNone(why=why, unsure=unsure):
                return steps.Decided(decision=self._told.put_back(why, self.search.baseline, unsure=unsure))
            case steps.KeepByCurve():
                return self._keep_by_curve()
            case steps.BalanceGpus():
                self._balance()
            case _:
                assert_never(step)
        self._tell_doubt()
        return None

    def settle(self) -> None:
        """Something is held from now on."""
        self._under_way = self.before = None

    def _search_on(self, under_way: UnderWay) -> None:
        self._under_way, self._saves_up = under_way, False
        if self._context.state is not State.SEARCHING:
            self._context.enter(State.SEARCHING)

    def check(self, settings: Caps, window_error: float | None = None, begun: Comparison | None = None) -> None:
        """Measure caps that are held, or are to be, in turn with the limits found on arrival, to see whether they save.
        window_error: of each window, relative; `None` for the usual. begun: windows that there are already."""
        self._window_error = window_error
        self._confirm(settings, held=True, begun=begun)

    def stop_confirming(self) -> Comparison | None:
        """Nothing more is confirmed for now; the windows that were measured, `None` where there are none."""
        found = self._under_way.comparison if isinstance(self._under_way, Confirming) else None
        self._under_way = None
        self._prober.rest()
        return found if found is not None and found.begun else None

    def take(self, metered: Metered) -> Happened | None:
        """Take in a sample; what has ended by it."""
        if isinstance(self._under_way, Balancing):
            happened = self._under_way.take(metered)
            if happened is not None:
                self._under_way = None
            return happened
        if isinstance(self._under_way, steps.TryCap) and self._saves_up:
            self._start_trial(self._under_way.setting)
        result = self._prober.add(metered)
        setting = self._trying_w if metered.marks else None
        overspent = None if result is not None or setting is None else self._costs.overspent(setting)
        if overspent is not None:
            self._is_cut = True
            result = self._prober.cut(overspent)
        return None if result is None else self._ended(result)

    def _ended(self, result: ProbeResult) -> Happened:
        """What was measured has come to an end."""
        match self._under_way:
            case steps.TryCap(setting=setting):
                return self._end_trial(setting, result)
            case steps.BaselineAgain(then_w=None):
                return self._end_rough_baseline(result)
            case steps.BaselineAgain():
                return self._end_revisit(self._under_way, result)
            case Confirming():
                return self._end_window(self._under_way, result)
            case None | Balancing():
                raise AssertionError(f"nothing was being measured: {self._under_way}")
            case _:
                assert_never(self._under_way)

    @property
    def saved_s(self) -> float:
        """Seconds that the job may still lose to slow caps; infinite where nothing limits it."""
        return self._costs.saved_s

    @property
    def is_anchored(self) -> bool:
        """Whether the limits that the baseline was measured at are those that hold where no cap is tried. Under a
        ceiling that has moved since they are not: nothing is held against the baseline's own windows then."""
        return same_limits(self.search.baseline.setting, self._context.uncapped_w)

    @property
    def is_undecided(self) -> bool:
        """Whether it has come to no cap yet, and goes on from none."""
        return self.before is None and not isinstance(self._under_way, Balancing)

    @property
    def trial_so_far(self) -> Measurement | None:
        """What the trial under way has shown, as at the search's first baseline; `None` where none is, or too little
        was seen of it."""
        shown = self._prober.so_far if self._trying_w is not None else None
        return None if shown is None else self.search.at_first(shown)

    @property
    def _trying_w(self) -> float | None:
        """The cap of the trial that is being measured, watts."""
        trial = self._under_way
        return trial.setting if isinstance(trial, steps.TryCap) and not self._saves_up else None

    def under_ceiling(self) -> CeilingMoved:
        """There is another ceiling: what it meets. A trial above it ends, and counts with what it has shown, if that is
        anything."""
        before_w, changed = self.search.top_w, self.search.restrict(self._context.ceiling_w)
        match self._under_way:
            case steps.TryCap(setting=setting) | steps.BaselineAgain(then_w=float(setting)):
                during = During.SAVING_UP if self._saves_up else During.TRIAL
                during = During.BASELINE_BEFORE_TRIAL if isinstance(self._under_way, steps.BaselineAgain) else during
                # A ceiling costs nothing to try, but what is above it by now does.
                allowed = self._context.allows(setting) and not (setting == before_w and setting != self.search.top_w)
                if not allowed and during is During.TRIAL:
                    self._cut_above(setting)
                if not allowed:
                    self._doubts.drop()
                return CeilingMoved(during=during, setting=setting, allowed=allowed, other_grid=changed)
            case steps.BaselineAgain():
                return CeilingMoved(during=During.BASELINE_ALONE)
            case Confirming(comparison=comparison):
                return CeilingMoved(during=During.CONFIRMATION, allowed=self._context.allows(max(comparison.outer_w)))
            case Balancing(common_w=common_w):
                return CeilingMoved(during=During.PER_GPU, setting=common_w, allowed=self._context.allows(common_w))
            case None:
                return CeilingMoved(during=During.TRIAL)
            case _:
                assert_never(self._under_way)

    def _cut_above(self, setting: float) -> None:
        """The trial of a cap ends, as it may not hold any more."""
        result = self._prober.cut(bounded.MOVED)
        if result is None or result.measurement is None:
            return
        trial = result.as_trial(setting, self._progress.trouble)
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=self.search.stated(trial)))
        self._costs.learn(trial)
        self.search.tell(trial)

    @property
    def is_unfinished(self) -> bool:
        """Whether it has ended by its curve at a lower ceiling than there is now, which itself was the best cap, so
        that a better one may lie above."""
        if self._ended_at_w is None or self.is_anchored:
            return self.is_anchored
        if self._context.ceiling_w < (1 + TUNING.ceiling_same) * self._ended_at_w:
            return False
        best_w = self.search.curve.best_w(self._ended_at_w, self.search.metric)
        return best_w > (1 - TUNING.ceiling_same) * self._ended_at_w

    def abandon(self, reason: str) -> None:
        """Nothing more is measured, as the job or its tuning has come to an end. A trial that was under way is left
        out: it has not failed, and nobody knows what it would have shown."""
        if isinstance(self._under_way, Balancing):
            self._under_way.abandon(reason)
        self._under_way = None

    # Searching.

    def _end_revisit(self, step: steps.BaselineAgain, result: ProbeResult) -> Happened:
        """A slow drift cancels, as what follows is compared with the baseline of its own time."""
        moved = None
        if result.measurement is not None and self._rough:
            self._anchor(result.measurement, rough=self._doubts.is_pending)  # a burst may go on
        elif result.measurement is not None:
            changed = self._changed_to(result.measurement)
            if changed is not None:
                return self._look_again(changed, step.then_w)
            self._looks_changed = False
            moved = self._told.baseline(result.measurement)
        self._revisits.made(self._context.now_s, moved)
        return steps.BaselineAgainEnded(then_w=step.then_w)

    def _changed_to(self, baseline: Measurement) -> str | None:
        """Why the baseline is that of another job; `None` where it is not, or where the machine wanders, and each trial
        has a baseline of its own time."""
        where = self.search.knob.said(_AT_ARRIVAL)
        return None if self._prober.may_wander else changed_since(self.search.baseline, baseline, where)

    def _look_again(self, changed: str, setting: float | None) -> Happened:
        """It is sure where the baseline was another one the last time, too: a single look at it may be off, as where
        other work comes in a burst, and costs itself, not the search."""
        sure, self._looks_changed = self._looks_changed, True
        return steps.JobSeemsChanged(why=changed, sure=sure, then_w=setting)

    def _anchor(self, baseline: Measurement, again: Measurement | None = None, *, rough: bool = False) -> bool:
        """The baseline was rough, and is known better; whether trials do not count for that. One that was off costs
        itself, as the first trial waits for a steady job; but not trials that show another job. again: what a cap that
        was tried shows now. rough: it still is."""
        self._rough, gone = rough, self._doubts.of_another(baseline, again)
        off = self._told.refined(baseline)
        for one in gone if off is not None else ():
            self._withdraw(one.setting, f"the job has changed since: {one.why}")
        return off is not None and bool(gone)

    def _start_trial(self, setting: float) -> None:
        """Begin, or wait at the limit found on arrival until the job has saved up what the trial will cost."""
        meanwhile_w = self._costs.meanwhile(setting)
        self._saves_up = meanwhile_w is not None
        if meanwhile_w is not None:
            self._prober.rest()
            self._context.set(meanwhile_w)
            return
        settings, search = self._context.every(setting), self.search
        self._context.set(settings)
        # Whether the job is steady shows in the first trial of a search that did not wait for that.
        rules = replace(search.rules(setting, self._paced), level=self._rough and not search.history)
        self._prober.start(settings, search.cost, rules, hopeless=search.hopeless, decided=search.decided)

    def _end_trial(self, setting: float, result: ProbeResult) -> Happened:
        if result.measurement is None and self._is_cut:
            self._is_cut = False
            self._costs.cut(setting)
            return steps.SavingsSpent(setting=setting)
        self._is_cut = False
        trial = result.as_trial(setting, self._progress.trouble)
        self._under_way = None
        self.search.widen(*self._prober.least_errors)
        bursts = not (self._inferred or self._prober.is_quiet)
        settled = self._doubts.beside_others(trial) if bursts else None
        doubt = None if settled is not None else self._doubts.raised(trial, inferred=self._inferred)
        if doubt is not None:
            return self._doubted(setting, doubt)
        trial, gone = settled or self._doubts.settled(trial, inferred=self._inferred)
        self._revisits.tried(may_wander=self._prober.may_wander)
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=self.search.stated(trial)))
        self._costs.learn(trial)
        self._trial = None
        if trial.state is TrialState.COMPLETE and trial.measurement is not None:
            self._trial = (self._context.now_s, trial.measurement)
        if self._rough and trial.measurement is not None and not self.search.history:
            # How iterations scatter is known only now.
            self.search.anchor(scattering_as(self.search.first, trial.measurement))
        short = self._doubts.cut_short(self._prober.rules.least_s, quiet=self._prober.is_quiet)
        self.search.tell(trial)
        for one in (*gone, *short):
            self._withdraw(one.setting, one.why)
        if self.search.blind:
            self._context.warn(f"the search ends early, several trials in a row have failed: {trial.reason}")
        return steps.TrialEnded()

    @property
    def _inferred(self) -> bool:
        """Whether iterations are only taken for such, so that one may be a part or a multiple of the job's."""
        return self._progress.kind == "period"

    def _doubted(self, setting: float, doubt: Doubt) -> Happened:
        """A cap is to be measured once more, after the baseline. What was measured of it may not count any more."""
        self._doubt = setting, doubt
        return steps.Doubted(setting=setting, why=doubt.why)

    def _tell_doubt(self) -> None:
        """Once what follows from it has begun."""
        found, self._doubt = self._doubt, None
        if found is not None and found[1].withdraws:
            self._withdraw(found[0], found[1].why)
        elif found is not None:
            self._context.warn(f"{found[1].why}; that is measured again before it counts")

    def _leave_out(self, setting: float, why: str) -> None:
        """Go on without a cap that shows something else each time: it costs itself, not the search."""
        self._doubts.drop()
        trial = Trial(setting=setting, state=TrialState.FAILED, reason=f"it could not be confirmed: {why}")
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=trial))
        self.search.tell(trial)

    def _withdraw(self, setting: float, why: str) -> None:
        """What was measured of a cap does not count any more."""
        self._trial = None
        now_s, since_s = self._context.now_s, self._begun_s
        self._context.announce(events.TrialWithdrawn(t_s=now_s, setting=setting, since_s=since_s, reason=why))
        self.search.withdraw(setting)
        self._costs.forget(setting)
        self._doubts.withdrawn(setting)

    def _keep_by_curve(self) -> Happened:
        if isinstance(self._under_way, Balancing):
            self.abandon(f"{self._under_way.common_w:g} W may not be held any more")
            self._prober.rest()
        curve, self._ended_at_w = self.search.curve, max(self._context.uncapped_w)
        self._told.predictions()
        best_w = curve.best_w(self._ended_at_w, self.search.metric)
        return steps.Decided(decision=self._told.by_curve(curve, best_w))

    def _end_rough_baseline(self, result: ProbeResult) -> Happened:
        if result.measurement is None:
            why = f"the baseline could not be measured: {self._progress.trouble or result.reason}"
            return steps.BaselineAgainEnded(then_w=None, failed=why)
        self._anchor(result.measurement)
        self._revisits.made(self._context.now_s, None)
        return steps.BaselineAgainEnded(then_w=None)

    def _shown(self, setting: float) -> Measurement | None:
        """What the last trial has just shown of a cap; `None` where it was of another, or too long ago."""
        if self._trial is None or self._context.now_s - self._trial[0] > self._fresh_s:
            return None
        return self._trial[1] if self._trial[1].setting == self._context.every(setting) else None

    # Confirming.

    def _confirm(
        self,
        settings: Caps,
        shown: Measurement | None = None,
        *,
        held: bool = False,
        begun: Comparison | None = None,
    ) -> None:
        if self._context.state is not State.CONFIRMING:
            self._context.enter(State.CONFIRMING)
        comparison = begun or Comparison(settings, self._context.uncapped_w, shown)
        self._under_way = Confirming(comparison=comparison, held=held)
        self._measure_next(comparison)

    def _measure_next(self, comparison: Comparison) -> None:
        rules = self._window_rules
        if self._window_error is not None:
            rules = replace(rules, target_stderr=self._window_error, limit_s=max(rules.limit_s, TUNING.confirm_close_s))
        elif comparison.inner_next:
            rules = between(rules, comparison, self.search.baseline, self.search.metric)
        self._measure(comparison.next_w, rules)

    def _end_window(self, step: Confirming, result: ProbeResult) -> Happened:
        comparison, setting = step.comparison, max(step.comparison.outer_w)
        if result.measurement is None:
            why = f"it could not be confirmed: {self._progress.trouble or result.reason}"
            return steps.Judged(ruling=Ruling.NOT_BETTER, why=why)
        if self._inferred and not step.held and not comparison.inner_next:
            wrong = self._doubts.contradiction(setting, result.measurement)
            if wrong is not None and self._doubts.was_withdrawn(setting):
                self._withdraw(setting, wrong.why)
                self._leave_out(setting, wrong.why)
                return steps.SearchReopened()
            if wrong is not None:
                return self._doubted(setting, wrong)
        comparison.add(result.measurement)
        fewest = 1 if self._prober.is_quiet else TUNING.confirm_rounds_beside_others
        found = judge(comparison, self.search.metric, fewest, self.search.knob)
        if found is None:
            return steps.WindowEnded()
        baseline = self._prober.widened(found.alone[1])
        if self._rough:
            another = self._anchor(baseline, comparison.fresh)
            self._revisits.made(self._context.now_s, None)
            if another:
                return steps.SearchReopened()
        else:
            changed = self._changed_to(baseline)
            if changed is not None:
                return self._look_again(changed, setting)
        self.judged = found
        if not step.held and self._decides_again(comparison, found):
            return steps.SearchReopened()
        unsure = found.ruling is Ruling.NOT_BETTER and found.measurement.is_relative  # and a higher cap may not be
        if found.ruling is Ruling.TOO_SLOW or unsure:
            self._refused.add(setting)
            other_w = self.search.runner_up(self._refused)
            if other_w is not None:
                return steps.Judged(ruling=found.ruling, why=found.reason, runner_up_w=other_w)
        self.search.rebase(baseline)
        return steps.Judged(ruling=found.ruling, why=found.reason)

    def _decides_again(self, comparison: Comparison, found: Judgement) -> bool:
        """Whether what the confirmation has shown, of the baseline and of the cap, makes another decision of the one
        that led to it: the strategy is told, and asks for more, or recommends another cap."""
        setting, shown = max(comparison.outer_w), comparison.fresh
        if shown is None or self._decided_again >= TUNING.search_most_again or self.search.has_own_length:
            return False
        if self._config.metric.moving:  # what is best is decided again at each value
            return False
        self.search.rebase(found.alone[1])
        cost = self.search.cost(shown)
        trial = Trial(
            setting=setting, state=TrialState.COMPLETE, cost=cost.value, cost_stderr=cost.stderr, measurement=shown
        )
        stated = self.search.stated(trial)
        self.search.tell(trial)
        if self.search.ask() is None and not self._is_worth(self.search.recommend(), setting, found.ruling):
            return False
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=stated))
        self._decided_again += 1
        if found.ruling is Ruling.BETTER:
            self._confirmed = comparison.outer_w, found
        return True

    def _is_worth(self, other_w: float | None, setting: float, ruling: Ruling) -> bool:
        """Whether another cap is to be confirmed beside one that was, watts: one that is better may only give way to
        one that is better than it by more than the errors of both."""
        if other_w in (setting, None) or ruling is not Ruling.BETTER:
            return other_w not in (setting, None)
        curve, metric = self.search.curve, self.search.metric
        this, other = (metric.cost(curve.expected(one), self.search.first) for one in (setting, other_w or setting))
        return this.value - other.value > math.hypot(this.stderr, other.stderr)

    def _measure(self, settings: Caps, rules: ProbeRules | None = None) -> None:
        """rules: when it ends, instead of those of any window."""
        self._context.set(settings)
        rules = rules or self._window_rules
        repeated = isinstance(self._under_way, Confirming)
        decided = self._is_timed if repeated else self.search.decided
        self._prober.start(settings, self.search.cost, rules, decided=decided, repeated=repeated)

    def _is_timed(self, seen: Measurement) -> bool:
        """Whether a window of a confirmation has said what is asked of it, besides the cost."""
        return self.search.decided(seen) and seen.period_rel_stderr <= TUNING.confirm_window_time_error

    @property
    def _window_rules(self) -> ProbeRules:
        """When a window usually ends."""
        return replace(self._paced, target_stderr=WINDOW_ERROR * self._config.target_stderr)

    @property
    def _paced(self) -> ProbeRules:
        own_length = self.search.has_own_length
        return self._prober.rules if own_length else self._prober.paced(self._context.now_s)

    def _keep(self) -> Happened:
        """What was confirmed just now, or before the search went on."""
        held = False
        if isinstance(self._under_way, Confirming):
            settings, held = self._under_way.comparison.outer_w, self._under_way.held
        else:
            assert self._confirmed is not None
            settings, self.judged = self._confirmed
        assert self.judged is not None
        self._told.kept(settings, self.judged)
        wanted = self._config.per_gpu and not held
        hindered = hindrance(self._context.uncapped_w, self._progress) if wanted else None
        if hindered is not None:
            self._context.warn(hindered)
        decision = Keep(settings=settings, reference=self.judged.alone[0])
        return steps.Decided(decision=decision, balances=wanted and hindered is None)

    def _balance(self) -> None:
        assert self.judged is not None
        config = replace(self._config, metric=self.search.metric)
        common = self.judged.measurement
        self._under_way = Balancing.after(common, self.search, config, self._prober, self._context, self._budget)
        self._under_way.begin()
