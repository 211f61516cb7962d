"""What a search may cost a job in time: with --max-slowdown no more than has accrued of it so far; under a ceiling
hardly more than to hold it at once; and never so much that the rest of the job could not pay it back.

With X the largest slowdown and τ₀ the baseline's time per iteration, N iterations that took T seconds leave
N τ₀ (1 + X) − T to be spent; pauses of the job count in neither. Probing beyond that waits at the limit found on
arrival, where every iteration earns X τ₀.
"""

import math

from autocap.controller.context import StepContext
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.events import Tally
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.totals import RunningTotals
from autocap.records import Measurement, Trial, same_limit

_SPENT = "the slowdown that --max-slowdown allows so far is used up"
_DEAR = "it costs more time than the ceiling of the budget does"


class SlowdownBudget:
    """max_slowdown: as the metric has it, 0.05 for 5 %; `None` where nothing limits it. totals: of the run.

    baseline: at the limit found on arrival. settle_s, fewest: what a trial costs at least, in seconds and iterations.
    since: the totals when the workload had changed, from where it is counted anew; `None` counts all. saved_s: before.
    knob: whose settings are tried.
    """

    def __init__(
        self,
        max_slowdown: float | None,
        totals: RunningTotals,
        baseline: Measurement,
        *,
        settle_s: float,
        fewest: int,
        since: Tally | None = None,
        saved_s: float = 0.0,
        knob: Knob = POWER_LIMIT,
    ) -> None:
        self._before_s, self._knob = saved_s, knob
        self._since = (0.0, 0.0) if since is None else _trained(since)
        self._allowed, self._totals, self._baseline = max_slowdown, totals, baseline
        self._settle_s, self._fewest = settle_s, fewest
        self._cut: dict[float, int] = {}  # how often a trial of a cap was
        self._seen: list[tuple[float, float]] = []  # cap and seconds per iteration of each cap that was measured

    def under_ceiling(self, held: Measurement, now_s: float) -> "SlowdownBudget":
        """What a search may cost from now on beside a cap that is held at or below a ceiling."""
        share = min(1.0, self._baseline.period_s / held.period_s)
        budget = SlowdownBudget(
            TUNING.ceiling_slowdown * share,
            self._totals,
            held,
            settle_s=self._settle_s,
            fewest=self._fewest,
            since=self._totals.tally(now_s),
            saved_s=TUNING.ceiling_at_once_s * share,
        )
        budget._seen = list(self._seen)
        return budget

    def beside(self, held: Measurement, now_s: float) -> None:
        """From now on it is counted beside another cap."""
        self._before_s = self.saved_s(now_s)
        tally = self._totals.tally(now_s)
        self._since = self._since if tally is None else _trained(tally)
        self._baseline = held

    def learn(self, trial: Trial) -> None:
        """Take in how slow a cap was."""
        if trial.measurement is not None:
            self._seen.append((trial.setting, trial.measurement.period_s))

    def forget(self, setting: float) -> None:
        """What was seen of a cap was wrong."""
        self._seen = [seen for seen in self._seen if seen[0] != setting]

    def saved_s(self, now_s: float) -> float:
        """Seconds that the job may still lose; negative where it has lost more, infinite where nothing limits it."""
        tally = None if self._allowed is None else self._totals.tally(now_s)
        if tally is None or self._allowed is None:
            return math.inf
        iterations, took_s = (now - then for now, then in zip(_trained(tally), self._since, strict=True))
        return self._before_s + iterations * self._baseline.period_s * (1 + self._allowed) - took_s

    def cut(self, setting: float) -> None:
        """A trial of a cap ended before it told anything, as there were no savings left: more is saved up for the next
        one, twice as much each time."""
        self._cut[setting] = self._cut.get(setting, 0) + 1

    def needed_s(self, setting: float) -> float:
        """Seconds that must have been saved up for a trial of a cap to begin: what it is expected to lose, and two
        standard errors of its time and of what was saved."""
        ratio = self._expected_ratio(setting)
        windows = self._baseline.iterations / (self._fewest + TUNING.trial_edge_iterations)
        error = self._baseline.period_rel_stderr * math.sqrt(1 + max(1.0, windows))
        needed = self.expected_loss_s(setting) + TUNING.slowdown_saved_sigmas * error * self._lasts_s(ratio)
        return needed * (1 << self._cut.get(setting, 0))

    def expected_loss_s(self, setting: float) -> float:
        """Seconds that the shortest telling trial of a cap loses, by the caps measured so far."""
        ratio = self._expected_ratio(setting)
        return self._lasts_s(ratio) * (1 - 1 / ratio)

    def _lasts_s(self, ratio: float) -> float:
        return self._settle_s + (self._fewest + TUNING.trial_edge_iterations) * ratio * self._baseline.period_s

    def _expected_ratio(self, setting: float) -> float:
        """How slow a cap is taken to be.

        Below the lowest of them time is taken to grow with 1/cap, as that of compute-bound work does at most outside
        the cliff at the low end; between two of them, to be as long as at the lower one. What another knob's settings
        come to, nothing says but those that were measured, and where these have no order, the setting itself alone.
        """
        per_device_w = self._baseline.of_gpus().power_w / len(self._baseline.setting)
        anchor_w, anchor = min(per_device_w, self._baseline.setting[0]), 1.0
        known = sorted((seen_w, period_s / self._baseline.period_s) for seen_w, period_s in self._seen)
        if not self._knob.ordered:
            known = [one for one in known if same_limit(one[0], setting)]
        above = [ratio for seen_w, ratio in known if seen_w >= setting]
        below = [ratio for seen_w, ratio in known if seen_w <= setting]
        if known and known[0][0] < anchor_w:
            anchor_w, anchor = known[0]
        if below:
            return max(1.0, below[-1])
        of_itself = anchor * anchor_w / setting if self._knob.is_power_limit else TUNING.slowdown_unknown
        return max(1.0, of_itself, *above[:1])


