"""What is known of time and energy per iteration where a proxy stands for the iterations.

Where a cap lowers the SM clock to 1/R of what it was, an iteration takes at most R times as long: that is work which
follows the clock. What the host, the memory or the network take does not follow it, and how much that is nobody sees;
so the truth lies between 1 and R. The proxy counts by the middle of that range, and its errors span the whole of it: a
range of two standard errors reaches from 1 to R. All windows of a cap share that error, and none gets better by it.
"""

import math
from dataclasses import replace

from autocap.measurement.tuning import TUNING
from autocap.records import Measurement


def beside(baseline: Measurement, found: Measurement) -> Measurement:
    """A window by the proxy with the errors that it has against the baseline; a window at its caps has its own."""
    if found.setting == baseline.setting:
        return replace(found, proxy_rel_stderr=0.0)
    ratio = found.period_s / baseline.period_s  # (1 + R) / 2
    shared = math.hypot((ratio - 1) / (2 * ratio), TUNING.proxy_clock_error)
    whole = _widened(replace(found, gpu=None), shared)
    return whole if found.gpu is None else whole.with_gpus(_widened(found.of_gpus(), shared))


def _widened(found: Measurement, shared: float) -> Measurement:
    """With an error more that time and energy have in common."""
    var_t, var_e = found.period_rel_stderr**2 + shared**2, found.energy_rel_stderr**2 + shared**2
    covariance = found.time_energy_corr * found.period_rel_stderr * found.energy_rel_stderr + shared**2
    return replace(
        found,
        period_rel_stderr=math.sqrt(var_t),
        energy_rel_stderr=math.sqrt(var_e),
        time_energy_corr=covariance / math.sqrt(var_t * var_e),
        proxy_rel_stderr=shared,
    )
