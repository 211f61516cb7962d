"""`autocap report`."""

import argparse
import json
from pathlib import Path

from autocap.errors import NotAvailableYet


class Report:
    """Show a finished, killed or running run from its directory."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="RUN_DIR", type=Path, help="a run directory")
        parser.add_argument("--json", action="store_true", help="print result.json, rebuilt from the events")
        for later in ("--html", "--plots", "--follow"):
            parser.add_argument(later, action="store_true", help="not available yet")

    def run(self, args: argparse.Namespace) -> int:
        for later in ("html", "plots", "follow"):
            if getattr(args, later):
                raise NotAvailableYet(f"autocap report --{later}", "leave it out, or use --json")
        # The summary needs rich and the metrics' arithmetic, which `--help` has no use for.
        from autocap.reporters.summary import lines, warnings
        from autocap.runlog import read_events, to_json_dict
        from autocap.summarise import summarise

        summary = summarise(read_events(args.directory))
        if args.json:
            print(json.dumps(to_json_dict(summary), allow_nan=False))
        else:
            print("\n".join(lines(summary) + warnings(summary)))
        return 0
