"""SEARCHING and CONFIRMING: carries out what the plan says of a search, and tells what came of it."""

from dataclasses import dataclass, replace
from typing import assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller import steps
from autocap.controller.announcing import Announcer
from autocap.controller.budget import SlowdownBudget, TrialCosts
from autocap.controller.comparison import (
    Caps,
    Comparison,
    Judgement,
    Ruling,
    brief,
    judge,
    scattering_as,
)
from autocap.controller.confirmation import Confirmation
from autocap.controller.context import Keep, Kept, StepContext
from autocap.controller.doubts import Doubt, Doubts
from autocap.controller.known import MOVED
from autocap.controller.per_gpu import Balancing, hindrance
from autocap.controller.plan import Facts
from autocap.controller.search import Search
from autocap.controller.search_baseline import SearchBaseline
from autocap.controller.steps import CeilingMoved, During, Happened, SearchStep
from autocap.controller.tuning import TUNING
from autocap.events import State
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.progress import Progress
from autocap.records import Measurement, Trial, TrialState, same_limits


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
        self._under_way: UnderWay = None
        self._saves_up = False  # for the trial that is under way, at the limit found on arrival
        self._trial: tuple[float, Measurement] | None = None  # when the latest complete one ended, and what it showed
        self._confirmation = Confirmation(config, search, prober, context)
        self._told = Announcer(search, context)
        self._baseline = SearchBaseline(
            search, prober, context, self._doubts, self._told, self._withdraw, stretch, rough=rough
        )
        self.judged: Judgement | None = None
        self.before: Kept | None = None
        self._is_cut = False  # the trial under way, for want of savings
        self._has_recommended = False  # just now
        self._doubt: tuple[float, Doubt] | None = None  # of a cap, watts, to be told
        self._ended_at_w: float | None = None  # the ceiling under which it ended by its curve

    def facts(self, facts: Facts) -> Facts:
        """The same, with what the search adds to it."""
        return replace(
            facts,
            rough=self._baseline.rough,
            baseline_holds=self.is_anchored,
            baseline_old=self._baseline.revisits.due(self._context.now_s),
            knob=self.search.knob,
            has_slowdown_limit=self.search.metric.max_slowdown is not None,
            is_blind=self.search.blind,
            confirmed_w=None if self._confirmation.before is None else max(self._confirmation.before[0]),
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
                is_brief = self._baseline.rough and step.then_w is not None
                rules, settings = self._confirmation.window_rules, self._context.uncapped_w
                self._context.set(settings)
                rules = brief(rules) if is_brief else rules
                self._prober.start(settings, self.search.cost, rules, decided=self.search.decided)
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
                self._confirmation.measure_next(self._under_way.comparison)
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
        self._confirmation.window_error = window_error
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
            case steps.BaselineAgain(then_w=then_w):
                changed = self._baseline.looked_at(result.measurement, then_w)
                return changed or steps.BaselineAgainEnded(then_w=then_w)
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
        result = self._prober.cut(MOVED)
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
        rules = replace(
            search.rules(setting, self._confirmation.paced), level=self._baseline.rough and not search.history
        )
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
        self._baseline.revisits.tried(may_wander=self._prober.may_wander)
        again = trial.measurement if trial.state is TrialState.COMPLETE else None
        if again is not None and again.setting == self.search.baseline.setting:  # the baseline, measured again
            changed = self._baseline.looked_at(again, setting)
            if changed is not None:
                return changed
            cost = self.search.cost(again)
            trial = replace(trial, cost=cost.value, cost_stderr=cost.stderr)
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=self.search.stated(trial)))
        self._costs.learn(trial)
        self._trial = None
        if trial.state is TrialState.COMPLETE and trial.measurement is not None:
            self._trial = (self._context.now_s, trial.measurement)
        if self._baseline.rough and trial.measurement is not None and not self.search.history:
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
        self._baseline.refine(result.measurement)
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
        self._confirmation.measure_next(comparison)

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
        if self._baseline.warms_up(comparison.faster):
            anew = Comparison(comparison.outer_w, comparison.inner_w)
            self._under_way = Confirming(comparison=anew, held=step.held)
            return steps.WindowEnded()
        fewest = 1 if self._prober.is_quiet else TUNING.confirm_rounds_beside_others
        found = judge(comparison, self.search.metric, fewest, self.search.knob)
        if found is None:
            return steps.WindowEnded()
        baseline = self._prober.widened(found.alone[1])
        if self._baseline.rough:
            if self._baseline.refine(baseline, comparison.fresh):
                return steps.SearchReopened()
        else:
            changed = self._baseline.changed(baseline, setting)
            if changed is not None:
                return changed
        self.judged = found
        return self._confirmation.judged(comparison, found, baseline, held=step.held)

    def _keep(self) -> Happened:
        """What was confirmed just now, or before the search went on."""
        held = False
        if isinstance(self._under_way, Confirming):
            settings, held = self._under_way.comparison.outer_w, self._under_way.held
        else:
            assert self._confirmation.before is not None
            settings, self.judged = self._confirmation.before
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
