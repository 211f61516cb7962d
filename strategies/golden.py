"""Golden-section search on the grid, with a guard against noise: few probes on a curve with one valley.

The bracket is the best cap with its tried neighbours, and the next probe divides the wider of the two gaps by the
golden ratio: no cap is measured twice in the search proper, and a cap tried for another reason only helps. One step
beyond either end of the grid counts as tried and worse, so the ends are reached where the cost falls towards them.

The upper end is the draw where the driver says that the limit found on arrival does not bind: caps above the draw are
much the same setting. They are tried only if the best cap so far lies at the draw or is no better than the baseline,
since caps above the mean power do bind in the busier moments of a job.

Noise: two caps within two sigma of each other do not say on which side of either the valley lies. So every cap
within two sigma of the best keeps its gaps in play while they are wide. A narrow gap between two such caps is left
alone, but before it is given up both are measured again, to half the error; what that teaches opens the gap on the
side of the better one, or shows that what could be gained is less than what could be measured.

A slowdown limit: caps that break it rank below all others, the slower the lower, which moves the bracket up, and
nothing is tried next below a cap that surely breaks it. A failed cap is passed over for its neighbours. Of a warm
start's history only the cheapest cap is used, as the first probe.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from autocap.strategies.base import Strategy
from autocap.strategies.findings import Finding
from autocap.strategies.grid import DEFAULT_STEP_W
from autocap.strategies.options import Option

_SHARE = (3 - math.sqrt(5)) / 2  # of a gap, from its better end to the probe: 0.382
_WIDE = 1 / 6  # of the grid's width: a gap that is looked into even where noise hides its better side


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """What lies between two neighbouring caps that have a cost.

    low, high: their grid indices; -1 and len(grid) stand for the outside. below, above: what is known of the two,
    `None` outside. free: the indices in between that no trial was made of.
    """

    low: int
    high: int
    below: Finding | None
    above: Finding | None
    free: tuple[int, ...]

    def probe(self) -> int:
        """The free index closest to the golden section from the better end, the lower of two."""
        rising = self.below is not None and (self.above is None or self.below.rank < self.above.rank)
        step = _SHARE * (self.high - self.low)
        target = self.low + step if rising else self.high - step
        return min(self.free, key=lambda index: (abs(index - target), index))


class Golden(Strategy):
    """Divides the widest gap beside the best cap until every such gap is narrower than the tolerance."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            name="tolerance",
            kind=float,
            default=DEFAULT_STEP_W,
            elsewhere=1.0,
            meaning="watts, or places of another knob's list; a narrower gap between tried caps is not searched",
            minimum=0.0,
        ),
    )

    @property
    def expected_trials(self) -> int:
        """Of a noiseless search: each trial leaves 0.618 of the bracket, until that is as narrow as the tolerance."""
        width_w = self.grid[-1] - self.grid[0]
        narrow_w = max(self._number("tolerance"), width_w / len(self.grid), 1e-9)
        return 2 + max(0, math.ceil(math.log(max(width_w, narrow_w) / narrow_w) / -math.log(1 - _SHARE)))

    def _next(self) -> float | None:
        hint_w = self._cheapest_before()
        if hint_w is not None and not self.tried(hint_w):
            return hint_w
        leader = min(self.findings.values(), key=lambda finding: finding.rank, default=None)
        gaps = [gap for gap in self._gaps(self._top(leader)) if gap.free and self._worth_a_probe(gap, leader)]
        if not gaps:
            return None
        return self.grid[max(gaps, key=lambda gap: (gap.high - gap.low, -gap.low)).probe()]

    def _top(self, leader: Finding | None) -> int:
        """The highest place to try: the lowest cap above the draw, or the end once the best seems to lie beyond."""
        end, draw_w = len(self.grid) - 1, self._draw_w()
        top = sum(setting < draw_w for setting in self.grid)
        at_top = leader is not None and (leader.setting >= self.grid[top] or leader.cost >= 1)
        nothing_left = leader is None and all(self.tried(setting) for setting in self.grid[: top + 1])
        return end if at_top or nothing_left else top

    def _gaps(self, top: int) -> list[_Gap]:
        """All gaps up to the place `top`, or to the highest cap that has a cost, from the lowest to the highest."""
        known = [index for index, setting in enumerate(self.grid) if setting in self.findings]
        found = [None, *(self.findings[self.grid[index]] for index in known), None]
        fences = [-1, *known, max([top, *known]) + 1]
        return [
            _Gap(
                low=low,
                high=high,
                below=below,
                above=above,
                free=tuple(index for index in range(low + 1, high) if not self.tried(self.grid[index])),
            )
            for (low, below), (high, above) in pairwise(zip(fences, found, strict=True))
        ]

    def _worth_a_probe(self, gap: _Gap, leader: Finding | None) -> bool:
        """Whether the best cap may lie in the gap, and the gap is wide enough to look."""
        if leader is None:
            return True  # nothing has a cost yet
        if gap.above is not None and gap.above.forbidden:
            return False  # whatever lies below is slower still
        ends = [finding for finding in (gap.below, gap.above) if finding is not None]
        tied = [finding for finding in ends if finding is leader or _tied(finding, leader)]
        top, width_w = len(self.grid) - 1, self.grid[-1] - self.grid[0]
        gap_w = self.grid[min(gap.high, top)] - self.grid[max(gap.low, 0)]
        if len(tied) == 2 or (tied and leader not in ends):
            return gap_w >= _WIDE * width_w
        return bool(tied) and gap_w >= self._number("tolerance")


def _tied(finding: Finding, leader: Finding) -> bool:
    """Whether two caps that respect the slowdown limit cannot be told apart by their cost."""
    return finding.allowed and leader.allowed and not finding.beyond(leader, sigmas=2)
