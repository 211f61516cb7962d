"""From a baseline to a search: with which strategy, on which caps, and at what cost to the job; and, where iterations
are long, how long it is going to take, and how much longer than usual its parts."""

from collections.abc import Callable, Sequence

from autocap.config import TRIAL_SECONDS, TuneConfig
from autocap.controller.budget import SlowdownBudget, objection
from autocap.controller.context import StepContext
from autocap.controller.exploration import Exploration
from autocap.controller.per_gpu import most_windows, usual_windows
from autocap.controller.search import NewStrategy, Search
from autocap.controller.tuning import TUNING
from autocap.events import Tally
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.progress import Progress
from autocap.records import Measurement, SensorInfo, Trial
from autocap.strategies.grid import CapGrid


class SearchDuration:
    """What the baseline tells of the trials to come. settle_s: of the sensor."""

    def __init__(self, config: TuneConfig, search: Search, settle_s: float) -> None:
        self._limit_s, self._fewest, self._search = config.trial_s, config.min_batches, search
        self._settle_s, self._iteration_s = settle_s, search.first.period_s
        self._balances = config.per_gpu and len(search.first.setting) > 1
        self._iterations_s = (config.min_batches + TUNING.trial_edge_iterations) * self._iteration_s
        self._trial_s = settle_s + self._iterations_s  # at least

    @property
    def is_long(self) -> bool:
        """Whether a trial does not fit into the time that it may take, by more than is worth a word."""
        return self._trial_s > TUNING.search_long_trial * self._limit_s

    @property
    def stretch(self) -> float:
        """How many times as long as usual a trial is, 1 where its iterations fit into the usual time. What is usually
        waited between trials is to be so many times as long as well."""
        return max(1.0, self._iterations_s / TRIAL_SECONDS)

    @property
    def search_s(self) -> float:
        """For a common cap, of trials that are as short as may be: they, the baselines between them and the
        confirmation, seconds."""
        expected = self._search.expected_trials
        trials = TUNING.search_likely_trials if expected is None else max(1, expected)
        return (trials + trials // TUNING.revisit_every_trials + TUNING.search_confirming_windows) * self._trial_s

    def objection(self, left: float | None) -> str | None:
        """Why not to search with so many iterations left; `None` where there is no reason, or nobody knows."""
        long_s = self.search_s if self.is_long else 0.0
        return objection(left, self._search.first, self._settle_s, long_s, self._fewest)

    def notice(self) -> str | None:
        """That the search takes long, and how long; `None` where it does not."""
        if not self.is_long:
            return None
        usual_s, most_s = usual_windows() * self._trial_s, most_windows() * self._trial_s
        more = f"; a cap per GPU takes about {_span(usual_s)} more, {_span(most_s)} at most" if self._balances else ""
        return (
            f"{self._fewest} iterations of {self._iteration_s:.3g} s do not fit into the {self._limit_s:g} s of a "
            f"trial, so a trial takes about {_span(self._trial_s)} and the search up to about "
            f"{_span(self.search_s)}{more}"
        )


def _span(seconds: float) -> str:
    """A span of time, in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class SearchFactory:
    """grid: the caps that may be tried. new_strategy: builds one. history: the trials of the searches before. seen:
    what caps have shown in these, where the job is still the same. metric: by which a search that begins is to go, from
    its baseline."""

    def __init__(
        self,
        config: TuneConfig,
        sensor: SensorInfo,
        grid: CapGrid,
        new_strategy: NewStrategy,
        progress: Progress,
        context: StepContext,
        prober: Prober,
        metric: Callable[[Measurement], Metric],
    ) -> None:
        self._config, self._settle_s, self.grid, self._new_strategy = config, sensor.settle_s, grid, new_strategy
        self._metric = metric
        self._progress, self._context, self._prober = progress, context, prober
        self.history: Sequence[Trial] = ()
        self.seen: Sequence[Measurement] = ()
        self._latest: Search | None = None

    def set_up(self, baseline: Measurement) -> None:
        """Make the search that begins at a baseline."""
        self._latest = Search(
            self._new_strategy,
            self.grid,
            self._metric(baseline),
            baseline,
            self._config.prune_sigmas,
            before=self.history,
            most_w=self._context.ceiling_w,
        )
        for shown in self.seen:
            self._latest.note(shown)

    @property
    def search(self) -> Search:
        """The latest one."""
        assert self._latest is not None
        return self._latest

    @property
    def has_own_length(self) -> bool:
        """Whether the strategy has a rule of its own for how long its trials are."""
        return self._latest is not None and self._latest.has_own_length

    @property
    def duration(self) -> SearchDuration:
        """How long it is going to take."""
        return SearchDuration(self._config, self.search, self._settle_s)

    def objection(self, done: float) -> str | None:
        """Why not to search at all, with so many iterations done; `None` where there is no reason."""
        unknown = self._config.iterations is None or self.search.first.is_relative
        return self.duration.objection(None if unknown else (self._config.iterations or 0) - done)

    def exploration(self, totals: RunningTotals, since: Tally | None, *, rough: bool) -> Exploration:
        """Begin it. since: the totals when the workload had changed. rough: the baseline is known from a few
        iterations alone."""
        duration = self.duration
        takes_long = duration.notice()
        if takes_long is not None:
            self._context.warn(takes_long)
        budget = SlowdownBudget(
            self._config.metric.max_slowdown,
            totals,
            self.search.first,
            settle_s=self._settle_s,
            fewest=self._config.min_batches,
            since=since,
            knob=self.grid.knob,
        )
        return Exploration(
            config=self._config,
            search=self.search,
            prober=self._prober,
            context=self._context,
            progress=self._progress,
            budget=budget,
            stretch=duration.stretch,
            rough=rough,
        )
