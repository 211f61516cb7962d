"""`autocap report`."""

import argparse
import json
import sys
from pathlib import Path

from autocap.errors import NotAvailableYet
from autocap.events import Event


class Report:
    """Show a finished, killed or running run from its directory."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="RUN_DIR", type=Path, help="a run directory")
        parser.add_argument("--json", action="store_true", help="print result.json, rebuilt from the events")
        parser.add_argument(
            "--follow", action="store_true", help="show a run that goes on, until it ends; then the report"
        )
        for later in ("--html", "--plots"):
            parser.add_argument(later, action="store_true", help="not available yet")

    def run(self, args: argparse.Namespace) -> int:
        for later in ("html", "plots"):
            if getattr(args, later):
                raise NotAvailableYet(f"autocap report --{later}", "leave it out, or use --json")
        # The summary needs rich and the metrics' arithmetic, which `--help` has no use for.
        from autocap.reporters.summary import lines, warnings
        from autocap.runlog import read_events, to_json_dict
        from autocap.summarise import summarise

        summary = summarise(_followed(args.directory, args.json) if args.follow else read_events(args.directory))
        if args.json:
            print(json.dumps(to_json_dict(summary), allow_nan=False))
        else:
            print("\n".join(lines(summary) + warnings(summary)))
        return 0


def _followed(directory: Path, as_json: bool) -> list[Event]:
    """The events of a run, once it is over; shown meanwhile, beside the JSON that was asked for or in front of it."""
    from autocap.cli.follow import follow
    from autocap.clock import MonotonicClock
    from autocap.reporters import terminal

    reporter = terminal.for_stream(sys.stderr) if as_json else terminal.for_stream(sys.stdout, prefix="")
    try:
        return follow(directory, reporter, MonotonicClock())
    finally:
        reporter.close()
