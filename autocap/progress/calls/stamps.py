"""When the newest calls of a process were, each by its number."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_MOST = 16384  # calls


class CallStamps:
    """A stretch of calls that follow one another, without any between them whose time is not known."""

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._count = 0

    def add(self, t_s: Sequence[float] | None, count: int) -> None:
        """More calls, by times in their order; `None` where some of theirs are not known. count: with these, in all."""
        if t_s is None or self._count + len(t_s) != count:
            self._t_s = []
        self._t_s.extend(t_s or ())
        self._count = count
        if len(self._t_s) > 2 * _MOST:
            del self._t_s[:-_MOST]

    @property
    def first(self) -> int:
        """The number of the oldest call whose time is known; the first one's is 1."""
        return self._count - len(self._t_s) + 1

    @property
    def t_s(self) -> npt.NDArray[np.float64]:
        """Shape (calls,), seconds on the system's monotonic clock."""
        return np.array(self._t_s)

    def __len__(self) -> int:
        return len(self._t_s)

    def of(self, number: int) -> float | None:
        """When the call of that number was; `None` where that is not known."""
        at = number - self.first
        return self._t_s[at] if 0 <= at < len(self._t_s) else None
