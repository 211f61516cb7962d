"""CONFIRMING: how the windows are measured in which a cap is seen in turn with the baseline, and what they come to."""

import math
from dataclasses import replace

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.comparison import WINDOW_ERROR, Caps, Comparison, Judgement, Ruling, between
from autocap.controller.context import StepContext
from autocap.controller.search import Search
from autocap.controller.steps import Happened, Judged, SearchReopened
from autocap.controller.tuning import TUNING
from autocap.measurement.probe import ProbeRules
from autocap.measurement.prober import Prober
from autocap.records import Measurement, Trial, TrialState


class Confirmation:
    """Those of one search. window_error: of each window of a check, relative; `None` for the usual. before: caps, watts
    per device, that were confirmed before the search went on, and how they were found."""

    def __init__(self, config: TuneConfig, search: Search, prober: Prober, context: StepContext) -> None:
        self._config, self._search, self._prober, self._context = config, search, prober, context
        self.window_error: float | None = None
        self.before: tuple[Caps, Judgement] | None = None
        self._refused: set[float] = set()
        self._decided_again = 0

    @property
    def paced(self) -> ProbeRules:
        """When any measurement of the search ends."""
        own_length = self._search.has_own_length
        return self._prober.rules if own_length else self._prober.paced(self._context.now_s)

    @property
    def window_rules(self) -> ProbeRules:
        """When a window usually ends."""
        return replace(self.paced, target_stderr=WINDOW_ERROR * self._config.target_stderr)

    def measure_next(self, comparison: Comparison) -> None:
        """Begin its next window."""
        rules = self.window_rules
        if self.window_error is not None:
            rules = replace(rules, target_stderr=self.window_error, limit_s=max(rules.limit_s, TUNING.confirm_close_s))
        elif comparison.inner_next:
            rules = between(rules, comparison, self._search.baseline, self._search.metric)
        self._context.set(comparison.next_w)
        self._prober.start(comparison.next_w, self._search.cost, rules, decided=self._is_timed, repeated=True)

    def _is_timed(self, seen: Measurement) -> bool:
        """Whether a window has said what is asked of it, besides the cost."""
        return self._search.decided(seen) and seen.period_rel_stderr <= TUNING.confirm_window_time_error

    def judged(self, comparison: Comparison, found: Judgement, baseline: Measurement, *, held: bool) -> Happened:
        """What follows from it. held: its caps hold already, and were only checked."""
        setting = max(comparison.outer_w)
        if not held and self._decides_again(comparison, found):
            return SearchReopened()
        unsure = found.ruling is Ruling.NOT_BETTER and found.measurement.is_relative  # and a higher cap may not be
        if found.ruling is Ruling.TOO_SLOW or unsure:
            self._refused.add(setting)
            other_w = self._search.runner_up(self._refused)
            if other_w is not None:
                return Judged(ruling=found.ruling, why=found.reason, runner_up_w=other_w)
        self._search.rebase(baseline)
        return Judged(ruling=found.ruling, why=found.reason)

    def _decides_again(self, comparison: Comparison, found: Judgement) -> bool:
        """Whether what the confirmation has shown, of the baseline and of the cap, makes another decision of the one
        that led to it: the strategy is told, and asks for more, or recommends another cap."""
        setting, shown, search = max(comparison.outer_w), comparison.fresh, self._search
        if shown is None or self._decided_again >= TUNING.search_most_again or search.has_own_length:
            return False
        if self._config.metric.moving:  # what is best is decided again at each value
            return False
        search.rebase(found.alone[1])
        cost = search.cost(shown)
        trial = Trial(
            setting=setting, state=TrialState.COMPLETE, cost=cost.value, cost_stderr=cost.stderr, measurement=shown
        )
        stated = search.stated(trial)
        search.tell(trial)
        if search.ask() is None and not self._is_worth(search.recommend(), setting, found.ruling):
            return False
        self._context.announce(events.TrialEnded(t_s=self._context.now_s, trial=stated))
        self._decided_again += 1
        if found.ruling is Ruling.BETTER:
            self.before = comparison.outer_w, found
        return True

    def _is_worth(self, other_w: float | None, setting: float, ruling: Ruling) -> bool:
        """Whether another cap is to be confirmed beside one that was, watts: one that is better may only give way to
        one that is better than it by more than the errors of both."""
        if other_w in (setting, None) or ruling is not Ruling.BETTER:
            return other_w not in (setting, None)
        curve, metric = self._search.curve, self._search.metric
        this, other = (metric.cost(curve.expected(one), self._search.first) for one in (setting, other_w or setting))
        return this.value - other.value > math.hypot(this.stderr, other.stderr)
