"""One given cap: measured once, and kept if it is allowed and better than what was there."""

from typing import ClassVar

from autocap.errors import UsageError
from autocap.strategies.base import Strategy
from autocap.strategies.options import Needs, Option


class Fixed(Strategy):
    """Asks for one cap, a second time only if the first trial failed.

    Raises UsageError when no cap is given, or one that is not on the grid.
    """

    NEEDS = Needs.ANY
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            name="cap",
            kind=float,
            default=None,
            meaning="the cap, watts, or another knob's setting",
            minimum=1.0,
            required=True,
            is_cap=True,
        ),
    )

    def _set_up(self) -> None:
        setting, grid = self.options.get("cap"), self.grid
        if not isinstance(setting, int | float):
            raise UsageError("strategy fixed needs --strategy-option cap=W, the cap in watts")
        if setting not in grid and not grid.knob.is_power_limit:
            raise UsageError(
                f"strategy fixed was given cap={grid.text(setting)}, which is not among the {len(grid)} settings that "
                f"may be tried; pass one of {', '.join(map(grid.text, grid))}"
            )
        if setting not in grid:
            nearest_w = grid.nearest(setting)
            raise UsageError(
                f"strategy fixed was given cap={setting:g} W, which is not among the {len(grid)} caps that may be "
                f"tried, {grid.span}; pass cap={nearest_w:g}, or allow it with --caps {setting:g}"
            )
        self._cap_w = grid.nearest(setting)

    @property
    def expected_trials(self) -> int:
        return 1

    def _next(self) -> float | None:
        if not self.tried(self._cap_w):
            return self._cap_w
        # A cap that never gave a number is worth one more try, since there is nothing else to go on with.
        unknown = self._cap_w not in self.findings
        return self._cap_w if unknown and self.failures[self._cap_w] == 1 else None
