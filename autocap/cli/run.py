"""`autocap run`."""

import argparse

from autocap.cli import options
from autocap.cli.numpy_threads import one_thread
from autocap.job.signals import SignalClock


class Run:
    """Start CMD, tune its power caps while it runs, and end with its exit status."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap run [options] -- CMD …"
        options.declare(parser, child=True)

    def run(self, args: argparse.Namespace) -> int:
        run = options.run_config(args)
        with SignalClock() as clock:  # before numpy and its threads, which would catch our signals
            with one_thread():
                from autocap.session.modes import run as run_session

            return run_session(run, clock)
