"""Cap curves with known answers, and a loop that plays the controller for a strategy on them.

Time follows t/t0 = m + (1 - m)/f with f = ((P/P0 - s)/(1 - s))^(1/g) (m: memory-bound share, s: static share of the
power, g: exponent); the mean power P follows the cap until it nears the uncapped draw P0 and saturates softly there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autocap.knobs import DOWN, Knob
from autocap.metrics import Metric
from autocap.records import Cost, Measurement, Trial, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid

GRID = CapGrid.stepped(100, 260, 5)
# Of made-up knobs: levels, of which 1 is the fastest, and modes without an order.
LEVEL = Knob(name="level", values=tuple(map(float, range(1, 9))), faster=DOWN)
MODE = Knob(name="mode", values=(0.0, 1.0, 2.0, 3.0, 4.0), labels=("eco", "calm", "eager", "wild", "odd"), faster=None)
LEVELS, MODES = (CapGrid(knob.settings, knob) for knob in (LEVEL, MODE))
# A factor on the time per iteration and one on the mean power, as functions of the cap in watts.
Factor = Callable[[float], float]


def _unchanged(setting: float) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Power and time per iteration against the cap. draw_w: uncapped mean power. sharpness: of its saturation."""

    name: str
    draw_w: float = 230.0
    memory_share: float = 0.3
    static_share: float = 0.25
    exponent: float = 2.0
    sharpness: float = 12.0
    time_factor: Factor = _unchanged

    def power_w(self, setting: float) -> float:
        return float((setting**-self.sharpness + self.draw_w**-self.sharpness) ** (-1 / self.sharpness))

    def time_s(self, setting: float) -> float:
        above_static = (self.power_w(setting) / self.draw_w - self.static_share) / (1 - self.static_share)
        clock = max(above_static, 0.02) ** (1 / self.exponent)
        return float((self.memory_share + (1 - self.memory_share) / clock) * self.time_factor(setting))

    def cost(self, metric: Metric, setting: float, reference_w: float = GRID[-1]) -> float:
        """The true cost of a cap against the baseline at reference_w."""
        return metric.cost(measured(self, setting), measured(self, reference_w)).value

    def regret(self, metric: Metric, setting: float, grid: Sequence[float] = GRID) -> float:
        """How much worse a cap is than the best of the grid, as a fraction."""
        return self.cost(metric, setting) / min(self.cost(metric, other) for other in grid) - 1


@dataclass(frozen=True, kw_only=True)
class MadeUpCurve(Curve):
    """Any cost at all: constant power, so that with constant time the energy is the given function of the cap."""

    energy: Factor

    def power_w(self, setting: float) -> float:
        return 100.0 * self.energy(setting)

    def time_s(self, setting: float) -> float:
        return self.time_factor(setting)


PHYSICAL = (
    Curve(name="compute-bound", memory_share=0.05, draw_w=250),
    Curve(name="compute-bound, low draw", memory_share=0.05, draw_w=190),
    Curve(name="balanced", memory_share=0.3, draw_w=235),
    Curve(name="balanced, steep", memory_share=0.3, draw_w=235, exponent=1.5, static_share=0.35),
    Curve(name="balanced, shallow", memory_share=0.3, draw_w=215, exponent=2.6, static_share=0.2),
    Curve(name="memory-bound", memory_share=0.6, draw_w=210),
    Curve(name="memory-bound, steep", memory_share=0.6, draw_w=225, exponent=1.4, static_share=0.38),
    Curve(name="draws little", memory_share=0.4, draw_w=130),
    Curve(name="draws all", memory_share=0.2, draw_w=300, static_share=0.3),
    Curve(name="sharp knee", memory_share=0.4, draw_w=200, sharpness=60),
    Curve(name="soft knee", memory_share=0.25, draw_w=220, sharpness=6),
    Curve(
        name="cliff at the floor",
        memory_share=0.35,
        draw_w=230,
        time_factor=lambda setting: 1 + 3 * max(0.0, (125 - setting) / 25) ** 2,
    ),
)
FLAT = MadeUpCurve(name="flat", energy=lambda setting: 1.0)
FALLING = MadeUpCurve(name="the lower the better", energy=lambda setting: setting / 260)
RISING = MadeUpCurve(name="the higher the better", energy=lambda setting: 2 - setting / 260)
BUMPY = MadeUpCurve(
    name="two valleys", energy=lambda setting: 1 + ((setting - 180) / 200) ** 2 + 0.03 * math.cos(setting / 9)
)
CLIFF = PHYSICAL[-1]
# The cheapest level is 4 of 8, the cheapest mode the middle one, eager, with 8 % more time than odd; calm takes most.
OF_LEVELS = MadeUpCurve(
    name="levels",
    energy=lambda setting: (0.7 + 0.02 * (setting - 5) ** 2) / (1.8 - setting / 10),
    time_factor=lambda setting: 1.8 - setting / 10,
)
_MODE_TIMES, _MODE_POWERS = (1.3, 1.6, 1.08, 0.95, 1.0), (0.7, 0.8, 0.65, 1.15, 1.0)
OF_MODES = MadeUpCurve(
    name="modes",
    energy=lambda setting: _MODE_POWERS[int(setting) - 1],
    time_factor=lambda setting: _MODE_TIMES[int(setting) - 1],
)


