"""A job that ends while a cap is searched for: what is kept once its end is near, and what is said when it has come.

When a job ends is known from its iterations: the user says how many there are, or earlier runs of the same job do.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from autocap import events
from autocap.config import QUICK_TRIAL_SECONDS, TuneConfig
from autocap.controller.context import Keep, StepContext
from autocap.controller.exploration import Exploration
from autocap.controller.holding import Done, Exploring, Holding, Observing, Phase
from autocap.controller.intake import Intake
from autocap.controller.known import is_instead
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.controller.waiting import Baseline, Waiting
from autocap.events import State
from autocap.measurement.batches import pool
from autocap.measurement.drift import impossible
from autocap.measurement.prober import Prober
from autocap.metrics import slowdown
from autocap.progress import LONGER, Progress
from autocap.records import Cost, Measurement, TrialState

_ROUNDED_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best that a search has measured so far. measurement, own: what its own windows show, and the metric of that.
    cost: the metric by all that was measured, as the best of several is mostly one that chance has favoured. Errors of
    both included, 1 at the baseline."""

    setting: float
    measurement: Measurement
    own: Cost
    cost: Cost

    @classmethod
    def of(cls, exploration: Exploration) -> "Best | None":
        """Of the caps that were measured, are allowed and can be beside the baseline, that of the trial under way too;
        `None` where there is none."""
        search, windows = exploration.search, dict[float, list[Measurement]]()
        found_w = max(search.first.setting)
        complete = [trial.measurement for trial in search.history if trial.state is TrialState.COMPLETE]
        for measured in (*complete, exploration.trial_so_far):
            if measured is not None and is_instead(max(measured.setting), found_w, search.knob):
                windows.setdefault(max(measured.setting), []).append(measured)
        base, metric = search.first, search.metric
        found = []
        for setting, of_cap in windows.items():
            measured = pool(of_cap)
            if not metric.allows(measured, base) or impossible(measured, base, search.knob) is not None:
                continue
            own = cost = metric.versus(measured, base)
            if search.measured(setting) and not measured.is_relative:
                cost = metric.cost(search.curve.expected(setting), search.first)
            found.append(cls(setting=setting, measurement=measured, own=own, cost=cost))
        return min(found, key=lambda one: one.cost.value + one.cost.stderr, default=None)

    def is_clear(self, search: Search) -> bool:
        """Whether it may be kept without a confirmation."""
        _, time_error = slowdown(self.measurement, search.first)
        highest = self.own.value + TUNING.end_clear_sigmas * self.own.stderr + self.own.shared
        return highest < 1 and time_error <= TUNING.end_known_time


