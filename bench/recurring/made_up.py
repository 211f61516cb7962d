"""Made-up recurring trainings in the shape of the published ones, one for each seed: nothing was chosen on them.

Epochs grow with the batch size b by 1 + b / b_c, for a critical b_c of its own (McCandlish et al., "An empirical model
of large-batch training", 2018), each batch size off by some 5 %, which makes more than one valley; five runs of each
scatter by 2 to 20 %. Where three times the fewest epochs are needed, a run in three never reaches the target. An
iteration takes some host time whatever its batch, and so small batches take longer for an epoch and leave the card
idle. A cap lowers the clock x; computing takes 1 / x, and draws a power of x.
"""

from functools import lru_cache

import numpy as np

from bench.recurring.workloads import Workload
from bench.strategies.curves import CapCurve, Floats

_CAPS_W = (100.0, 125.0, 150.0, 175.0, 200.0, 225.0, 250.0)
_CLOCKS = np.linspace(0.3, 1.0, 701)
_IDLE_W = 35.0
_PATIENCE = 20  # times the epochs of the default: it reaches the target whatever has drifted
_RUNS = 5
_BUMPS = 0.05
_MOST_GROWTH, _MISSED = 3.0, 1 / 3


@lru_cache(maxsize=1)
def made_up(seed: int) -> Workload:
    """The training of that seed."""
    rng = np.random.default_rng([seed, 2])
    sizes = 2 ** (int(rng.integers(3, 7)) + np.arange(int(rng.integers(5, 11))))
    critical = sizes[0] * (sizes[-1] / sizes[0]) ** rng.uniform(0.2, 1.0)
    needed = (
        np.exp(rng.uniform(*np.log([4, 100])))
        * (1 + sizes / critical)
        * np.exp(_BUMPS * rng.standard_normal(len(sizes)))
    )
    scatter = np.exp(rng.uniform(*np.log([0.02, 0.2])))
    epochs = np.maximum(np.rint(needed[:, None] * np.exp(scatter * rng.standard_normal((len(sizes), _RUNS)))), 1.0)
    missed = (needed > _MOST_GROWTH * needed.min())[:, None] & (rng.random(epochs.shape) < _MISSED)
    epochs[missed] = np.nan
    default = int(rng.choice(np.flatnonzero(~np.isnan(epochs).any(axis=1))))
    compute_s = float(np.exp(rng.uniform(*np.log([10, 3000]))))
    half = sizes[0] * (sizes[-1] / sizes[0]) ** rng.uniform(0.0, 0.7)  # half of the time is the host's
    full_w, power = rng.uniform(200, 280), rng.uniform(1.8, 2.6)
    curves = []
    for size in sizes:
        powers_w, times_s = _curve(compute_s, compute_s * half / size, full_w, power)
        curves.append(
            CapCurve(name=f"made-up-{seed}/{size}", caps_w=_CAPS_W, powers_w=tuple(powers_w), times_s=tuple(times_s))
        )
    return Workload(
        name="made-up",
        batch_sizes=tuple(int(size) for size in sizes),
        default=default,
        epochs=tuple(epochs),
        curves=tuple(curves),
        max_epochs=_PATIENCE * int(epochs[default].max()),
    )


def _curve(compute_s: float, host_s: float, full_w: float, power: float) -> tuple[Floats, Floats]:
    """Watts and seconds of an epoch at each cap, shape (caps,): the highest clock that the cap allows."""
    time_s = host_s + compute_s / _CLOCKS
    drawn_w = _IDLE_W + (full_w - _IDLE_W) * compute_s / _CLOCKS / time_s * _CLOCKS**power
    clocks = [np.searchsorted(drawn_w, cap_w, side="right") - 1 for cap_w in _CAPS_W]
    at = np.clip(np.array(clocks), 0, None)
    return drawn_w[at], time_s[at]
