"""What the neighbouring caps say about a cap's cost: a local quadratic, trusted only where it fits.

Cost against cap is smooth over a few tens of watts nearly everywhere, so a cap's neighbours are further measurements
of it. Where they are not (a cliff, a bump, drift between trials), the residuals say so and the window shrinks, in the
end to the cap itself.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.stats import chi_square_above

Floats = NDArray[np.float64]
_FEWEST_POINTS = 5  # a quadratic through fewer leaves next to nothing to judge its fit by
_LEAST_P = 0.05
_LEAST_ERROR = 1e-9


def smooth(settings: Floats, costs: Floats, stderrs: Floats, half_widths_w: Sequence[float]) -> Floats:
    """Each cap's cost as its neighbours see it, shape (n,).

    settings, costs, stderrs: shape (n,), caps distinct, errors independent. half_widths_w: the windows to try, widest
    first. A cap keeps its own cost where no window holds five points that a quadratic fits (chi-square, p ≥ 0.05).
    """
    smoothed = costs.copy()
    for index, setting in enumerate(settings):
        for half_width_w in half_widths_w:
            near = np.abs(settings - setting) <= half_width_w
            if np.count_nonzero(near) < _FEWEST_POINTS:
                break
            offset = (settings[near] - setting) / half_width_w
            value, p = _quadratic_at_zero(offset, costs[near], stderrs[near])
            if p >= _LEAST_P:
                smoothed[index] = value
                break
    return smoothed


def _quadratic_at_zero(x: Floats, y: Floats, stderr: Floats) -> tuple[float, float]:
    """A weighted least-squares quadratic's value at x = 0, and the chance of residuals as large as its own."""
    weight = 1 / np.maximum(stderr, _LEAST_ERROR)
    design = np.vander(x, 3, increasing=True) * weight[:, None]
    coefficients = np.linalg.lstsq(design, y * weight, rcond=None)[0]
    residuals = y * weight - design @ coefficients
    return float(coefficients[0]), chi_square_above(len(x) - 3, float(residuals @ residuals))
