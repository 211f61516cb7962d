"""The node of Koszczał et al. 2023, as a model: eight GPUs of which 1, 2, 4 or 8 train, and all that is around them.

Every GPU follows the physics of clocks and voltage: at the relative clock x it draws

    P(x) = idle + (full - idle) x V(x)^2,    V = flat + (1 - flat) (max(0, x - knee) / (1 - knee))^bend

and runs at the highest clock that keeps P under the cap. A part of an iteration takes 1/x as long, the rest (the host's
and the network's) does not change; which part follows from the published times at 260 and 170 W. Over an iteration a
GPU of n that train draws on average a share of P. The machine draws the GPUs' power, 20 W for each that idles, and a
constant. `fit` finds the curve, the shares and the constant by least squares, from the numbers in
`data/koszczal2023.json` alone: the energy gains, and what table 1 says of metrics and caps. That a GPU draws less where
fewer train is what those gains ask for; the paper does not say so.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model.profiles import Profile
from autocap.records import CapRange

Floats = NDArray[np.float64]

DATA = Path(__file__).parents[1] / "data/koszczal2023.json"
IDLE_W = 20.0  # a usual reading of such a card at rest, as in autocap's profiles
_BATCH, _IMAGES, _EPOCHS = 32, 10_000, 5  # the batch of a GPU is assumed: it cancels out of every ratio
_BISECTIONS = 40
# One unit of the fit's cost: for a gain in percent, how far a published best cap is from being the best by a margin,
# and what typical values of the parameters allow.
_GAIN, _FREE, _EXCESS = 1.5, 1.6, 0.1
_VALUE, _MARGIN, _SHORT = 0.3, 0.05, 0.1
_START = np.array([260.0, 0.80, 0.70, 2.0, 300.0, 0.95, 0.95, 0.95, 0.95])  # full, flat, knee, bend, rest, shares
_TYPICAL = np.array([260.0, 0.75, 0.60, 1.5, 300.0, 0.95, 0.95, 0.95, 0.95])
_SPREAD = np.array([15.0, 0.15, 0.15, 1.0, 150.0, 0.05, 0.05, 0.05, 0.05])
_LOW = [240.0, 0.4, 0.3, 1.0, 150.0, 0.7, 0.7, 0.7, 0.7]
_HIGH = [340.0, 0.98, 0.9, 4.0, 900.0, 1.0, 1.0, 1.0, 1.0]
_STEPS = np.full(9, 1e-4)  # relative, of the numerical slopes: far above what bisection leaves open
_SHARE_ERROR = 0.02  # of the part of an iteration that the clock changes: more than all of it is none


class Training(TypedDict):
    """Seconds of the whole training at the default and the second cap, and the best energy gain, percent."""

    gpus: int
    default_s: float
    second_s: float
    energy_gain_pct: float


class Best(TypedDict):
    """A row of table 1, for eight GPUs."""

    metric: str
    cap_w: float
    gain_pct: float


class Published(TypedDict):
    """The paper's numbers."""

    gpu_name: str
    source: str
    installed: int
    cap_min_w: float
    cap_max_w: float
    cap_step_w: float
    second_cap_w: float
    meter_hz: float
    meter_error: float
    trainings: list[Training]
    table_1: list[Best]


def published() -> Published:
    """What the paper says."""
    return cast(Published, json.loads(DATA.read_text(encoding="utf-8")))  # our own file; the tests read all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockShape:
    """One GPU's curve, in the form that a Profile takes; the module's docstring has the formulas.

    default_w: the default cap. share: of P, its mean over an iteration. clocked: the part of an iteration at the
    default cap that takes 1/x as long.
    """

    default_w: float
    full_w: float
    flat: float
    knee: float
    bend: float
    share: float
    clocked: float

    def power_w(self, relative_cap: Floats) -> Floats:
        """Average draw, watts, at c/c0."""
        return np.asarray(self.share * self._draw_w(self._clock(relative_cap)))

    def slowdown(self, relative_cap: Floats) -> Floats:
        """t/t0 at c/c0."""
        return np.asarray(1 + self.clocked * self.stretch(relative_cap))

    def stretch(self, relative_cap: Floats) -> Floats:
        """How much longer the clocked part takes than at the default cap, relative."""
        return np.asarray(self._clock(np.array(1.0)) / self._clock(relative_cap) - 1)

    def _draw_w(self, clock: Floats) -> Floats:
        above = np.maximum(clock - self.knee, 0.0) / (1 - self.knee)
        voltage = self.flat + (1 - self.flat) * above**self.bend
        return np.asarray(IDLE_W + (self.full_w - IDLE_W) * clock * voltage**2)

    def _clock(self, relative_cap: Floats) -> Floats:
        """The highest that keeps the draw under the cap, by bisection."""
        cap_w = self.default_w * relative_cap
        low, high = np.zeros_like(cap_w), np.ones_like(cap_w)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            under = self._draw_w(middle) <= cap_w
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return low


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCase:
    """The node while some of its GPUs train. profile: of one of them. rest_w: what all else draws, idle GPUs included.

    idle_w: what the whole node draws at rest.
    """

    gpus: int
    profile: Profile
    rest_w: float
    idle_w: float

    def energy_j(self, caps_w: Floats) -> Floats:
        """Of the node, per iteration, at each cap."""
        power_w = self.gpus * self.profile.power_w(caps_w) + self.rest_w
        return np.asarray(power_w * self.profile.time_s(caps_w))


