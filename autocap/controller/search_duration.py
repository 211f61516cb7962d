"""Where iterations are long: how long a search is going to take, and how much longer than usual its parts."""

from autocap.config import TRIAL_SECONDS, TuneConfig
from autocap.controller.budget import objection
from autocap.controller.per_gpu.balancing import most_windows, usual_windows
from autocap.controller.search import Search
from autocap.controller.tuning import TUNING


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
