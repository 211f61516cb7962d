"""Cap curves, and a loop that drives one strategy over one of them: no device, no time, no controller.

A curve is what `curve,cap_w,power_w,time_s` says: a few measured caps, and monotone (PCHIP) interpolation between
them. A trial is the curve with noise on it; whether it counts as complete or pruned is decided by the controller's
own rule (`autocap.controller.search`), and a cap that is asked for again is measured as well as the first time.

Beside them, whether what a strategy expects holds: its errors of caps that it did not try, and of the cap that it
recommends.
"""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.config import TuneConfig
from autocap.config.values import MOST_CAPS
from autocap.controller.search import NewStrategy, Search
from autocap.devices.model import profile_names, profiles
from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Measurement, Prediction, Trial, TrialState
from autocap.runlog.input_file import MIB, read_input
from autocap.strategies.grid import DEFAULT_STEP_W, CapGrid
from autocap.text import printable

Floats = NDArray[np.float64]

SIGMAS = (1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How what a strategy says at the end of its search compares with the truth.

    time_within, energy_within: the share of the predicted caps that are truly within 1 and 2 stated standard
    deviations; `None` where nothing was predicted. loss_pct, loss_sd_pct: as expected, percent; `None` if not said.
    """

    time_within: tuple[float, ...] | None
    energy_within: tuple[float, ...] | None
    loss_pct: float | None
    loss_sd_pct: float | None

    def covers(self, regret_pct: float) -> bool:
        """Whether a true regret is at most two standard deviations above what was expected; only where it was."""
        assert self.loss_pct is not None
        assert self.loss_sd_pct is not None
        return regret_pct <= self.loss_pct + 2 * self.loss_sd_pct


def judge(
    predictions: Sequence[Prediction], lost: tuple[float, float] | None, grid: CapGrid, energies: Floats, times: Floats
) -> Calibration:
    """Compare with the true energies and times of the grid's caps over the baseline's, shape (caps,) each.

    predictions: of untried caps. lost: how much more the recommended cap will cost than the best one, a share of the
    latter's cost, and the standard deviation of that; `None` where the strategy does not say.
    """
    where = [grid.index(one.setting) for one in predictions]
    loss, loss_sd = (None, None) if lost is None else (100 * lost[0], 100 * lost[1])
    return Calibration(
        time_within=_within(
            times[where],
            [one.time for one in predictions],
            [one.period_rel_stderr for one in predictions],
        ),
        energy_within=_within(
            energies[where],
            [one.energy for one in predictions],
            [one.energy_rel_stderr for one in predictions],
        ),
        loss_pct=loss,
        loss_sd_pct=loss_sd,
    )


def _within(truths: Floats, means: Sequence[float], rel_errors: Sequence[float]) -> tuple[float, ...] | None:
    """The share of truths within 1 and 2 relative standard deviations of their means; `None` without any."""
    if not means:
        return None
    off = np.abs(truths / np.array(means) - 1) / np.array(rel_errors)
    return tuple(float(np.mean(off <= sigmas)) for sigmas in SIGMAS)


HEADINGS = ("time in 1 / 2 σ %", "energy in 1 / 2 σ %", "regret expected % / so in %")


def columns(found: Sequence[tuple[Calibration, float]]) -> tuple[str, ...]:
    """A cell for each heading, every search weighing the same.

    found: of each search, with the true regret in percent. The last cell is the mean regret expected, beside the share
    of searches whose true one is at most two standard deviations above what was expected.
    """
    losses = [(one.loss_pct, one.covers(regret_pct)) for one, regret_pct in found if one.loss_pct is not None]
    loss = "–"
    if losses:
        loss = f"{np.mean([pct for pct, _ in losses]):.2f} / {100 * np.mean([covered for _, covered in losses]):.0f}"
    return _shares([one.time_within for one, _ in found]), _shares([one.energy_within for one, _ in found]), loss


def _shares(found: Sequence[tuple[float, ...] | None]) -> str:
    """The mean shares, percent."""
    known = [shares for shares in found if shares is not None]
    return " / ".join(f"{100 * share:.0f}" for share in np.mean(known, axis=0)) if known else "–"


COLUMNS = ("curve", "cap_w", "power_w", "time_s")
POWER_SHARE = 0.4  # of the noise of a trial's time that its power has
_MOST_TRIALS = 1000  # more than any search needs: a strategy that never ends is stopped here
_ITERATIONS = 100.0
_MOST_BYTES = 16 * MIB
_MOST_NAME = 200  # characters
_LEAST, _MOST = 1e-6, 1e9
_NUMBER = re.compile(r"-\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapCurve:
    """Measured power and time against the cap; arrays have the number of points as length, caps ascend.

    Raises ValueError where a value is not positive, caps repeat, or there are fewer than two.
    """

    name: str
    caps_w: tuple[float, ...]
    powers_w: tuple[float, ...]
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.caps_w) < 2 or list(self.caps_w) != sorted(set(self.caps_w)):
            raise ValueError(f"curve {self.name} needs two different caps or more, each once")
        if not all(0 < value < math.inf for value in (*self.caps_w, *self.powers_w, *self.times_s)):
            raise ValueError(f"curve {self.name} has a cap, power or time that is not above 0")
        if not all(_LEAST <= value <= _MOST for value in (*self.caps_w, *self.powers_w, *self.times_s)):
            raise ValueError(f"curve {self.name} has a cap, power or time that is not from {_LEAST:g} to {_MOST:g}")
        if len(self.caps_w) > MOST_CAPS:
            raise ValueError(f"curve {self.name} has {len(self.caps_w)} caps, and at most {MOST_CAPS} can be searched")

    @property
    def family(self) -> str:
        """What it shares its name with: all before a `/`, or else before a last `-` and number."""
        folder, slash, _ = self.name.partition("/")
        return folder if slash else _NUMBER.sub("", self.name)

    @property
    def grid(self) -> CapGrid:
        """From the lowest to the highest cap in steps of 5 W."""
        return CapGrid.stepped(self.caps_w[0], self.caps_w[-1], DEFAULT_STEP_W)

    def at(self, caps_w: Sequence[float]) -> tuple[Floats, Floats]:
        """Power in watts and time in seconds at some caps, shape (caps,) each."""
        from scipy.interpolate import PchipInterpolator

        where = np.asarray(caps_w, dtype=np.float64)
        power_w = PchipInterpolator(self.caps_w, self.powers_w)(where)
        time_s = PchipInterpolator(self.caps_w, self.times_s)(where)
        return np.asarray(power_w), np.asarray(time_s)


def built_in() -> list[CapCurve]:
    """The twelve seed curves, at every 5 W."""
    curves = []
    for name in profile_names():
        profile = profiles.load(name)
        grid = CapGrid.stepped(profile.cap_range.min_w, profile.cap_range.max_w, DEFAULT_STEP_W)
        caps_w = np.array(grid)
        powers_w, times_s = profile.power_w(caps_w), profile.time_s(caps_w)
        curves.append(
            CapCurve(name=name, caps_w=grid, powers_w=tuple(powers_w.tolist()), times_s=tuple(times_s.tolist()))
        )
    return curves


def read(path: Path) -> list[CapCurve]:
    """The curves of a file, in its order; rows of one curve in any order. Raises UsageError for what is not one."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    try:
        text = read_input(path, _MOST_BYTES).decode()
        reader = csv.DictReader(io.StringIO(text, newline=""))
        if not set(COLUMNS) <= set(reader.fieldnames or ()):
            raise UsageError(f"{path} lacks a column; it needs {', '.join(COLUMNS)}")
        for row in reader:
            values = (float(row["cap_w"]), float(row["power_w"]), float(row["time_s"]))
            points.setdefault(printable(row["curve"][:_MOST_NAME]), []).append(values)
        return [_curve(name, sorted(rows)) for name, rows in points.items()]
    except (OSError, TypeError, ValueError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as curves: {error}; pass a CSV of {', '.join(COLUMNS)}") from error


def _curve(name: str, rows: Sequence[tuple[float, float, float]]) -> CapCurve:
    caps_w, powers_w, times_s = zip(*rows, strict=True)
    return CapCurve(name=name, caps_w=caps_w, powers_w=powers_w, times_s=times_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """One finished search. trials: in their order. kept_w: the cap recommended, watts, `None` without one.

    costs: the true metric of every cap of the grid against the highest one, shape (caps,). calibration: how the
    strategy's own errors hold; baseline: as it was measured; both `None` in whole jobs.
    """

    grid: CapGrid
    costs: Floats
    trials: tuple[Trial, ...]
    kept_w: float | None
    calibration: Calibration | None = None
    baseline: Measurement | None = None

    @property
    def final_w(self) -> float:
        """The cap that the job would end with: the one found on arrival where none is recommended."""
        return self.grid[-1] if self.kept_w is None else self.kept_w

    def regret_pct(self, cap_w: float) -> float:
        """How much more a cap of the grid truly costs than the best one, percent."""
        return 100 * float(self.costs[self.grid.index(cap_w)] / self.costs.min() - 1)

    @property
    def exploration_regret_pct(self) -> float:
        """The mean of that over the trials; 0 without any."""
        excess = [self.regret_pct(trial.setting) for trial in self.trials]
        return float(np.mean(excess)) if excess else 0.0


def drive(
    make: NewStrategy,
    curve: CapCurve,
    metric: Metric,
    noise: float,
    rng: np.random.Generator,
) -> Drive:
    """Search one curve to the end, beginning with a baseline at its highest cap.

    noise: relative standard deviation of a trial's time; its power has 0.4 of it, and both say so.
    """
    grid, powers_w, times_s = _on_grid(curve)

    def measure(cap_w: float) -> Measurement:
        time_z, power_z = rng.standard_normal(2)
        place = grid.index(cap_w)
        time_s = float(times_s[place]) * (1 + noise * float(time_z))
        power_w = float(powers_w[place]) * (1 + POWER_SHARE * noise * float(power_z))
        return measured(cap_w, power_w, time_s, noise)

    baseline = measure(grid[-1])
    search = Search(make, grid, metric, baseline, _prune_sigmas(metric))
    trials: list[Trial] = []
    while len(trials) < _MOST_TRIALS and (cap_w := search.ask()) is not None:
        trials.append(tried(search, measure(cap_w)))
    kept_w = search.recommend()
    predicted, lost = search.strategy.predict(), search.strategy.expected_loss()
    energies, times = powers_w * times_s / (powers_w[-1] * times_s[-1]), times_s / times_s[-1]
    terms = metric.terms(measured(grid[-1], float(powers_w[-1]), float(times_s[-1]), 0.0))
    return Drive(
        grid=grid,
        costs=terms.energy * energies * times**terms.power + terms.time * times + terms.constant,
        trials=tuple(trials),
        kept_w=kept_w,
        calibration=judge(predicted, lost, grid, energies, times),
        baseline=baseline,
    )


def tried(search: Search, found: Measurement) -> Trial:
    """The trial that a measurement ends, told to the search."""
    cost = search.cost(found)
    lost = search.hopeless(found, cost)
    state = TrialState.COMPLETE if lost is None else TrialState.PRUNED
    (cap_w,) = found.setting
    trial = Trial(setting=cap_w, state=state, reason=lost, cost=cost.value, cost_stderr=cost.stderr, measurement=found)
    search.tell(trial)
    return trial


@lru_cache(maxsize=8)
def _on_grid(curve: CapCurve) -> tuple[CapGrid, Floats, Floats]:
    """The grid of a curve, with the true power in watts and time in seconds of its caps: many searches share them."""
    powers_w, times_s = curve.at(curve.grid)
    for values in (powers_w, times_s):
        values.setflags(write=False)
    return curve.grid, powers_w, times_s


def _prune_sigmas(metric: Metric) -> float:
    return TuneConfig(metric=metric).prune_sigmas


def measured(
    cap_w: float, power_w: float, time_s: float, noise: float, *, start_s: float = 0.0, iterations: float = _ITERATIONS
) -> Measurement:
    """A measurement of these values whose time has the relative error `noise`."""
    return Measurement(
        setting=(cap_w,),
        start_s=start_s,
        duration_s=iterations * time_s,
        iterations=iterations,
        period_s=time_s,
        period_rel_stderr=noise,
        power_w=power_w,
        power_rel_stderr=POWER_SHARE * noise,
        energy_per_iteration_j=power_w * time_s,
        energy_rel_stderr=noise * math.hypot(1, POWER_SHARE),
        time_energy_corr=1 / math.hypot(1, POWER_SHARE) if noise else 0.0,
    )
