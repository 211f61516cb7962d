"""`autocap inside`: the process that `autocap.tune` starts beside the script that called it."""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autocap.cli import Parser, options, values
from autocap.cli.numpy_threads import one_thread
from autocap.config import RunConfig
from autocap.errors import AutocapError
from autocap.job.signals import SignalClock


class Inside:
    """Tune a job that asked for it, until it ends or SIGTERM says that it asks no more."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pid", metavar="PID", type=values.pid, required=True, help="the job")
        parser.add_argument("--step-map", metavar="FILE", type=Path, required=True, help="where it counts its steps")
        options.declare(parser, child=False)

    def run(self, args: argparse.Namespace) -> int:
        config = replace(options.attach_config(args, options.INSIDE_PROGRESS), step_map=args.step_map)
        # A script that wants to survive SIGTERM has it ignored, also by whoever it starts; to us it is the block's end.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            with SignalClock() as clock:  # before numpy and its threads, which would catch our signals
                with one_thread():
                    from autocap.session.modes import inside

                return inside(config, clock, args.pid)
        except AutocapError as error:  # nothing is tuned, which is no reason to disturb the job
            print(f"autocap: warning: the job runs untuned: {error}", file=sys.stderr)
            return error.exit_status


def checked(words: Sequence[str]) -> RunConfig:
    """What options mean that are given as on the command line of `attach`. Raises UsageError."""
    parser = Parser(prog="autocap attach", allow_abbrev=False, add_help=False)
    options.declare(parser, child=False)
    args = parser.parse_args(words)
    args.child = None
    return options.attach_config(args, options.INSIDE_PROGRESS)
