"""Tails of the distributions that decisions rest on: of a normal, of χ² and of Student's t.

scipy has them all, but importing it takes as long as all the rest of a start of autocap, while the job already runs.
"""

import math

import numpy as np
from numpy.typing import NDArray

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
