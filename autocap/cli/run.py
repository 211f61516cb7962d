"""`autocap run` and `attach`, and `inside`, the process that `autocap.tune` starts beside the script that called it."""

import argparse
import signal
from collections.abc import Sequence
from dataclasses import replace

from autocap.cli import Parser, options
from autocap.cli.session_clock import session_clock
from autocap.config import RunConfig, values
from autocap.errors import AutocapError, UsageError
from autocap.job.invoking_user import invoking_user
from autocap.streams import note, put


class Run:
    """Start CMD, tune its power caps while it runs, and end with its exit status."""

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap run [options] -- CMD …"
        options.declare(parser, "run")

    def run(self, args: argparse.Namespace) -> int:
        config = options.run_config(args, "run")
        with session_clock() as clock:
            from autocap.session.modes import run

            return run(config, clock)


class Attach:
    """Tune the power caps of a job that runs already, until it ends.

    Ctrl-C puts the caps back and leaves the job alone. Nothing is put into the job: iterations are found as a period in
    its power, and where none is found the SM clock stands in for the speed.
    """

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap attach --pid PID [options]"
        parser.add_argument(
            "--pid", metavar="PID", type=values.pid, required=True, help="the job: this process and its descendants"
        )
        options.declare(parser, "attach")

    def run(self, args: argparse.Namespace) -> int:
        config = options.attach_config(args)
        with session_clock() as clock:
            from autocap.session.modes import attach
            from autocap.session.place import LocalPlace

            return attach(config, clock, LocalPlace(args.pid))


class Inside:
    """Tune a job that asked for it, until the job or its tuned block ends (the block ends us with SIGTERM)."""

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pid", metavar="PID", type=values.pid, required=True, help="the job")
        parser.add_argument(
            "--step-map-fd", metavar="FD", type=values.count, required=True, help="descriptor of its step map"
        )
        options.declare(parser, "attach")

    def run(self, args: argparse.Namespace) -> int:
        if invoking_user() is not None:
            raise UsageError("`inside` is what autocap.tune starts in a script, and nothing to run under sudo")
        config = replace(options.attach_config(args, "tune"), step_map_fd=args.step_map_fd)
        # A script that wants to survive SIGTERM has it ignored, also by whoever it starts; to us it is the block's end.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            with session_clock() as clock:
                from autocap.session.modes import inside
                from autocap.session.place import LocalPlace

                return inside(config, clock, LocalPlace(args.pid))
        except AutocapError as error:  # nothing is tuned, which is no reason to disturb the job
            note(f"warning: the job runs untuned: {error}")
            put(str(error))  # for the block, which has this as its result
            return error.exit_status


def checked(words: Sequence[str]) -> RunConfig:
    """What options mean that are given as on the command line of `attach`. Raises UsageError."""
    parser = Parser(prog="autocap attach", allow_abbrev=False, add_help=False)
    options.declare(parser, "attach")
    args = parser.parse_args(words)
    args.child = None
    return options.attach_config(args, "tune")
