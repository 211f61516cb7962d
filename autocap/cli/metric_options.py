"""The options that say what is minimised, and the Metric they mean."""

import argparse

from autocap import config
from autocap.cli import values
from autocap.errors import UsageError
from autocap.metrics import DEFAULT_K, METRICS, Metric


def declare(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    what = parser.add_argument_group("what to minimise")
    what.add_argument("--metric", metavar="NAME", default=config.METRIC, help=f"{', '.join(METRICS)} (default: eds)")
    what.add_argument(
        "--k",
        metavar="K",
        type=values.number,
        help="EDS: the slowdown that would be worth zero energy, above 1 (default: 2)",
    )
    what.add_argument(
        "--max-slowdown",
        metavar="X%",
        type=values.percentage,
        help="longest time per iteration allowed, against the baseline",
    )
    what.add_argument(
        "--energy-price",
        metavar="MONEY",
        type=values.not_negative("money per kWh"),
        help="for the metric cost: money per kWh",
    )
    what.add_argument(
        "--hour-price",
        metavar="MONEY",
        type=values.not_negative("money per device hour"),
        help="for the metric cost: money per device hour",
    )


def metric(args: argparse.Namespace) -> Metric:
    """The metric that parsed options mean. Raises UsageError where they do not go together."""
    k = DEFAULT_K if args.metric == "eds" and args.k is None else args.k
    try:
        return Metric(
            name=args.metric,
            k=k,
            energy_price=args.energy_price,
            hour_price=args.hour_price,
            max_slowdown=args.max_slowdown,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