class Ending:
    """usual_iterations: of the whole job in earlier runs, by what counts them; `None` where nobody knows."""

    def __init__(
        self,
        config: TuneConfig,
        context: StepContext,
        intake: Intake,
        prober: Prober,
        progress: Progress,
        usual_iterations: Callable[[str], float | None],
    ) -> None:
        self._config, self._context, self._intake = config, context, intake
        self._prober, self._progress, self._usual = prober, progress, usual_iterations
        self._searched = False
        self._before: str | None = None  # the best cap of a search that the job has left behind
        self._look_s = 0.0  # when to look again whether something is to be kept
        self._best: Best | None = None  # that is to be kept as the end is near
        self._best_left_s = 0.0

    def hasten(self, search: Search) -> None:
        """A search begins, or may: have trials take no more than their part of what is left of the job, where that is
        known."""
        self._searched = True
        left_s = None if search.has_own_length else self._left_s(search.first)
        limit_s = self._config.trial_s
        if left_s is not None:
            limit_s = min(limit_s, max(TUNING.end_trial_least_s, left_s / TUNING.end_trial_parts))
        self._prober.rules = replace(self._prober.rules, limit_s=limit_s)

    def leave(self, exploration: Exploration) -> None:
        """The search is left behind, as the job has changed."""
        self._before = self._named(exploration)

    def is_near(self, phase: Exploring) -> bool:
        """Whether the job ends before a confirmation would, and a cap is better beyond doubt."""
        exploration, search = phase.exploration, phase.exploration.search
        if phase.held_w is not None or not (exploration.is_undecided and exploration.is_anchored):
            return False
        left_s = self._left_s(search.first)
        if (
            left_s is None
            or left_s > TUNING.end_ample_confirmations * self._confirmation_s(search)
            or self._context.now_s < self._look_s
        ):
            return False
        search.is_full = self._prober.may_wander  # what was tried is confirmed while there is time
        if left_s > self._confirmation_s(search):
            return False
        self._look_s = self._context.now_s + TUNING.end_look_every_s
        self._best, self._best_left_s = Best.of(exploration), left_s
        return self._best is not None and self._best.is_clear(search) and self._context.allows(self._best.setting)

    def keep(self, exploration: Exploration) -> Keep:
        """The best cap so far, unconfirmed."""
        search, best, left_s = exploration.search, self._best, self._best_left_s
        assert best is not None
        exploration.abandon(events.JOB_ENDED)
        self._context.announce(
            events.Decided(
                t_s=self._context.now_s,
                setting=best.setting,
                confirmed=False,
                reason=f"{self._shown(search, best)} is the best so far, and the job ends in about {left_s:.0f} s, "
                "before it could be confirmed",
                measurement=best.measurement,
                baseline=search.first,
                expected=search.expectation(),
                cut_short=True,
            )
        )
        again_s = TUNING.end_look_again * max(left_s, self._confirmation_s(search))
        self._prober.rest()
        return Keep(settings=self._context.every(best.setting), reference=best.measurement, again_s=again_s)

    def tell(self, phase: Phase, *, of_job: bool) -> None:
        """Say why nothing was decided. of_job: the job has ended, and not its tuning alone."""
        why = None if self._config.observe else self._why(phase, "the job ended" if of_job else "the tuning ended")
        if why is not None:
            self._context.announce(
                events.Decided(t_s=self._context.now_s, setting=None, confirmed=False, reason=why, cut_short=True)
            )

    def _why(self, phase: Phase, ended: str) -> str | None:
        match phase:
            case Waiting() if self._progress.trouble is not None:
                why, advice = self._progress.trouble, self._progress.advice
                advice = advice.removeprefix(f"{LONGER}, or ")  # which is too late
                after = f"{ended} after {self._context.now_s:.0f} s"
                return f"{after} without a count of its iterations: {why}; {advice}"
            case Waiting() | Baseline() if self._searched:
                before = "" if self._before is None else f"before that {self._before}; "
                return f"{ended} while its baseline was measured anew, as it had changed; {before}{self._remedy()}"
            case Waiting() | Baseline():
                return f"{ended} before its baseline was measured; {self._remedy()}"
            case Exploring(exploration=exploration):
                search = exploration.search
                rest_s = self._rest_s(search)
                tried = search.history or exploration.trial_so_far is not None
                found = "none of the caps tried so far may be kept" if tried else "no cap was measured yet"
                found = self._named(exploration) or search.knob.said(found)
                rounded_s = _ROUNDED_S * math.ceil(rest_s / _ROUNDED_S)
                return f"{ended} about {rounded_s} s before the search would have; {found}; {self._remedy(rest_s)}"
            case Holding() | Observing() | Done():
                return None
            case _:
                assert_never(phase)

    def _named(self, exploration: Exploration) -> str | None:
        """The best cap of a search so far, in words; `None` where there is none."""
        best = Best.of(exploration)
        if best is None:
            return None
        better = "the best so far was" if best.cost.value < 1 else "nothing tried was better so far than"
        return f"{better} {self._shown(exploration.search, best)}, not confirmed"

    def _left_s(self, baseline: Measurement) -> float | None:
        """Seconds until the job ends, at the limits found on arrival; `None` where nobody knows."""
        done = self._intake.done
        if baseline.is_relative:
            return None
        if self._config.iterations is not None:
            return max(0.0, self._config.iterations - done) * baseline.period_s
        usual = self._usual(self._progress.kind)
        if usual is None or done > usual:  # it is longer this time
            return None
        return (usual - done) * baseline.period_s

    def _trial_s(self, search: Search) -> float:
        """What a trial of this search takes, seconds; as long as one may where none has ended, or where other work
        keeps them all as short as may be."""
        rules, wanders = self._prober.rules, self._prober.may_wander
        took_s = [trial.measurement.duration_s for trial in search.history if trial.measurement is not None]
        longest_s = min(rules.limit_s, self._prober.paced(self._context.now_s).pace_s)
        return rules.settle_s + (sum(took_s) / len(took_s) if took_s and not wanders else longest_s)

    def _confirmation_s(self, search: Search) -> float:
        """What is needed to confirm a cap, or what still is where that is under way, seconds."""
        windows = 1 if self._context.state is State.CONFIRMING else TUNING.search_confirming_windows
        return windows * self._trial_s(search)

    def _rest_s(self, search: Search) -> float:
        """What the search would still take, seconds. Where the machine wanders there are twice as many trials, and a
        window of the baseline before each of them."""
        trials, times = 0, 2 if self._prober.may_wander else 1
        if self._context.state is not State.CONFIRMING:
            expected = search.expected_trials or TUNING.end_likely_trials
            trials = times * max(1, times * expected - len(search.history))
        return trials * self._trial_s(search) + times * self._confirmation_s(search)

    def _remedy(self, rest_s: float | None = None) -> str:
        """rest_s: that the search would still have taken; `None` where that is not known."""
        longer = "a job of some minutes would do"
        if rest_s is not None:
            minutes = math.ceil(TUNING.end_spare_time * (self._context.now_s + rest_s) / 60)
            longer = f"a job of {minutes} minute{'s' * (minutes > 1)} would do"
        return longer if self._config.trial_s <= QUICK_TRIAL_SECONDS else f"--quick or {longer}"

    def _shown(self, search: Search, best: Best) -> str:
        percent, error = 100 * (best.cost.value - 1), 100 * best.cost.stderr
        shown = search.knob.text(best.setting)
        return f"{shown} ({search.metric.name} {percent:+.0f} ± {max(1, round(error))} %)"
