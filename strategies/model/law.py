"""Power laws, as fitted to published tables: within 0.4 % on those of Krzywaniak et al. 2022.

Power is a power law of the cap up to where the cap stops to bind, `P/P0 = ((r - x) / (1 - x))^q`, and time follows from
power, `t/t0 = m + (1 - m) / f` with `f = ((P/P0 - s) / (1 - s))^(1/g)`.
"""

from functools import partial

import numpy as np

from autocap.strategies.model.parameters import Curves, Floats, at_odds, uniform

_LEAST_SPEED = 0.02
_OVERSHOOT = 0.02  # in ln: mean power above the cap counts against a curve, which has no floor


def law(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    drawn = partial(uniform, rng, count)
    baseline_w = settings[-1]
    binds = rng.random((count, 1)) < 0.5  # up to the baseline's cap and beyond, or only below a draw of its own
    peak_w = np.where(binds, np.maximum(baseline_w, draw_w), draw_w * np.exp(np.abs(rng.normal(0, 0.3, (count, 1)))))
    softness = drawn(8.0, 60.0)
    reach = (1 + (settings / peak_w) ** -softness) ** (-1 / softness)  # softly the lesser of cap / peak and 1
    reach = np.where(binds, settings / peak_w, reach)
    reach = reach / reach[:, -1:]
    exponent = np.clip(rng.normal(0.9, 0.12, (count, 1)), 0.4, 1.1)
    offset = drawn(-0.1, 0.3)
    exponent = np.where(offset > 0.1, drawn(0.4, 1.0), exponent)
    relative = np.maximum((reach - offset) / (1 - offset), 1e-3)
    log_power = exponent * (1 - offset) * np.log(relative)
    static, clock = drawn(0.03, 0.55), np.exp(drawn(np.log(0.4), np.log(4.0)))
    elasticity = np.exp(drawn(np.log(0.03), np.log(0.9)))  # of time by power at the baseline
    memory = np.clip(1 - elasticity * clock * (1 - static), 0.0, 0.97)
    above = np.maximum((np.exp(log_power) - static) / (1 - static), 1e-4)
    speed = np.maximum(above ** (1 / clock), _LEAST_SPEED)
    over = np.max(np.maximum(np.log(draw_w) + log_power - np.log(settings), 0.0), axis=1)
    log_weight = -0.5 * (over / _OVERSHOOT) ** 2 - at_odds((peak_w >= baseline_w)[:, 0], binding)
    return Curves(log_power=log_power, log_time=np.log(memory + (1 - memory) / speed), log_weight=log_weight)
