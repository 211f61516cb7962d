"""One given cap: measured once, and kept if it is allowed and better than what was there.

| option | meaning | default |
|---|---|---|
| `cap` | the cap, watts; one of the grid's | none: must be given |
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategy import CapGrid, Option, OptionScalar, Strategy


class Fixed(Strategy):
    """Asks for one cap, a second time only if the first trial failed.

    Raises UsageError when no cap is given, or one that is not on the grid.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(name="cap", kind=float, default=None, meaning="the cap, watts", minimum=1.0, required=True, is_cap=True),
    )

    def __init__(
        self,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        rng: np.random.Generator,
        history: Sequence[Trial],
        options: Mapping[str, OptionScalar],
    ) -> None:
        super().__init__(grid, metric, baseline, rng, history, options)
        cap_w = options.get("cap")
        if not isinstance(cap_w, int | float):
            raise UsageError("strategy fixed needs --strategy-option cap=W, the cap in watts")
        if cap_w not in grid:
            nearest_w = grid.nearest(cap_w)
            raise UsageError(
                f"strategy fixed was given cap={cap_w:g} W, which is not among the {len(grid)} caps that may be tried, "
                f"{grid[0]:g} to {grid[-1]:g} W; pass cap={nearest_w:g}, or allow it with --caps {cap_w:g}"
            )
        self._cap_w = grid.nearest(cap_w)

    def _next(self) -> float | None:
        if not self.tried(self._cap_w):
            return self._cap_w
        # A cap that never gave a number is worth one more try, since there is nothing else to go on with.
        unknown = self._cap_w not in self.findings
        return self._cap_w if unknown and self.failures[self._cap_w] == 1 else None
