"""Which batch size makes an iteration take as long as is wanted; pure, without torch.

Whatever else a machine does only lengthens an iteration, so the quickest of several says what a batch size costs. A
core that is taken away for longer than these last makes it cost up to as many times as much as the job gets less of
it, and the batch that many times smaller: iterations that are shorter than wanted measure as well.
"""

from collections.abc import Callable
from dataclasses import dataclass

_SMALLEST = 2  # what every network can be trained with
_FEWEST, _LEAST_S = 5, 0.3  # iterations and seconds that count


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A batch size, and the seconds that an iteration is expected to take with it."""

    batch_size: int
    seconds: float


def fitting(took_s: Callable[[int], float], wanted_s: float, *, most: int) -> Sizing:
    """The largest batch size up to `most` whose iterations take no longer than wanted, or the smallest.

    took_s: seconds an iteration takes, of a batch size. It is asked for doubled sizes until one takes too long; between
    the last two the time is taken to grow in a straight line.
    """
    size = min(_SMALLEST, most)
    size_s = took_s(size)
    while size_s < wanted_s and size < most:
        larger = min(2 * size, most)
        larger_s = took_s(larger)
        if larger_s > wanted_s:
            per_sample_s = (larger_s - size_s) / (larger - size)
            more = int((wanted_s - size_s) / per_sample_s)
            return Sizing(batch_size=size + more, seconds=size_s + more * per_sample_s)
        size, size_s = larger, larger_s
    return Sizing(batch_size=size, seconds=size_s)


def quickest_s(iteration: Callable[[], None], clock: Callable[[], float]) -> float:
    """How long an iteration takes, seconds of that clock: the quickest of several in a row. The first, which allocates,
    does not count."""
    iteration()
    began_s = before_s = clock()
    took_s: list[float] = []
    while len(took_s) < _FEWEST or before_s - began_s < _LEAST_S:
        iteration()
        now_s = clock()
        took_s.append(now_s - before_s)
        before_s = now_s
    return min(took_s)
