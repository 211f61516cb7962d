"""Whether what a strategy expects holds: its errors of caps that it did not try, and of the cap that it recommends."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.records import Prediction
from autocap.strategies.grid import CapGrid

Floats = NDArray[np.float64]

SIGMAS = (1.0, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a strategy says at the end of its search; nothing of either where it does not say.

    predictions: of untried caps. loss: how much more the recommended cap will cost than the best one, a share of the
    latter's cost, and the standard deviation of that.
    """

    predictions: Sequence[Prediction] = ()
    loss: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How that compares with the truth, for one search.

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


def judge(said: Expected, grid: CapGrid, energies: Floats, times: Floats) -> Calibration:
    """Compare with the true energies and times of the grid's caps over the baseline's, shape (caps,) each."""
    where = [grid.index(one.setting) for one in said.predictions]
    loss, loss_sd = (None, None) if said.loss is None else (100 * said.loss[0], 100 * said.loss[1])
    return Calibration(
        time_within=_within(
            times[where],
            [one.time for one in said.predictions],
            [one.period_rel_stderr for one in said.predictions],
        ),
        energy_within=_within(
            energies[where],
            [one.energy for one in said.predictions],
            [one.energy_rel_stderr for one in said.predictions],
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
