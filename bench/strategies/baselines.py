"""How other tools search, for comparison: as published, on our grid. None of them is ever a default.

They take each cost at its word: nothing is measured twice, no trial ends early, no tie is resolved. DEPO's window
begins with the change of the cap, Zeus warms up for 10 steps, GPOEO settles for 4 s. What is not as published:

- Baseline and confirmation are the controller's: a cap that turns out no better is not kept, which spares them worse.
- A window has whole iterations only, two at least, where DEPO's ends in the middle of one. The run's time limit of a
  trial holds for them too.
- DEPO's golden section never measures the middle that it returns; here it is the last trial, since only a measured cap
  can be kept, and where that trial fails or is too slow the nearest cap that may be kept is.
- GPOEO starts at what its trained models predict; here at the cheapest cap of a warm start's history, or else in the
  middle of the grid.

Sources: DEPO (StEP), golden_section_search_algorithm.hpp and linear_search_algorithm.hpp; Zeus 0.16,
zeus/optimizer/power_limit.py; GPOEO, EPOpt/PyEPOpt.py, WorkMode. None has options.
"""

import math
from abc import abstractmethod
from collections.abc import Generator, Iterator
from typing import ClassVar

from autocap.records import TrialLength
from autocap.strategies.base import Strategy
from autocap.strategies.options import Needs

_PHI = (math.sqrt(5) - 1) / 2
# A cap's place in the order of a search: standing first, then cost. What has no cost comes last.
_Rank = tuple[int, float]
_NO_COST: _Rank = (3, 0.0)
_DEPO_WINDOW = TrialLength(seconds=1.2)


class _AsPublished(Strategy):
    """A search written as a generator of caps: it is run anew for every question, over what is known by then.

    A cap that was tried is not asked for again, though its place in the search may come twice on a coarse grid.
    """

    NEEDS = Needs.POWER_LIMIT
    trial_length: ClassVar[TrialLength]

    @abstractmethod
    def _search(self) -> Iterator[float]:
        """The caps that the published search measures, in its order, as far as the trials so far lead it."""

    def _next(self) -> float | None:
        return next((setting for setting in self._search() if not self.tried(setting)), None)

    def _doubtful(self) -> float | None:
        return None  # none of them measures anything again

    def recommend(self) -> float | None:
        """The cheapest cap that was measured to the end and is allowed, by its one measurement."""
        best = self.best()
        return None if best is None else best.setting

    def _rank(self, setting: float) -> _Rank:
        finding = self.findings.get(setting)
        return _NO_COST if finding is None else finding.rank


class DepoLinear(_AsPublished):
    """DEPO's linear search: a tenth of the range at a time, from the highest cap to the lowest."""

    trial_length = _DEPO_WINDOW

    def _search(self) -> Iterator[float]:
        top_w, step_w = self.grid[-1], (self.grid[-1] - self.grid[0]) / 10
        for count in range(11):
            yield self.grid.nearest(top_w - count * step_w)


class DepoGolden(_AsPublished):
    """DEPO's golden section search: until the bracket is no wider than 1/25 of the range."""

    trial_length = _DEPO_WINDOW

    def _search(self) -> Iterator[float]:
        low_w, high_w = self.grid[0], self.grid[-1]
        close_w = (high_w - low_w) / 25
        while high_w - low_w > close_w:
            left_w = high_w - _PHI * (high_w - low_w)
            right_w = low_w + _PHI * (high_w - low_w)
            left, right = self.grid.nearest(left_w), self.grid.nearest(right_w)
            yield left
            yield right
            if self._rank(right) < self._rank(left):
                low_w = left_w
            else:
                high_w = right_w
        yield self.grid.nearest((low_w + high_w) / 2)

    def recommend(self) -> float | None:
        """The middle of the last bracket, or the cap nearest to it that may be kept."""
        *_, middle_w = self._search()
        keepable = [finding.setting for finding in self._keepable()]
        return min(keepable, key=lambda setting: (abs(setting - middle_w), setting), default=None)


class ZeusScan(_AsPublished):
    """Zeus's scan: every 25 W from the highest cap down."""

    trial_length = TrialLength(warm_up=10, iterations=40)

    def _search(self) -> Iterator[float]:
        width_w = self.grid[-1] - self.grid[0]
        for count in range(int(width_w / 25 + 1e-9) + 1):
            yield self.grid.nearest(self.grid[-1] - 25 * count)


class Gpoeo(_AsPublished):
    """GPOEO's local search: strides that grow until the cost rises on either side, then golden section in between.

    Its gears are the places of the grid: the first stride is a twentieth of them, at least one, and the section ends
    at fewer than three or after six tries. A side that improves the cost by more than 15 % becomes the new middle.
    """

    trial_length = TrialLength(settle_s=4.0)

    _BETTER, _CLOSE, _TRIES = 0.85, 3, 6

    def _search(self) -> Iterator[float]:
        stride = max(1, round(0.05 * len(self.grid)))
        before_w = self._cheapest_before()  # in place of what trained models predict
        start = len(self.grid) // 2 if before_w is None else self.grid.index(before_w)
        yield self.grid[start]
        low, middle, high = yield from self._outward(start, stride)
        if middle == start:
            behind, middle, low = yield from self._outward(start, -stride)
            high = high if middle == start else behind
        yield from self._section(low, middle, high)

    def _outward(self, start: int, stride: int) -> Generator[float, None, tuple[int, int, int]]:
        """Strides from a gear that grow until the cost rises: the middle before the last, the middle, the last gear."""
        top = len(self.grid) - 1
        behind = middle = gear = start
        count = 0
        while gear != (top if stride > 0 else 0):
            count += 1
            gear = min(max(gear + count * stride, 0), top)
            yield self.grid[gear]
            if not self._better(gear, middle):
                break
            if self._better(gear, middle, self._BETTER):
                behind, middle = middle, gear
        return behind, middle, gear

    def _section(self, low: int, middle: int, high: int) -> Iterator[float]:
        """Golden section between two gears; its first point lies in the wider side of the predicted one."""
        share = _PHI if high - middle > middle - low else 1 - _PHI
        middle = round(low + share * (high - low))
        yield self.grid[middle]
        for _ in range(self._TRIES):
            if high - low < self._CLOSE:
                return
            wider_above = high - middle > middle - low
            reach = (1 - _PHI) * ((high - middle) if wider_above else (low - middle))
            tried = round(middle + reach)
            yield self.grid[tried]
            if self._better(tried, middle):
                low, high = (middle, high) if middle < tried else (low, middle)
                middle = tried
            elif middle < tried:
                high = tried
            else:
                low = tried

    def _better(self, gear: int, than: int, factor: float = 1.0) -> bool:
        standing, cost = self._rank(self.grid[than])
        return self._rank(self.grid[gear]) < (standing, factor * cost)
