"""Emulated machines whose limits real processes set, and what can be seen of them."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate

from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.board import timeline
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.physics import Physics
from bench import waiting


class Boards:
    """The machines, for those who start the processes. boards: in their order. found_mw: the limits found, of all cards
    in theirs. patience_s, look_s: how long something is awaited, and how often it is looked at meanwhile."""

    def __init__(
        self, boards: Sequence[FileBoard], found_mw: Sequence[int], *, patience_s: float, look_s: float = waiting.LOOK_S
    ) -> None:
        self.boards, self.found_mw = boards, tuple(found_mw)
        self._patience_s, self._look_s = patience_s, look_s

    @property
    def board(self) -> FileBoard:
        """The first one, of which there may be no other."""
        return self.boards[0]

    @cached_property
    def _physics(self) -> list[Physics]:
        return [Physics(shared_clock(board)) for board in self.boards]

    def now_s(self) -> float:
        """By the clock of the boards."""
        return self.board.now_s()

    def limits_mw(self) -> tuple[int, ...]:
        return tuple(limit_mw for board in self.boards for limit_mw in board.limits_mw())

    def are_back(self) -> bool:
        """Whether all limits are as they were found."""
        return self.limits_mw() == self.found_mw

    def is_within(self, watts: float) -> bool:
        """Whether all limits together are within a budget."""
        return sum(self.limits_mw()) <= 1000 * watts

    def power_w(self) -> float:
        """What all cards draw, by the boards' own sensors."""
        for board, physics in zip(self.boards, self._physics, strict=True):
            physics.sync(board.read())
        return sum(physics.power_w() for physics in self._physics)

    def above(self, watts: float, from_s: float, to_s: float) -> float:
        """The longest time without a break in which all limits together exceeded a budget, seconds."""
        limits = list(self.found_mw)
        firsts = accumulate((len(board.read().machine.cards) for board in self.boards), initial=0)
        changes = sorted(
            (change.t_s, first + change.gpu, change.limit_mw)
            for board, first in zip(self.boards, firsts, strict=False)
            for change in timeline(board.read())
            if change.t_s <= to_s
        )
        longest_s, began_s = 0.0, None
        for (t_s, gpu, limit_mw), next_s in zip(changes, [*(one[0] for one in changes[1:]), to_s], strict=True):
            limits[gpu] = limit_mw
            if sum(limits) <= 1000 * watts:
                began_s = None
            elif next_s > from_s:
                began_s = max(t_s, from_s) if began_s is None else began_s
                longest_s = max(longest_s, next_s - began_s)
        return longest_s

    def until(self, condition: Callable[[], object], what: str, within_s: float | None = None) -> float:
        """Seconds until it holds. Raises Late."""
        return waiting.until(condition, what, self._patience_s if within_s is None else within_s, self._look_s)
