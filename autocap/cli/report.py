"""`autocap report`."""

import argparse
import json
import sys
from pathlib import Path

from autocap.cli.blas import one_thread
from autocap.errors import NotAvailableYet
from autocap.privileges import acting_as, invoking_user


class Report:
    """Show a finished, killed or running run from its directory.

    Without an option, as a table. --html and --plots put their files into the run directory.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="RUN_DIR", type=Path, help="a run directory")
        parser.add_argument("--html", action="store_true", help="write report.html: one file, to be read offline")
        parser.add_argument("--plots", action="store_true", help="write the pictures as PNG and SVG (needs matplotlib)")
        parser.add_argument("--json", action="store_true", help="print result.json, rebuilt from the events")
        parser.add_argument("--follow", action="store_true", help="not available yet")

    def run(self, args: argparse.Namespace) -> int:
        if args.follow:
            raise NotAvailableYet("autocap report --follow", "leave it out, or use --json")
        # Reports need numpy and the metrics' arithmetic, which `--help` has no use for.
        with one_thread():
            from autocap import reporting
            from autocap.runlog import read_events

        events = read_events(args.directory)
        with acting_as(invoking_user()):  # under sudo the files belong to whoever typed the command
            if args.html:
                _say(reporting.write_page(args.directory, events))
            if args.plots:
                for path in reporting.write_plots(args.directory, events):
                    _say(path)
        if args.json:
            print(json.dumps(reporting.result(events), allow_nan=False))
        elif not (args.html or args.plots):
            print("\n".join(reporting.lines(events)))
        return 0


def _say(path: Path) -> None:
    print(f"autocap: wrote {path}", file=sys.stderr)
