"""The options of a run or sweep that are about the power of the whole machine."""

import argparse

from autocap import config
from autocap.cli import values
from autocap.errors import UsageError


def declare(parser: argparse.ArgumentParser, *, at_rest: str) -> None:
    """Add them. at_rest: when the machine can be seen to be."""
    node = parser.add_argument_group("the whole machine")
    node.add_argument(
        "--node-power",
        metavar="SOURCE",
        type=values.node_power,
        default=config.NODE_POWER,
        help="count the machine's energy, not the GPUs' alone: watts or rapl (are added to the GPUs'), ipmi or "
        "command:CMD (a meter of the whole machine, which prints watts, a line a reading), none (default: none)",
    )
    node.add_argument(
        "--idle-power",
        metavar="W",
        type=values.positive("watts"),
        help=f"what the whole machine draws at rest (default: estimated {at_rest})",
    )
    node.add_argument(
        "--standard-idle",
        metavar="W",
        type=values.not_negative("watts"),
        help="report energy also as on a machine that draws W at rest, to compare machines",
    )


def check(args: argparse.Namespace) -> None:
    """Raises UsageError for what does not go together."""
    if args.node_power == args.device == "rapl":
        raise UsageError("--node-power rapl would count the packages of --device rapl again; drop one of them")
    for option, given in (("--idle-power", args.idle_power), ("--standard-idle", args.standard_idle)):
        if given is not None and args.node_power == config.NODE_POWER:
            raise UsageError(f"{option} is about the node's power; add --node-power, or drop it")
