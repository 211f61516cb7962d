"""Every cap in turn: slow, and hard to fool.

Going down under a slowdown limit, it stops at the first cap that was given up as too slow: those below are slower. Of a
knob whose settings have no order it tries all.
A warm start's history changes nothing here.
"""

from typing import ClassVar

from autocap.strategies.base import Strategy
from autocap.strategies.options import Needs, Option


class Linear(Strategy):
    """A scan of the grid from one end to the other."""

    NEEDS = Needs.ANY
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            name="step",
            kind=float,
            default=0.0,
            meaning="watts between caps, or places of another knob's list; 0 tries every cap",
            minimum=0.0,
        ),
        Option(
            name="direction",
            kind=str,
            default="down",
            meaning="down begins at the highest cap, up at the lowest",
            choices=("down", "up"),
        ),
        Option(
            name="patience",
            kind=int,
            default=0,
            meaning="stop after so many caps in a row two sigma worse than the best; 0 tries all",
            minimum=0,
        ),
    )

    @property
    def expected_trials(self) -> int:
        return len(self._scan())

    def _next(self) -> float | None:
        scan = self._scan()
        remaining = [setting for setting in scan if not self.tried(setting)]
        if not remaining or self._too_slow() or self._hopeless(scan):
            return None
        return remaining[0]

    def _scan(self) -> list[float]:
        """The caps in the order of the scan: at least the step apart, and both ends of the grid."""
        step_w = self._number("step")
        ordered = list(self.grid) if self.options["direction"] == "up" else list(reversed(self.grid))
        scan = ordered[:1]
        for setting in ordered[1:]:
            if setting == ordered[-1] or abs(setting - scan[-1]) >= step_w:
                scan.append(setting)
        return scan

    def _too_slow(self) -> bool:
        """Whether a downward scan has met a cap that was given up and is slower than allowed."""
        limit = self.metric.max_slowdown
        if limit is None or self.options["direction"] != "down" or not self.grid.knob.ordered:
            return False
        return any(not finding.complete and finding.slowdown > 1 + limit for finding in self.findings.values())

    def _hopeless(self, scan: list[float]) -> bool:
        """Whether the last `patience` caps that gave a number are all worse than the best by two sigma."""
        patience, best = self._whole("patience"), self.best()
        found = [self.findings[setting] for setting in scan if setting in self.findings]
        if not patience or best is None or len(found) < patience:
            return False
        return all(not finding.complete or finding.beyond(best, sigmas=2) for finding in found[-patience:])
