"""`autocap attach`."""

import argparse

from autocap.cli import options, values
from autocap.cli.numpy_threads import one_thread
from autocap.job.signals import SignalClock


class Attach:
    """Tune the power caps of a job that runs already, until it ends.

    Ctrl-C puts the caps back and leaves the job alone. Nothing is put into the job: iterations are found as a period in
    its power, and where none is found the SM clock stands in for the speed.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap attach --pid PID [options]"
        parser.add_argument(
            "--pid", metavar="PID", type=values.pid, required=True, help="the job: this process and its descendants"
        )
        options.declare(parser, child=False)

    def run(self, args: argparse.Namespace) -> int:
        config = options.attach_config(args)
        with SignalClock() as clock:  # before numpy and its threads, which would catch our signals
            with one_thread():
                from autocap.session.modes import attach

            return attach(config, clock, args.pid)
