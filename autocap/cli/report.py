"""`autocap report`."""

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli.numpy_threads import one_thread
from autocap.cli.user_rights import become_user
from autocap.config import values
from autocap.events import Event
from autocap.streams import note, put, put_json
from autocap.streams.terminal import columns, encoding_of

if TYPE_CHECKING:
    from autocap.reports.rendering import Presentation


class Report:
    """Show a finished, killed or running run from its directory.

    Without an option, as a table. --html and --plots put their files into the run directory.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="RUN_DIR", type=values.path, help="a run directory")
        parser.add_argument("--html", action="store_true", help="write report.html: one file, to be read offline")
        parser.add_argument("--plots", action="store_true", help="write the pictures as PNG and SVG (needs matplotlib)")
        parser.add_argument("--json", action="store_true", help="print result.json, rebuilt from the events")
        parser.add_argument(
            "--follow", action="store_true", help="show a run that goes on, until it ends; then the report"
        )

    def run(self, args: argparse.Namespace) -> int:
        # Reports need numpy and the metrics' arithmetic, which `--help` has no use for.
        with one_thread():
            from autocap.reports import plots, rendering, text
            from autocap.runlog.event_log import read_events

        become_user(_load, plots.rehearse if args.plots else None)
        damaged: list[str] = []  # said below what is shown, or not at all: an error is one line
        if args.follow:
            events = _followed(args.directory, args.json, damaged)
        else:
            events = read_events(args.directory, damaged.append)
        report = _report(args.directory, events)
        if args.html:
            note(f"wrote {rendering.write_page(args.directory, report)}")
        if args.plots:
            for path in rendering.write_plots(args.directory, report):
                note(f"wrote {path}")
        if args.json:
            put_json(report.result)
        elif not (args.html or args.plots):
            warnings = (f"warning: {warning}" for warning in report.document.warnings)
            put(*text.lines(report.document, columns(sys.stdout), encoding_of(sys.stdout)), *warnings)
        note(*(f"warning: {one}" for one in damaged))
        return 0


def _load() -> None:
    """Make a report on nothing, which loads what one on a run needs."""
    from encodings import utf_8_sig  # noqa: F401 - of samples

    from rich.console import Console

    from autocap.cli import follow  # noqa: F401
    from autocap.reports import html, text
    from autocap.reports.document import Document, Table
    from autocap.reports.live import terminal  # noqa: F401
    from autocap.reports.live.status import Status
    from autocap.reports.live.view import View
    from autocap.sweep import document  # noqa: F401

    table = Table(heading="", titles=("W", ""), rows=(("1", "kept"),))
    empty = dict.fromkeys(("kicker", "headline", "aim", "label", "version"), "")
    nothing = Document(**empty, remarks=(), facts=(), warnings=(), body=(table,), job=(("command", ""),))
    text.lines(nothing)
    html.page(nothing, ())
    View(Console(file=io.StringIO())).lines(Status(), 0.0, text.WIDTH, 10)


def _report(directory: Path, events: Sequence[Event]) -> "Presentation":
    from autocap.reports.rendering import present_run
    from autocap.sweep.document import present_sweep
    from autocap.sweep.summary import is_sweep

    return present_sweep(events) if is_sweep(events) else present_run(directory, events)


def _followed(directory: Path, as_json: bool, damaged: list[str]) -> list[Event]:
    """The events of a run, once it is over; shown meanwhile, beside the JSON that was asked for or in front of it."""
    from autocap.cli.follow import follow
    from autocap.clock import MonotonicClock
    from autocap.reports.live import terminal

    reporter = terminal.for_stream(sys.stderr) if as_json else terminal.for_stream(sys.stdout, prefix="")
    try:
        return follow(directory, reporter, MonotonicClock(), damaged.append)
    finally:
        reporter.close()
