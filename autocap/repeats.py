"""What was measured several times, as one number: repeats of one quantity, which may agree or not.

Repeats are weighed by their errors, all taken at one value: an error that is stated as a share of what it belongs to is
smaller where that is, and what came out low would count for more. Where they scatter by more than these errors explain
(χ² above its degrees of freedom), the error of the mean comes from the scatter (Birge 1932).
"""

import math
from collections.abc import Sequence


def weights(rel_stderrs: Sequence[float]) -> tuple[float, ...]:
    """What each of several repeats counts for, by their relative standard errors; they add up to 1. One of whose error
    nothing is known (infinite) counts for nothing beside others; where one is said to have none, all count alike."""
    known = [stderr for stderr in rel_stderrs if stderr < math.inf]
    if not known or min(known) <= 0:
        return (1 / len(rel_stderrs),) * len(rel_stderrs)
    inverse = [(min(known) / stderr) ** 2 for stderr in rel_stderrs]
    return tuple(one / sum(inverse) for one in inverse)


def mean(values: Sequence[float], counts: Sequence[float]) -> float:
    """The mean of repeats that count for so much each."""
    return sum(count * value for count, value in zip(counts, values, strict=True))


def rel_stderr(values: Sequence[float], rel_stderrs: Sequence[float], counts: Sequence[float]) -> float:
    """The relative standard error of that mean; infinite where it is known of none that counts."""
    parts = (count * stderr for count, stderr in zip(counts, rel_stderrs, strict=True) if count > 0)
    return max(math.hypot(*parts), scatter(values, counts))


def scatter(values: Sequence[float], counts: Sequence[float]) -> float:
    """The relative standard error of that mean by how the repeats scatter, whatever their errors; 0 of a single one."""
    if len(values) < 2:
        return 0.0
    centre = mean(values, counts)
    squares = (count * (value / centre - 1) ** 2 for count, value in zip(counts, values, strict=True))
    return math.sqrt(sum(squares) / (len(values) - 1))


def between(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """By how much repeats of a quantity differ beyond their errors, as a relative standard deviation over all groups of
    repeats, each of values and relative standard errors (DerSimonian and Laird 1986, unweighted); 0 where the errors
    explain all, and where nothing was repeated."""
    beyond, freedom = 0.0, 0
    for values, rel_stderrs in groups:
        several = len(values)
        if several < 2 or not all(stderr < math.inf for stderr in rel_stderrs):
            continue
        centre = sum(values) / several
        beyond += sum((value / centre - 1) ** 2 for value in values)
        beyond -= (1 - 1 / several) * sum(stderr**2 for stderr in rel_stderrs)
        freedom += several - 1
    return math.sqrt(max(0.0, beyond / freedom)) if freedom else 0.0