def grid_w() -> Floats:
    """The caps that were measured, watts, ascending; the last is the default."""
    paper = published()
    return np.arange(paper["cap_min_w"], paper["cap_max_w"] + 1.0, paper["cap_step_w"])


def gains_pct(energy: Floats, time: Floats) -> Mapping[str, Floats]:
    """What each metric of table 1 gains, percent, for energy and time against the default's; shape (caps,)."""
    return {
        "energy": 100 * (1 - energy),
        "difference": 100 * (2 - energy - time),
        "edp": 100 * (1 - energy * time),
        "eds_1.5": 100 * (1 - energy / 3 - 2 * time / 3),
        "eds_2": 100 * (1 - energy / 2 - time / 2),
    }


def case_gains_pct(case: NodeCase) -> Mapping[str, Floats]:
    """The same for a case, at the caps of `grid_w`."""
    energy_j, time_s = case.energy_j(grid_w()), case.profile.time_s(grid_w())
    return gains_pct(energy_j / energy_j[-1], time_s / time_s[-1])


@cache
def fit() -> tuple[NodeCase, ...]:
    """The node with each number of GPUs, fewest first."""
    from scipy.optimize import least_squares

    paper = published()
    solution = least_squares(_residuals, _START, bounds=(_LOW, _HIGH), diff_step=_STEPS, max_nfev=100, args=(paper,))
    return tuple(_cases(solution.x, paper))


def _cases(vector: Floats, paper: Published) -> list[NodeCase]:
    full_w, flat, knee, bend, rest_w, *shares = (float(value) for value in vector)
    default_w, installed = paper["cap_max_w"], paper["installed"]
    cases = []
    for training, share in zip(paper["trainings"], shares, strict=True):
        curve = ClockShape(
            default_w=default_w, full_w=full_w, flat=flat, knee=knee, bend=bend, share=share, clocked=1.0
        )
        stretch = float(curve.stretch(np.array(paper["second_cap_w"] / default_w)))
        gpus, slower = training["gpus"], training["second_s"] / training["default_s"] - 1
        iterations = _EPOCHS * _IMAGES / (_BATCH * gpus)
        profile = Profile(
            name=f"koszczal2023/xception-{gpus}",
            gpu_name=paper["gpu_name"],
            cap_range=CapRange(min_w=paper["cap_min_w"], max_w=default_w, default_w=default_w),
            batch_size=_BATCH * gpus,
            default_time_s=training["default_s"] / iterations,
            idle_w=IDLE_W,
            shape=replace(curve, clocked=slower / stretch),
            source=paper["source"],
        )
        idle_gpus_w = IDLE_W * (installed - gpus)
        cases.append(
            NodeCase(gpus=gpus, profile=profile, rest_w=rest_w + idle_gpus_w, idle_w=rest_w + IDLE_W * installed)
        )
    return cases


def _residuals(vector: Floats, paper: Published) -> Floats:
    grid = list(grid_w())
    out = list((vector - _TYPICAL) / _SPREAD)
    cases = _cases(vector, paper)
    for case, training in zip(cases, paper["trainings"], strict=True):
        shape = case.profile.shape
        assert isinstance(shape, ClockShape)
        error = float(case_gains_pct(case)["energy"].max()) - training["energy_gain_pct"]
        out += [error / _GAIN, max(0.0, abs(error) - _FREE) / _EXCESS, max(0.0, shape.clocked - 1) / _SHARE_ERROR]
    gains = case_gains_pct(cases[-1])
    for best in paper["table_1"]:
        gain, place = gains[best["metric"]], grid.index(best["cap_w"])
        short = max(0.0, float(np.delete(gain, place).max() - gain[place]) + _MARGIN)
        out += [(float(gain[place]) - best["gain_pct"]) / _VALUE, short / _SHORT]
    return np.array(out)
