"""The settings that may be tried."""

from collections.abc import Iterable

from autocap.config.values import too_fine
from autocap.knobs import POWER_LIMIT, Knob

DEFAULT_STEP_W = 5.0


class CapGrid(tuple[float, ...]):
    """The settings of a knob that may be tried, ascending and distinct, as plain floats: of the power limit caps in
    watts. Raises ValueError for any others."""

    knob: Knob

    def __new__(cls, settings: Iterable[float], knob: Knob = POWER_LIMIT) -> "CapGrid":
        grid = super().__new__(cls, map(float, settings))
        if not grid or list(grid) != sorted(set(grid)):
            raise ValueError(f"a grid is ascending, distinct and not empty, got {tuple(grid)} {knob.unit}".rstrip())
        grid.knob = knob
        return grid

    @classmethod
    def stepped(cls, min_w: float, max_w: float, step_w: float) -> "CapGrid":
        """Every step_w from max_w downwards, and min_w itself: the ends are worth trying even off the step.

        Raises ValueError, before it makes them, where they are too many to search.
        """
        why_not = too_fine(min_w, max_w, step_w)
        if why_not is not None:
            raise ValueError(why_not)
        count = int((max_w - min_w) / step_w + 1e-9)
        caps = {round(max_w - i * step_w, 6) for i in range(count + 1)} | {float(min_w)}
        return cls(sorted(caps))

    def nearest(self, setting: float) -> float:
        """The grid's setting closest to that one, the lower of two equally close."""
        return min(self, key=lambda candidate: (abs(candidate - setting), candidate))

    def text(self, setting: float) -> str:
        """As it is shown, with its unit; of one that somebody made up and the knob does not have, its number."""
        try:
            return self.knob.text(setting)
        except ValueError:
            return f"{setting:g}"

    @property
    def span(self) -> str:
        """From its first to its last, as they are shown."""
        return f"{self.text(self[0]).removesuffix(f' {self.knob.unit}')} to {self.text(self[-1])}"
