"""Where text goes in a picture: beside what it names, and on nothing else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle on the page; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def within(self, other: "Box") -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


def beside(x: float, y: float, width: float, height: float, gap: float) -> list[Box]:
    """The places around a point for text of that size, the best first."""
    w, h = width, height
    near = 0.75 * gap
    corners = [  # error bars leave a point to the sides and up and down, so the corners come first
        (x + near, y - near - h),
        (x - near - w, y - near - h),
        (x + near, y + near),
        (x - near - w, y + near),
        (x - w / 2, y - gap - h),
        (x - w / 2, y + gap),
        (x + gap, y - h / 2),
        (x - gap - w, y - h / 2),
    ]
    return [Box(left=left, top=top, right=left + w, bottom=top + h) for left, top in corners]


def place(wanted: Iterable[Sequence[Box]], inside: Box, taken: Iterable[Box]) -> list[Box | None]:
    """For each label, in turn, the first of its places that is inside and free; `None` where none is."""
    busy, found = list(taken), list[Box | None]()
    for places in wanted:
        free = (box for box in places if box.within(inside) and not any(box.overlaps(other) for other in busy))
        box = next(free, None)
        found.append(box)
        if box is not None:
            busy.append(box)
    return found
