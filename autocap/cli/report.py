"""`autocap report`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.errors import NotAvailableYet

if TYPE_CHECKING:
    from autocap.events import Event


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
        from autocap.sweep.summary import is_sweep

        events = read_events(args.directory)
        if is_sweep(events):
            return _report_sweep(events, as_json=args.json)
        summary = summarise(events)
        if args.json:
            print(json.dumps(to_json_dict(summary), allow_nan=False))
        else:
            print("\n".join(lines(summary) + warnings(summary)))
        return 0


def _report_sweep(events: Sequence["Event"], *, as_json: bool) -> int:
    from autocap.codec import encode
    from autocap.reporters.sweep import lines
    from autocap.sweep.summary import summarise

    summary = summarise(events)
    if as_json:
        print(json.dumps(encode(summary), allow_nan=False))
    else:
        print("\n".join([*lines(summary), *(f"warning: {text}" for text in summary.warnings)]))
    return 0
