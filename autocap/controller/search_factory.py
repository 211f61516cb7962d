"""From a baseline to a search: with which strategy, on which caps, and at what cost to the job."""

from collections.abc import Callable, Sequence

from autocap.config import TuneConfig
from autocap.controller.budget import SlowdownBudget
from autocap.controller.context import StepContext
from autocap.controller.exploration import Exploration
from autocap.controller.search import NewStrategy, Search
from autocap.controller.search_duration import SearchDuration
from autocap.events import Tally
from autocap.measurement.prober import Prober
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.progress import Progress
from autocap.records import Measurement, SensorInfo, Trial
from autocap.strategies.grid import CapGrid


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