def measured(
    curve: Curve,
    setting: float,
    noise: float = 0.0,
    rng: np.random.Generator | None = None,
    stated: float | None = None,
) -> Measurement:
    """One measurement: time with relative standard deviation `noise`, power with 0.4 of it; errors stated as such.

    stated: the noise that the measurement claims, where it is not the one it has.
    """
    time_z, power_z = rng.standard_normal(2) if rng is not None else (0.0, 0.0)
    time_s = curve.time_s(setting) * (1 + noise * float(time_z))
    power_w = curve.power_w(setting) * (1 + 0.4 * noise * float(power_z))
    stated = noise if stated is None else stated
    return Measurement(
        setting=(setting,),
        start_s=0.0,
        duration_s=100 * time_s,
        iterations=100.0,
        period_s=time_s,
        period_rel_stderr=stated,
        power_w=power_w,
        power_rel_stderr=0.4 * stated,
        energy_per_iteration_j=power_w * time_s,
        energy_rel_stderr=math.hypot(stated, 0.4 * stated),
        time_energy_corr=1 / math.hypot(1, 0.4) if stated else 0.0,
    )


def trial_of(metric: Metric, measurement: Measurement, baseline: Measurement, earlier: Sequence[Trial] = ()) -> Trial:
    """The trial as the controller ends it: pruned when surely too slow, or when three sigma worse than the baseline or
    than an earlier trial that was measured to the end and is allowed."""
    cost = metric.cost(measurement, baseline)
    versus = metric.versus(measurement, baseline)
    complete = [trial for trial in earlier if trial.state is TrialState.COMPLETE]
    rivals = [trial for trial in complete if trial.measurement and metric.allows(trial.measurement, baseline)]
    reason = None
    if metric.forbids(measurement, baseline):
        reason = "too slow"
    elif versus.value - 3 * versus.stderr > 1 + 1e-9:
        reason = "worse than the baseline"
    elif any(_beyond(cost, trial) for trial in rivals):
        reason = "worse than another cap"
    return Trial(
        setting=measurement.setting[0],
        state=TrialState.PRUNED if reason else TrialState.COMPLETE,
        reason=reason,
        cost=cost.value,
        cost_stderr=cost.stderr,
        measurement=measurement,
    )


def _beyond(cost: Cost, trial: Trial) -> bool:
    return cost.value - (trial.cost or 0.0) > 3 * math.hypot(cost.stderr, trial.cost_stderr or 0.0) + 1e-9


@dataclass(frozen=True, kw_only=True)
class Search:
    """A finished search. asks: every cap asked for, in order. effort: trials, a repeat to half the error counting 4."""

    asks: tuple[float, ...]
    trials: tuple[Trial, ...]
    kept_w: float | None

    @property
    def effort(self) -> int:
        return len(self.asks) + 3 * (len(self.asks) - len(set(self.asks)))


def search(
    strategy: StrategyLike,
    curve: Curve,
    metric: Metric,
    baseline: Measurement,
    noise: float = 0.0,
    stated: float | None = None,
    seed: int = 0,
    fails: Callable[[float, int], bool] = lambda setting, count: False,
    limit: int = 1000,
) -> Search:
    """Play the controller until the strategy is done or `limit` asks were made.

    noise: relative standard deviation of a trial's time; a repeat has half of it. stated: what the trials claim
    instead. fails: whether the count-th ask (from 1) for that cap fails.
    """
    rng = np.random.default_rng(seed)
    asks: list[float] = []
    trials: list[Trial] = []
    while len(asks) < limit and (setting := strategy.ask()) is not None:
        asks.append(setting)
        if fails(setting, asks.count(setting)):
            trials.append(Trial(setting=setting, state=TrialState.FAILED, reason="no progress"))
        else:
            repeat = any(trial.setting == setting and trial.cost is not None for trial in trials)
            share = 0.5 if repeat else 1.0
            claimed = None if stated is None else share * stated
            measurement = measured(curve, setting, share * noise, rng, claimed)
            trials.append(trial_of(metric, measurement, baseline, trials))
        strategy.tell(trials[-1])
    return Search(asks=tuple(asks), trials=tuple(trials), kept_w=strategy.recommend())
