"""Two sets of caps measured in turn, so that slow drift of the machine cancels."""

from autocap.measurement.combining import pool
from autocap.records import Measurement

Caps = tuple[float, ...]


class Comparison:
    """Windows that alternate outer, inner, outer, inner, outer: each at the inner caps lies between two at the outer.

    opening: a window at the outer caps that was measured just before, and stands for the first one.
    """

    def __init__(self, outer_w: Caps, inner_w: Caps, opening: Measurement | None = None) -> None:
        self.outer_w, self.inner_w = outer_w, inner_w
        self._outer = [] if opening is None else [opening]
        self._inner: list[Measurement] = []

    @property
    def inner_next(self) -> bool:
        """Whether the next window is to be taken at the inner caps."""
        return len(self._outer) > len(self._inner)

    @property
    def next_w(self) -> Caps:
        """The caps of the next window, watts per device."""
        return self.inner_w if self.inner_next else self.outer_w

    @property
    def rounds(self) -> int:
        """How many inner windows there are; 0 while the last of them has no outer one after it."""
        return len(self._inner) if self.inner_next else 0

    def add(self, window: Measurement) -> None:
        """Add the window that was asked for."""
        (self._inner if self.inner_next else self._outer).append(window)

    @property
    def outer(self) -> Measurement:
        return pool(self._outer)

    @property
    def inner(self) -> Measurement:
        return pool(self._inner)