class TrialCosts:
    """What the trials of a search may cost the job in time. Under a ceiling below the limits found that is hardly more
    than what would be held without them; a trial of the ceiling itself costs nothing beside that."""

    def __init__(self, budget: SlowdownBudget, search: Search, context: StepContext) -> None:
        self._budget, self._search, self._context = budget, search, context
        self._under: SlowdownBudget | None = None  # a ceiling

    @property
    def saved_s(self) -> float:
        """Seconds that the job may still lose to slow caps; infinite where nothing limits it."""
        return self._budget.saved_s(self._context.now_s)

    def meanwhile(self, setting: float) -> tuple[float, ...] | None:
        """The caps to hold, watts, until the job has saved up what the trial of a cap will cost; `None` once it has."""
        if setting != self._search.top_w:
            self._heed_ceiling()
        now_s = self._context.now_s
        short = [one for one in self._of(setting) if one.saved_s(now_s) < one.needed_s(setting)]
        if not short:
            return None
        return self._context.uncapped_w if self._budget in short else self._context.every(self._best_w)

    def overspent(self, setting: float) -> str | None:
        """Why the trial of a cap is to end that has cost the job all it had saved up; `None` where it has not."""
        if all(one.saved_s(self._context.now_s) >= 0 for one in self._of(setting)):
            return None
        return _SPENT if self.saved_s < 0 else _DEAR

    def cut(self, setting: float) -> None:
        """As a budget has it."""
        for budget in self._of(setting):
            budget.cut(setting)

    def learn(self, trial: Trial) -> None:
        for budget in self._all:
            budget.learn(trial)

    def forget(self, setting: float) -> None:
        for budget in self._of(setting):
            budget.forget(setting)

    @property
    def _all(self) -> tuple[SlowdownBudget, ...]:
        return (self._budget,) if self._under is None else (self._budget, self._under)

    def _of(self, setting: float) -> tuple[SlowdownBudget, ...]:
        return () if setting == self._search.top_w else self._all

    @property
    def _best_w(self) -> float:
        """The best cap under the ceiling by all that is known, watts."""
        return self._search.curve.best_w(max(self._context.uncapped_w), self._search.metric)

    def _heed_ceiling(self) -> None:
        if not self._context.is_bound:
            self._under = None
            return
        held = self._search.curve.expected(self._best_w)
        if self._under is None:
            self._under = self._budget.under_ceiling(held, self._context.now_s)
        else:
            self._under.beside(held, self._context.now_s)


def _trained(tally: Tally) -> tuple[float, float]:
    """Iterations and their seconds, pauses left out."""
    return tally.iterations - tally.paused_iterations, tally.counted_s - tally.paused_s


def objection(
    left: float | None, baseline: Measurement, settle_s: float, long_s: float = 0.0, fewest: int = 0
) -> str | None:
    """Why not to search with so many iterations left; `None` where there is no reason, or nobody knows. long_s: of a
    search whose trials take long, what it may take up to. fewest: iterations of a trial."""
    if left is None:
        return None
    left_s = max(left, 0.0) * baseline.period_s
    window_s = max(baseline.duration_s, fewest * baseline.period_s)
    search_s = TUNING.search_trials * (settle_s + window_s + 2 * baseline.period_s)
    if left_s >= max(TUNING.search_paid_back * search_s, long_s):
        return None
    search_s = max(search_s, long_s)
    return (
        f"about {left_s:.0f} s of the job are left and a search takes about {search_s:.0f} s, so it would hardly pay "
        "back; nothing is tuned (leave out --iterations to search all the same)"
    )
