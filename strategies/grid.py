"""The caps that may be tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

DEFAULT_STEP_W = 5.0


@dataclass(frozen=True, slots=True)
class CapGrid(Sequence[float]):
    """The caps that may be tried, watts, ascending and distinct. Behaves as a sequence of plain floats."""

    caps_w: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.caps_w or list(self.caps_w) != sorted(set(self.caps_w)):
            raise ValueError(f"a cap grid is ascending, distinct and not empty, got {self.caps_w} W")
        object.__setattr__(self, "caps_w", tuple(float(cap_w) for cap_w in self.caps_w))  # whatever numbers were given

    @classmethod
    def stepped(cls, min_w: float, max_w: float, step_w: float) -> "CapGrid":
        """Every step_w from max_w downwards, and min_w itself: the ends are worth trying even off the step."""
        count = int((max_w - min_w) / step_w + 1e-9)
        caps = {round(max_w - i * step_w, 6) for i in range(count + 1)} | {float(min_w)}
        return cls(tuple(sorted(caps)))

    def nearest(self, cap_w: float) -> float:
        """The grid's cap closest to cap_w, the lower of two equally close."""
        return min(self.caps_w, key=lambda candidate: (abs(candidate - cap_w), candidate))

    def __len__(self) -> int:
        return len(self.caps_w)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[float, ...]: ...
    def __getitem__(self, index: int | slice) -> float | tuple[float, ...]:
        return self.caps_w[index]
