"""The caps that may be tried."""

from collections.abc import Iterable

from autocap.config.spacing import too_fine

DEFAULT_STEP_W = 5.0


class CapGrid(tuple[float, ...]):
    """The caps that may be tried, watts, ascending and distinct, as plain floats. Raises ValueError for any others."""

    __slots__ = ()

    def __new__(cls, settings: Iterable[float]) -> "CapGrid":
        grid = super().__new__(cls, map(float, settings))
        if not grid or list(grid) != sorted(set(grid)):
            raise ValueError(f"a cap grid is ascending, distinct and not empty, got {tuple(grid)} W")
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
        """The grid's cap closest to setting, the lower of two equally close."""
        return min(self, key=lambda candidate: (abs(candidate - setting), candidate))
