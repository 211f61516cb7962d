"""What was measured several times, as one number; and tails of the distributions that decisions rest on.

Repeats are weighed by their errors, all taken at one value: an error that is stated as a share of what it belongs to is
smaller where that is, and what came out low would count for more. Where they scatter by more than these errors explain
(χ² above its degrees of freedom), the error of the mean comes from the scatter (Birge 1932). scipy has the tails (of a
normal, of χ² and of Student's t), but importing it takes as long as all the rest of a start of autocap, while the job
already runs.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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


Floats = NDArray[np.float64]

_NOTHING_BEYOND = 40.0  # standard deviations: less than the smallest number
_MIDDLE = 3.75
# Of (1 + 2x) exp(x²) erfc(x) as a polynomial of t = (x - 3.75) / (x + 3.75), from its Chebyshev series; one polynomial
# for all x >= 0 (Shepherd and Laframboise, Mathematics of Computation 36, 1981). Relative error below 1e-13.
_COEFFICIENTS = (
    *(1.2375126308377924, -0.14024059858550558, 0.003585415492464647, 0.08227673848708278, -0.10880393037510683),
    *(0.09230432122708357, -0.058693395564246194, 0.028362276750812616, -0.009746599550755318, 0.0017556295434790947),
    *(0.000293789975498925, -0.00029016639252216485, 5.147019277853688e-05, 2.241017593896919e-05),
    *(-1.1180491284333364e-05, -1.008499092936407e-06, 1.5095989442724718e-06, -2.7667541269941998e-08),
    *(-1.265683636195586e-07, 8.508022039411506e-09),
)


def normal_below(z: Floats) -> Floats:
    """The probability that a standard normal is below z, of z's shape; exact in the far tail too (relative 1e-12)."""
    x = np.minimum(np.abs(z), _NOTHING_BEYOND) * math.sqrt(0.5)
    t = 1 - 2 * _MIDDLE / (x + _MIDDLE)
    tail = np.full_like(t, _COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        tail *= t
        tail += coefficient
    tail *= np.exp(-x * x) / (2 + 4 * x)
    return np.where(z < 0, tail, 1 - tail)


def chi_square_above(dof: int, x: float) -> float:
    """The probability that χ² of dof >= 1 degrees of freedom exceeds x >= 0 (Abramowitz and Stegun 26.4.4, 26.4.5)."""
    half = 0.5 * x
    if dof % 2:
        total, term, k = math.erfc(math.sqrt(half)), math.exp(-half) * math.sqrt(half) / math.gamma(1.5), 1.5
    else:
        total, term, k = 0.0, math.exp(-half), 1.0
    while 2 * k <= dof:
        total += term
        term *= half / k
        k += 1
    return total


def student_above(dof: int, t: float) -> float:
    """The probability that Student's t of dof >= 1 degrees of freedom exceeds t >= 0 (Abramowitz and Stegun 26.7.3,
    26.7.4); exact to 1e-15, so not for tails as far as that."""
    angle = math.atan2(t, math.sqrt(dof))
    sine, cosine = math.sin(angle), math.cos(angle)
    total, term = 0.0, cosine if dof % 2 else 1.0
    for k in range(2 + dof % 2, dof + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    inside = 2 / math.pi * (angle + sine * total) if dof % 2 else sine * total
    return 0.5 * (1 - inside)
