"""Where the phase stands, cycle by cycle, found without a good first guess: the shortest path through a table of how
well each phase fits each block of cycles. Blocks that no phase fits are left out: they are not the pattern.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats

_PHASES = 64
_SPARSE = 0.3
_JUMP = 12.0  # what a jump of the phase costs, against a step of the walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When a block is left out: when its mean squared rest is more than `many` times the usual, plus `few` over the
    root of its readings, plus this share of the waveform's own mean square.
    """

    many: float
    few: float
    share: float


# While periods compete, little is left out: a part of the true period would do without what it cannot explain. Once the
# period is known, whatever is not the waveform goes.
COMPETING = Tolerance(many=9.0, few=0.0, share=0.3)
KNOWN = Tolerance(many=2.0, few=6.0, share=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """theta: phase at each knot beyond the nominal one, unwrapped, shape (knots,). blocks: which count."""

    theta: Floats
    blocks: Bools


def path(
    u: Floats,
    y: Floats,
    knots: Floats,
    coefficients: NDArray[np.complex128],
    *,
    noise: float,
    walk: float,
    tolerance: Tolerance,
    cuts: NDArray[np.int_],
) -> Path:
    """Track the phase of a known waveform.

    u: nominal phase of the readings, shape (n,). y: readings with the level taken out. coefficients: of the waveform.
    noise: standard deviation of what it leaves. walk: standard deviation of the phase per cycle.
    cuts: blocks in which something is cut out of the readings: there the phase may do anything.
    """
    every = float(knots[1] - knots[0])
    misfit, sizes = _misfit(u, y, coefficients, between(u, knots), len(knots) - 1)
    costs = misfit / (2 * noise**2)
    moves = np.minimum(_square_gaps() / (2 * every * walk**2), _JUMP)
    square = 0.5 * float(np.sum(np.abs(coefficients) ** 2))
    many = tolerance.many + tolerance.few / np.sqrt(np.maximum(sizes, 1.0))
    out_costs = (0.5 * many + tolerance.share * square / (2 * noise**2)) * sizes
    out_costs[cuts] = -1.0
    chosen, out = _shortest(costs, moves, out_costs)
    return _as_path(chosen, out, sizes)


def _misfit(
    u: Floats, y: Floats, coefficients: NDArray[np.complex128], block: NDArray[np.int_], blocks: int
) -> tuple[Floats, Floats]:
    """Squared misfit of each block at each phase, shape (blocks, phases), and readings per block."""
    harmonics = len(coefficients)
    waves = fourier(u, harmonics)
    turned = coefficients[:, None] * turns(harmonics, _PHASES)
    modelled = waves[:, :harmonics] @ turned.real + waves[:, harmonics:] @ turned.imag
    squares = (y[:, None] - modelled) ** 2
    sizes = np.bincount(block, minlength=blocks).astype(np.float64)
    totals = np.zeros((blocks, _PHASES))
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    totals[block[starts]] = np.add.reduceat(squares, starts, axis=0)
    return totals, sizes


def between(u: Floats, knots: Floats) -> NDArray[np.int_]:
    """For each phase the place of the last knot before it, shape (n,); knots are as far apart as the first two."""
    return np.asarray(np.clip((u / (knots[1] - knots[0])).astype(int), 0, len(knots) - 2))


@cache
def _square_gaps() -> Floats:
    """Squared distances between phases, the shorter way round, shape (phases, phases)."""
    steps = np.arange(_PHASES) / _PHASES
    return np.asarray(((steps[:, None] - steps[None, :] + 0.5) % 1.0 - 0.5) ** 2)


@cache
def turns(harmonics: int, phases: int) -> NDArray[np.complex128]:
    """What each of many phases, all round the cycle, does to each harmonic, shape (harmonics, phases)."""
    return np.asarray(np.exp(-2j * np.pi * np.outer(np.arange(1, harmonics + 1), np.arange(phases) / phases)))


def _shortest(costs: Floats, moves: Floats, out_costs: Floats) -> tuple[NDArray[np.int_], Bools]:
    """The cheapest phase per block, and the blocks that are cheaper to leave out."""
    blocks = len(costs)
    out = costs.min(axis=1) > out_costs
    costs = np.minimum(costs, out_costs[:, None])
    total = costs[0]
    back = np.zeros((blocks, _PHASES), dtype=int)
    every = np.arange(_PHASES)
    for place in range(1, blocks):
        if out[place - 1]:
            back[place] = np.argmin(total)
            total = total.min() + costs[place]
        else:
            reached = total + moves
            back[place] = reached.argmin(axis=1)
            total = reached[every, back[place]] + costs[place]
    chosen = np.zeros(blocks, dtype=int)
    chosen[-1] = int(np.argmin(total))
    for place in range(blocks - 1, 0, -1):
        chosen[place - 1] = back[place][chosen[place]]
    return chosen, out


def _as_path(chosen: NDArray[np.int_], out: Bools, sizes: Floats) -> Path:
    """Unwrapped phases at the knots; a block next to a jump is left out as well."""
    steps = (np.diff(chosen) / _PHASES + 0.5) % 1.0 - 0.5
    phases = np.concatenate(([chosen[0] / _PHASES], chosen[0] / _PHASES + np.cumsum(steps)))
    sparse = sizes < _SPARSE * np.median(sizes)
    sparse[-1] = False  # cut short by the end of the readings, not by a gap
    sparse |= sizes == 0
    out = _with_neighbours(out | sparse)
    for place in np.flatnonzero(np.abs(steps) > 0.2):
        if not out[place] and not out[place + 1]:
            out[place + 1] = True
    # A knot stands between two blocks: at the mean phase of those that count.
    blocks_at_knot = np.convolve(~out, [1.0, 1.0])
    where = np.flatnonzero(blocks_at_knot)
    if len(where) == 0:
        return Path(theta=np.zeros(len(out) + 1), blocks=~out)
    means = np.convolve(np.where(out, 0.0, phases), [1.0, 1.0])[where] / blocks_at_knot[where]
    return Path(theta=np.interp(np.arange(len(out) + 1), where, means), blocks=~out)


def _with_neighbours(out: Bools) -> Bools:
    """A long stretch that is left out begins and ends somewhere inside its neighbours, so they go with it."""
    inside = out[:-1] & out[1:]
    run = np.concatenate(([False], inside)) | np.concatenate((inside, [False]))
    return np.asarray(out | np.concatenate((run[1:], [False])) | np.concatenate(([False], run[:-1])))
