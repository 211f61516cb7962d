"""One search: what is known, and the strategy that is told of it."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from autocap.controller.known import WORSE, Known, Problem, as_now, latest, worse_than
from autocap.controller.known_curve import KnownCurve
from autocap.controller.tuning import TUNING
from autocap.knobs import TOLERANCE_W, Knob
from autocap.measurement.batches import no_better, pool
from autocap.measurement.probe import ProbeRules
from autocap.metrics import Metric, slowdown
from autocap.records import Cost, Measurement, Prediction, Trial, TrialState, same_limit, same_limits
from autocap.strategies.base import StrategyLike
from autocap.strategies.checked import CheckedStrategy
from autocap.strategies.grid import CapGrid

_SURE = 2.0  # standard errors
# From the baseline, trials of earlier searches, the caps that it may ask for, and the metric.
NewStrategy = Callable[[Measurement, Sequence[Trial], CapGrid, Metric], StrategyLike]


class Search:
    """Every method raises StrategyError when the strategy misbehaves. What is known of it is as `Known` has it.

    grid: the caps that may be asked for at all. prune_sigmas: a trial this many standard errors worse than the best is
    not worth finishing. before: trials of earlier searches. most_w: above which no cap may be asked for now, watts.
    is_full: whether no more trials are to be made, as the job ends.
    """

    def __init__(
        self,
        new_strategy: NewStrategy,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        prune_sigmas: float,
        before: Sequence[Trial] = (),
        most_w: float = math.inf,
    ) -> None:
        self._new_strategy, self._sigmas, self.is_full = new_strategy, prune_sigmas, False
        self.known = Known(
            caps=grid, metric=metric, first=baseline, baseline=baseline, before=tuple(before), most_w=most_w
        )
        self._problem = self.known.problem  # of the strategy
        self._strategy = self._made(self._problem)
        self._predicted: tuple[object, tuple[Prediction, ...]] | None = None  # and from what
        self._drawn: tuple[object, KnownCurve] | None = None  # the same

    @property
    def metric(self) -> Metric:
        return self.known.metric

    @property
    def knob(self) -> Knob:
        return self.known.caps.knob

    @property
    def first(self) -> Measurement:
        return self.known.first

    @property
    def baseline(self) -> Measurement:
        return self.known.baseline

    @property
    def top_w(self) -> float | None:
        """The ceiling that stands for the baseline, whose limit may not hold, watts; `None` where that may."""
        return self.known.ceiling_w

    @property
    def grid(self) -> CapGrid:
        return self.known.grid

    @property
    def history(self) -> tuple[Trial, ...]:
        return self.known.history

    @property
    def shown(self) -> tuple[Measurement, ...]:
        return self.known.shown

    @property
    def seen(self) -> tuple[Measurement, ...]:
        return self.known.seen

    def at_first(self, measurement: Measurement) -> Measurement:
        """What caps would have shown at the first baseline, given what they showed beside the one measured last."""
        return self.known.at_first(measurement)

    def rebase(self, baseline: Measurement) -> None:
        """The baseline was measured again: what follows is compared with this one, so that a slow drift of the machine
        cancels. The strategy is told what the cap would have shown at the first one. Under a budget that one was
        measured long, to be compared with other jobs', so that nothing but a real drift is to move what it says."""
        ratio, error = slowdown(baseline, self.first)
        stays = self.known.most_w < math.inf and abs(ratio - 1) < _SURE * error
        self.known = replace(self.known, baseline=self.first if stays else baseline)

    def anchor(self, baseline: Measurement) -> tuple[Trial, ...]:
        """The baseline was rough and is known now: all trials count as they cost against this one. Those that were
        measured, oldest first."""
        self.known = replace(self.known, first=baseline, baseline=baseline).recosted
        return self.history

    def stated(self, trial: Trial) -> Trial:
        """As it is announced: with the error of the baseline that was measured last, which the strategy, who compares
        caps with each other, is not told."""
        if trial.measurement is None:
            return trial
        return replace(trial, cost_stderr=self.metric.versus(trial.measurement, self.baseline).stderr)

    def rate(self, metric: Metric) -> None:
        """Rank caps by another metric from now on."""
        self.known = replace(self.known, metric=metric)

    def tell(self, trial: Trial) -> None:
        """The fate of the cap that was asked for last."""
        if trial.measurement is not None:
            trial = replace(trial, measurement=self.at_first(trial.measurement))
        self.known = replace(self.known, told=(*self.known.told, trial))

    def widen(self, time: float, energy: float) -> None:
        """No trial is known better than so, relative errors, as is only known now."""
        wide = [shown and no_better(shown, time, energy) for shown in (trial.measurement for trial in self.known.told)]
        told = tuple(replace(trial, measurement=shown) for trial, shown in zip(self.known.told, wide, strict=True))
        self.known = replace(self.known, told=told)

    def withdraw(self, setting: float) -> None:
        """Whatever was measured of a cap was wrong: the strategy goes on from all but that. Trials that it has cut
        short count as they are, with their larger errors."""
        wrong = {worse_than(setting, self.knob)}
        kept = (trial for trial in self.known.told if trial.setting != setting or trial.measurement is None)
        self.known = replace(self.known, told=tuple(as_now(trial, wrong) for trial in kept))

    def restrict(self, most_w: float) -> bool:
        """Ask for no cap above most_w, watts, from now on: whether that takes or gives caps. Where it is below the
        baseline's own limit, it stands for that; but one that has moved by a watt or two upward does not."""
        before_w, highest_w = self.top_w or 0.0, max(self.first.setting)
        ceiling_w: float | None = before_w if before_w <= most_w < (1 + TUNING.ceiling_same) * before_w else most_w
        if highest_w <= most_w or same_limit(highest_w, most_w):
            ceiling_w = None
        before, self.known = self.known, replace(self.known, most_w=most_w, ceiling_w=ceiling_w)
        return self.grid != before.grid or self.top_w != before.ceiling_w

    def note(self, shown: Measurement) -> None:
        """Take in what a cap has shown while it was held, outside of any trial."""
        held = latest((*self.known.held, self.at_first(shown)), lambda one: max(one.setting))
        self.known = replace(self.known, held=held)

    def note_closely(self, shown: Measurement) -> None:
        """The same of a close look: without a baseline that was measured anew, whose error would come to that of each
        of many. It stands for what was seen there or beside it before; what is of the baseline's own limits makes that
        a better one."""
        setting = max(shown.setting)
        if shown.period_rel_stderr <= TUNING.held_close_error:
            self.known = replace(self.known, looked_s={**self.known.looked_s, setting: shown.start_s})
        if same_limits(shown.setting, self.first.setting):
            first = pool([self.first, shown])
            self.known = replace(self.known, first=first, baseline=first)
        else:
            beside = TUNING.held_beside * setting if self.knob.is_power_limit else TOLERANCE_W
            others = (one for one in self.known.close if abs(max(one.setting) - setting) > beside)
            self.known = replace(self.known, close=(*others, shown))

    def is_close(self, setting: float, since_s: float) -> bool:
        """Whether a cap, watts, was looked at closely since then."""
        return self.known.looked_s.get(setting, -math.inf) >= since_s

    def knows(self, setting: float, error: float) -> bool:
        """Whether the time at a cap, watts, is known to a relative error, the baseline's apart."""
        return bool(self.seen) and self.curve.own_error(setting) <= error

    @property
    def curve(self) -> KnownCurve:
        """All that is known of the caps, those included that may not be asked for now."""
        known = self.known
        basis = known.shown, known.close, known.held, known.metric
        if self._drawn is None or self._drawn[0] != basis:
            self._drawn = basis, known.curve(self._expected())
        return self._drawn[1]

    def _expected(self) -> tuple[Prediction, ...]:
        """Of the caps that may be asked for at some time; of those that were measured where the strategy says that,
        too. By what was shown alone, as it is time and energy, whatever these cost."""
        known = self.known
        if self._predicted is None or self._predicted[0] != (known.shown, known.close):
            knows_all = self.top_w is None and known.whole_problem == known.problem
            strategy = self.strategy if knows_all else self._made(known.whole_problem)
            self._predicted = (known.shown, known.close), strategy.expect()
        return self._predicted[1]

    def _made(self, problem: Problem) -> CheckedStrategy:
        """A strategy, told of the trials."""
        of = problem.baseline, problem.history, problem.grid, problem.metric
        strategy = CheckedStrategy(lambda: self._new_strategy(*of), problem.grid)
        for trial in problem.trials:
            strategy.tell(trial)
        return strategy

    def ask(self) -> float | None:
        """The next cap to try, watts; `None` when the search is over. A ceiling that stands for the baseline comes
        first, where too little is known of it."""
        if self.is_full and self.known.complete:
            return None
        if self.top_w is not None and not self._knows_ceiling(self.top_w):
            return self.top_w
        return None if self._now is None else self.strategy.ask()

    def _knows_ceiling(self, ceiling_w: float) -> bool:
        """Whether what is known of a ceiling, watts, does to compare caps with it; or nothing more is to be had."""
        if any(abs(trial.setting - ceiling_w) <= TUNING.ceiling_same / 2 * ceiling_w for trial in self.known.told):
            return True
        return self.curve.own_errors(ceiling_w) <= TUNING.ceiling_curve_error

    @property
    def _now(self) -> Problem | None:
        """What the strategy has to solve now; `None` where a ceiling is too slow already, and nothing is faster."""
        return self.known.problem if self.top_w is None else self.known.problem_below(self.top_w, self.curve)

    @property
    def strategy(self) -> CheckedStrategy:
        """Told of all that counts now: a new one, unless that is what it knows with more trials."""
        now = self._now or self._problem
        if now.goes_on_from(self._problem):
            for trial in now.trials[len(self._problem.trials) :]:
                self._strategy.tell(trial)
        else:
            self.known = self.known.recosted
            now = self._now or now
            self._strategy = self._made(now)
        self._problem = now
        return self._strategy

    def rules(self, setting: float, usual: ProbeRules) -> ProbeRules:
        """When the trial of a cap ends, given when one does that the strategy has no rule of its own for."""
        if self._strategy.trial_length is not None:
            return usual.lasting(self._strategy.trial_length)
        if not self.measured(setting):
            return usual
        return replace(usual, target_stderr=TUNING.trial_repeat_error * usual.target_stderr)

    @property
    def has_own_length(self) -> bool:
        """Whether the strategy has a rule of its own for how long its trials are."""
        return self._strategy.trial_length is not None

    @property
    def blind(self) -> bool:
        """Whether trials fail one after the other, so that going on would only cost the job time."""
        last = self.known.told[-TUNING.search_most_failed :]
        return len(last) == TUNING.search_most_failed and all(trial.state is TrialState.FAILED for trial in last)

    def recommend(self) -> float | None:
        """The cap to keep, watts, one that was measured to the end; `None` when there is none."""
        return self.strategy.recommend()

    def runner_up(self, refused: Collection[float]) -> float | None:
        """The best cap that was measured, allowed and better than the baseline, above all that were refused for being
        too slow, or too uncertain; where settings have no order, any other. `None` when there is none. Where a proxy
        counts, better by two sigma: no measurement would make it surer."""
        above = max(refused) if self.knob.ordered else -math.inf
        rivals = [
            trial
            for trial in self.known.complete
            if trial.measurement is not None
            and trial.setting > above
            and trial.setting not in refused
            and (trial.cost or 0.0) + (_SURE * (trial.cost_stderr or 0.0) if trial.measurement.is_relative else 0.0) < 1
            and self.metric.allows(trial.measurement, self.first)
        ]
        best = min(rivals, key=lambda trial: trial.cost or 0.0, default=None)
        return None if best is None else best.setting

    def expectation(self) -> str | None:
        """What the strategy expects of the cap it recommends, in a sentence; `None` where it does not say."""
        return None if self.top_w is not None else self.strategy.explain()  # it would be over the ceiling

    def predictions(self) -> tuple[Prediction, ...]:
        """What the strategy predicts of caps that were not measured; nothing where it does not predict."""
        return self._expected() if self.top_w is not None else self.strategy.predict()

    @property
    def expected_trials(self) -> int | None:
        """How many trials the strategy is likely to need; `None` where it does not say."""
        return self._strategy.expected_trials

    def measured(self, setting: float) -> bool:
        """Whether a trial of that cap was completed."""
        return any(trial.setting == setting for trial in self.known.complete)

    def cost(self, measurement: Measurement) -> Cost:
        """The metric against the baseline as it was measured last."""
        return self.metric.cost(measurement, self.baseline)

    def decided(self, measurement: Measurement) -> bool:
        """Whether it is known if the cap is within the limit on slowdown, as far as that can be known."""
        return (
            self.metric.max_slowdown is None
            or self.metric.allows(measurement, self.baseline)
            or self.metric.forbids(measurement, self.baseline)
            or measurement.period_rel_stderr < TUNING.slowdown_finest_error
        )

    def hopeless(self, measurement: Measurement, cost: Cost) -> str | None:
        """Why measuring on is of no use: too slow, or worse than the baseline or the best trial; `None` if it is.

        It always is of use to a strategy whose trials have a length of their own.
        """
        if self.has_own_length:
            return None
        if self.metric.forbids(measurement, self.baseline, self._sigmas):
            ratio, _ = slowdown(measurement, self.baseline)
            return f"{100 * (ratio - 1):.1f} % slower, {100 * (self.metric.max_slowdown or 0):g} % allowed"
        setting, most_w = max(measurement.setting), self.top_w or math.inf
        if setting == self.top_w:
            return None  # all others are held against it
        versus = self.metric.versus(measurement, self.baseline)
        if self.top_w is None and versus.value - self._sigmas * versus.stderr > 1:
            return WORSE
        for trial in self.known.complete:
            if trial.setting == setting or trial.setting > most_w:
                continue  # a repeat is pooled with its first trial; and what is above a ceiling may not hold
            if self.metric.max_slowdown is not None and (trial.setting < setting or not self.knob.ordered):
                continue  # a lower cap may yet turn out to be too slow, and without an order any
            if cost.value - (trial.cost or 0.0) > self._sigmas * math.hypot(cost.stderr, trial.cost_stderr or 0.0):
                return worse_than(trial.setting, self.knob)
        return None
