"""What made-up curves look like: `python -m bench.strategies.curve_set --seed N --count N --families knees`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from autocap.errors import UsageError
from bench.common import markdown
from bench.strategies.curve_set import curve_set
from bench.strategies.curve_set.knees import AT_KNEE, BELOW_KNEE
from bench.strategies.curves import CapCurve

Floats = NDArray[np.float64]

_HEADINGS = (
    *("family", "n", "knee: draw below which T > 1.03", "T at 0.9, 0.8, 0.7 of the knee's draw"),
    *("draw at the energy optimum", "energy there", "draw / cap where it binds", "lowest draw", "T there"),
)
_APART = 0.015  # of the uncapped draw: where draws differ by more than a run's error


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One curve's numbers; NaN is what it does not show.

    slowed: T at 0.9, 0.8 and 0.7 of the knee's draw. optimum: the draw where energy is least. share: draw over cap.
    """

    knee: float
    slowed: tuple[float, float, float]
    optimum: float
    energy: float
    share: float
    lowest: float
    slowest: float


def traits(curve: CapCurve) -> Traits:
    """What one curve's points say."""
    caps_w, draws_w, times_s = (np.array(values) for values in (curve.caps_w, curve.powers_w, curve.times_s))
    draws, times = draws_w / draws_w[-1], times_s / times_s[-1]
    knee = _knee(draws, times)
    order = np.argsort(draws)
    slowed = [
        float(np.interp(share * knee, draws[order], times[order])) if share * knee >= draws.min() else np.nan
        for share in BELOW_KNEE
    ]
    binds = (draws < 1 - _APART) & (draws > draws.min() + _APART)
    best = int(np.argmin(draws * times))
    return Traits(
        knee=knee,
        slowed=(slowed[0], slowed[1], slowed[2]),
        optimum=float(draws[best]),
        energy=float((draws * times)[best]),
        share=float(np.median((draws_w / caps_w)[binds])) if binds.any() else np.nan,
        lowest=float(draws.min()),
        slowest=float(times[0]),
    )


def _knee(draws: Floats, times: Floats) -> float:
    """Where T crosses 1.03 on the way down for good, between two points by a line."""
    fine = np.flatnonzero(times <= AT_KNEE)[0]  # the lowest cap that is no slower than that; the highest one is not
    if fine == 0:
        return np.nan
    return float(np.interp(AT_KNEE, [times[fine], times[fine - 1]], [draws[fine], draws[fine - 1]]))


def table(curves: Sequence[CapCurve]) -> Iterator[str]:
    """A line per family of a Markdown table.

    Draw and time are over those at the highest cap, T is time; each number is a median, with the smallest and the
    largest. The knee is the draw below which T is above 1.03; "where the cap binds" are the caps at which the draw is
    below the uncapped one and above the lowest.
    """
    yield from markdown(*_HEADINGS)
    for family, some in groupby(sorted(curves, key=lambda curve: curve.family), key=lambda curve: curve.family):
        found = [traits(curve) for curve in some]
        columns = {
            name: _spread([getattr(one, name) for one in found])
            for name in ("knee", "optimum", "energy", "share", "lowest", "slowest")
        }
        slowed = ", ".join(f"{_median([one.slowed[place] for one in found]):.2f}" for place in range(len(BELOW_KNEE)))
        yield f"| {family} | {len(found)} | {columns.pop('knee')} | {slowed} | {' | '.join(columns.values())} |"


def _median(values: Sequence[float]) -> float:
    known = np.array(values)[~np.isnan(values)]
    return float(np.median(known)) if len(known) else np.nan


def _spread(values: Sequence[float]) -> str:
    known = np.array(values)[~np.isnan(values)]
    return f"{np.median(known):.2f} ({known.min():.2f}–{known.max():.2f})" if len(known) else "–"


def main(argv: Sequence[str]) -> int:
    """Make a set of curves and print its table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.strategies.curve_set", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=120, help="in all, the families in turn (default: 120)")
    parser.add_argument(
        "--families", default="made-up", help="by comma; a set's name stands for its families (default: made-up)"
    )
    args = parser.parse_args(argv)
    try:
        print("\n".join(table(curve_set(args.seed, args.count, args.families.split(",")))))
    except UsageError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
