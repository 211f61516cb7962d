"""`python -m bench prices`: caps that follow what electricity costs, against the best constant cap.

bound: what following could save at most where the curve is known, in seconds. swing: days on which the price goes up
and down, each like the other; valleys: the same on curves that are slower around their best constant cap, so that they
have two valleys. Both are the policy alone on the twelve published curves, with a real search, and every measurement
with its error; the whole controller follows a price in jobs of `bench gate`.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from autocap.devices.model.profiles import Profile
from bench.common import add_seeds
from bench.prices.policy import Curve, Job, TwoValleys, reference, swinging
from bench.simulation.jobs import seed_profiles

_MEAN = 0.3  # money per kWh
_DAYS = {"bound": 2, "swing": 30, "valleys": 30}


def main(argv: Sequence[str]) -> int:
    """Print the tables that the command line asks for; the exit status."""
    args = _parser().parse_args(argv)
    try:
        hour_prices = [float(part) for part in args.hour_prices.split(",")]
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    profiles = [profile for profile in seed_profiles() if args.curves in profile.name]
    if args.quick:
        profiles = profiles[:: max(1, len(profiles) // 2)]
    days = args.days or (4 if args.quick else _DAYS[args.part])
    for hour_price in hour_prices:
        if args.part == "bound":
            lines = bound(profiles, swinging(days, args.swing / 100, _MEAN), hour_price)
        else:
            curves: list[Curve] = list(profiles)
            if args.part == "valleys":
                curves = [_two_valleys(profile, hour_price) for profile in profiles]
            lines = table(curves, swinging(days, args.swing / 100, _MEAN), hour_price, args.seeds, args.seed_base)
        for line in lines:
            print(line, flush=True)
    return 0


def bound(profiles: Sequence[Profile], values: Sequence[float], hour_price: float) -> Iterator[str]:
    """A line for each curve."""
    yield "| curve | money per hour | best constant cap | which saves | followed perfectly, saves more |"
    yield "|" + "---|" * 5
    for profile in profiles:
        known = reference(Job(profile, hour_price, 0), values)
        constant, more = saved_pct(known.constant, known.found), saved_pct(known.perfect, known.constant)
        yield f"| {profile.name} | {hour_price:g} | {known.cap_w:g} W | {_percent(constant)} | {_percent(more)} |"


HEADING = (
    "| curve | money per hour | best constant cap | which saves | followed perfectly, saves more | autocap saves more "
    "| of that | changes a day | most in an hour |"
)


def table(
    profiles: Sequence[Curve], values: Sequence[float], hour_price: float, seeds: int, base: int
) -> Iterator[str]:
    """A line for each curve; of seeds the mean, and in brackets the worst."""
    yield HEADING
    yield "|" + "---|" * 9
    for profile in profiles:
        gains, moves, most = list[float](), 0, 0
        for seed in range(base, base + seeds):
            job = Job(profile, hour_price, seed)
            known, book = reference(job, values), job.follow(values)
            gains.append(saved_pct(book.per_iteration, known.constant))
            moves, most = moves + sum(book.moves), max(most, *book.moves)
        yield row(
            profile.name,
            hour_price,
            known.cap_w,
            (saved_pct(known.constant, known.found), saved_pct(known.perfect, known.constant)),
            gains,
            f"{moves / seeds / (len(values) / 24):.1f} | {most}",
        )


def _two_valleys(profile: Profile, hour_price: float) -> TwoValleys:
    """Slower around what would be its best constant cap."""
    return TwoValleys(profile, reference(Job(profile, hour_price, 0), swinging(2, 0.5, _MEAN)).cap_w)


def saved_pct(cost: float, over: float) -> float:
    """Of the size of what it is over."""
    return 100 * (over - cost) / abs(over)


def _percent(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f} %"  # without a sign of 0


def row(
    name: str, hour_price: float, cap_w: float, could: tuple[float, float], gains: Sequence[float], moved: str
) -> str:
    constant, perfect = could
    mean, worst = sum(gains) / len(gains), min(gains)
    share = f"{100 * mean / perfect:.0f} %" if perfect > 0.05 else "–"
    saves = [*map(_percent, (constant, perfect)), _percent(mean) + (f" ({_percent(worst)})" if len(gains) > 1 else "")]
    return f"| {name} | {hour_price:g} | {cap_w:g} W | {' | '.join(saves)} | {share} | {moved} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench prices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=list(_DAYS), default="swing")
    parser.add_argument(
        "--hour-prices", default="0.1", metavar="LIST", help="money per device hour, by comma (default 0.1)"
    )
    parser.add_argument("--curves", default="", metavar="TEXT", help="those with this in their name (default all)")
    parser.add_argument("--days", type=int, default=0, metavar="N", help="(default: bound 2, else 30)")
    parser.add_argument("--swing", type=float, default=50.0, metavar="X", help="percent up and down (default 50)")
    add_seeds(parser, 1, "of swing, repeats")
    parser.add_argument("--quick", action="store_true", help="two curves, four days")
    return parser
