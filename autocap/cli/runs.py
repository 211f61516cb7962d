"""`autocap runs`."""

import argparse
import sys

from autocap.cli.session import be_the_user
from autocap.config import values
from autocap.job.blas_threads import one_thread
from autocap.runlog.directory import RUNS
from autocap.text import columns, encoding_of, put, put_json


class Runs:
    """List the runs that were made here, the latest first: when, with what command, and what they saved.

    `autocap report RUN_DIR` shows one of them, and without a directory the latest.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "directory", metavar="DIR", nargs="?", default=RUNS, type=values.path,
            help=f"where the runs are (default: {RUNS})",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print a list, with what does not fit into a line")

    def run(self, args: argparse.Namespace) -> int:
        be_the_user(args.typed)
        with one_thread():
            from autocap.cli import recorded_runs
            from autocap.reports import run_list, text
            from autocap.wire.codec import encode

        found = recorded_runs.past_runs(args.directory)
        if args.json:
            put_json([encode(one) for one in found])
        elif found:
            put(*text.lines(run_list.document(found, args.directory), columns(sys.stdout), encoding_of(sys.stdout)))
        else:
            put(f"there are no runs in {args.directory}")
        return 0
