"""python -m bench cluster: pretended clusters on one machine, and what autocap does on them."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from autocap.errors import AutocapError
from bench.cluster import up

_BENCHMARKS = {  # each has main(argv) -> int
    "jobs": "whole jobs against the oracle and against one node",
    "deaths": "what becomes of limits and job when something dies",
    "cost": "what the controller, its carrier and the agents take",
    "virtual": "1 to 512 nodes in virtual time",
}


def main(argv: Sequence[str]) -> int:
    """Run one of its commands; the exit status."""
    if argv and argv[0] in _BENCHMARKS:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        status: int = import_module(f"bench.cluster.{argv[0]}").main(argv[1:])
        return status
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    starts = commands.add_parser("up", help="start a cluster, and print what a shell needs that is to use it")
    up.add_options(starts)
    ends = commands.add_parser("down", help="end it, also half-started, and remove its files")
    tells = commands.add_parser("env", help="print again what such a shell needs")
    for command, run in ((starts, up.up), (ends, up.down), (tells, up.env)):
        up.add_directory(command)
        command.set_defaults(run=run)
    for name, text in _BENCHMARKS.items():
        commands.add_parser(name, help=text)
    args = parser.parse_args(argv)
    try:
        status = args.run(args)
    except AutocapError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return status
