"""`autocap report`, and `autocap runs`, which lists what it can show."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autocap.cli import options
from autocap.cli.session import be_the_user
from autocap.cli.settings import take
from autocap.config import RunConfig, values
from autocap.config.option import CommandOption, record_from, same
from autocap.errors import RunDirectoryError, UsageError
from autocap.events import Event, RunStarted, record_kind
from autocap.job.blas_threads import one_thread
from autocap.runlog.directory import RUNS
from autocap.text import columns, encoding_of, note, put, put_json

if TYPE_CHECKING:
    from autocap.clock import Clock
    from autocap.reports.live.terminal import Reporter
    from autocap.reports.summary.record import Summary


_RATES = ("energy_price", "currency", "carbon")
_LOOK_EVERY_S = 1.0  # at a run that goes on
_option = partial(CommandOption, "", commands=("report",))
_rate = partial(CommandOption, "what a kWh costs and emits", commands=("report",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What `autocap report` shows. out: `None` for the run directory. slurm: the number of a job, whose accounting is
    shown beside. energy_price, currency, carbon: `None` for what the run was told."""

    html: Annotated[bool, _option("--html", None, "write report.html: one file, to be read offline")] = False
    plots: Annotated[bool, _option("--plots", None, "write the pictures as SVG")] = False
    out: Annotated[
        Path | None,
        _option(
            "--out DIR", values.path, "where to (default: the run directory)", short="-o", beside=("html", "plots")
        ),
    ] = None
    json: Annotated[
        bool,
        _option("--json", None, "print result.json, rebuilt from the events; of two runs {runs, comparison}"),
    ] = False
    follow: Annotated[bool, _option("--follow", None, "show a run that goes on, until it ends; then the report")] = (
        False
    )
    slurm: Annotated[
        str | None,
        _option(
            "--slurm JOBID",
            values.job_id,
            "show what Slurm's accounting (sacct) has of the job that the run was in beside our own numbers",
        ),
    ] = None
    energy_price: Annotated[
        float | None,
        _rate(
            "--energy-price MONEY",
            values.not_negative("money per kWh"),
            "money per kWh, instead of what the run was told",
        ),
    ] = None
    currency: Annotated[
        str | None,
        same(
            RunConfig,
            "--currency",
            "report",
            "of that money: its sign or code, such as € or EUR",
            "what a kWh costs and emits",
        ),
    ] = None
    carbon: Annotated[
        float | None,
        _rate(
            "--carbon G",
            values.not_negative("grams of CO2 per kWh"),
            "grams of CO₂ per kWh, instead of what the run was told",
        ),
    ] = None


class Report:
    """Show a finished, killed or running run from its directory, the latest in autocap-runs where none is given; or
    compare two: their settings, the caps they kept, and what an iteration of the second costs against the first.

    Without an option, as a table. --html and --plots put their files into --out, or else into the run directory.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap report [RUN_DIR [RUN_DIR]] [options]"
        parser.add_argument(
            "directories", metavar="RUN_DIR", nargs="*", type=values.path,
            help=f"a run directory (default: the latest in {RUNS}), or two to compare",
        )  # fmt: skip
        options.declare(parser, "report", ReportConfig)

    def run(self, args: argparse.Namespace) -> int:
        be_the_user(args.typed)
        take(args, "report")
        config = record_from(ReportConfig, "report", vars(args))
        _check(args.directories, config)
        # Reports need numpy and the metrics' arithmetic, which `--help` has no use for.
        with one_thread():
            from autocap.cli import recorded_runs

        damaged: list[str] = []  # said below what is shown, or not at all: an error is one line
        if len(args.directories) == 2:
            _show_both(*args.directories, as_json=config.json, damaged=damaged)
        else:
            given = args.directories or [recorded_runs.latest(RUNS)]
            if not args.directories:
                note(f"the latest run is {given[0]}")
            _show(given[0], config, damaged)
        note(*(f"warning: {one}" for one in damaged))
        return 0


def _check(directories: Sequence[Path], config: ReportConfig) -> None:
    """Raises UsageError for more runs than can be shown, or for what is not to be had of two."""
    if len(directories) > 2:
        raise UsageError(f"report shows one run or compares two, and these are {len(directories)}; give at most two")
    if config.out is not None and not (config.html or config.plots):
        raise UsageError(f"--out {config.out} is where --html and --plots write; add one of them, or drop it")
    for option in ("html", "plots", "follow", "slurm", *_RATES):
        if len(directories) == 2 and getattr(config, option) not in (None, False):
            raise UsageError(
                f"--{option.replace('_', '-')} is about one run, and these are two; give one, or leave the option out"
            )


def _show(directory: Path, config: ReportConfig, damaged: list[str]) -> None:
    from autocap.cli.recorded_runs import presentation
    from autocap.reports import rendering, text
    from autocap.runlog.event_log import read_events

    events = _followed(directory, config.json, damaged) if config.follow else read_events(directory, damaged.append)
    events = _rated(directory, events, config)
    report = presentation(directory, events)
    if config.slurm is not None:
        from autocap.cli.slurm_books import with_books

        report = with_books(report, events, config.slurm)
    place = config.out or directory
    if config.html:
        note(f"wrote {rendering.write_page(place, report)}")
    if config.plots:
        for path in rendering.write_plots(place, report):
            note(f"wrote {path}")
    if config.json:
        put_json(report.result)
    elif not (config.html or config.plots):
        width = columns(sys.stdout)
        warnings = [f"warning: {warning}" for warning in report.document.warnings]
        folded = warnings if width is None else [part for one in warnings for part in text.folded(one, width)]
        put(*text.lines(report.document, width, encoding_of(sys.stdout)), *folded)


def _rated(directory: Path, events: list[Event], config: ReportConfig) -> list[Event]:
    """The events with the rates that were given, in place of those that the run was told.

    Raises RunDirectoryError for a sweep or a budget, UsageError for a currency without a price.
    """
    rates = {name: getattr(config, name) for name in _RATES if getattr(config, name) is not None}
    given = [f"--{name.replace('_', '-')}" for name in rates]
    what = record_kind(events)
    if given and what != "run":
        raise RunDirectoryError(f"{directory} is a {what}, whose report knows no rates; leave {given[0]} out")
    if config.slurm is not None and what != "run":
        raise RunDirectoryError(f"{directory} is a {what}, and --slurm is about a run; leave it out")
    return [
        replace(event, rates=options.rates_of(rates, event.rates)) if given and isinstance(event, RunStarted) else event
        for event in events
    ]


def _show_both(first: Path, second: Path, *, as_json: bool, damaged: list[str]) -> None:
    """Raises RunDirectoryError where one of them is no run."""
    from autocap.reports import comparison, text
    from autocap.reports.rendering import to_json_dict
    from autocap.wire.codec import encode

    one, other = _summary(first, damaged), _summary(second, damaged)
    found = comparison.compare(one, other)
    if as_json:
        put_json({"runs": [to_json_dict(one), to_json_dict(other)], "comparison": encode(found)})
    else:
        document = comparison.document((str(first), str(second)), one, other, found)
        text.show(document)


def _summary(directory: Path, damaged: list[str]) -> "Summary":
    from autocap.reports.summary.summarise import summarise
    from autocap.runlog.event_log import read_events

    events = read_events(directory, damaged.append)
    what = record_kind(events)
    if what != "run":
        raise RunDirectoryError(f"{directory} is a {what}, and only runs can be compared; show it by itself")
    return summarise(events)


def _followed(directory: Path, as_json: bool, damaged: list[str]) -> list[Event]:
    """The events of a run, once it is over; shown meanwhile, beside the JSON that was asked for or in front of it."""
    from autocap.clock import MonotonicClock
    from autocap.reports.live import terminal

    reporter = terminal.for_stream(sys.stderr) if as_json else terminal.for_stream(sys.stdout, prefix="")
    try:
        return follow(directory, reporter, MonotonicClock(), damaged.append)
    finally:
        reporter.close()


def follow(run_dir: Path, reporter: "Reporter", clock: "Clock", damaged: Callable[[str], None]) -> list[Event]:
    """Pass on to the reporter a run's events, old and new, until it has ended or was killed; all of its events.

    Of a run that has ended already nothing is reported. damaged: is told of lines that are left out. Raises
    RunDirectoryError where there is no such directory.
    """
    from autocap.runlog.event_log import EventTail, has_ended

    found: list[Event] = []
    with EventTail(run_dir, damaged) as tail:

        def wait() -> bool:
            reporter.tick(tail.now_s)
            clock.wait_until(clock.now() + _LOOK_EVERY_S)
            return True

        for look, new in enumerate(tail.looks(wait)):
            found += new
            if look == 0 and has_ended(found):
                return found
            if look == 0 and not found:
                reporter.say([f"waiting for the first event of a run in {run_dir}"])
            for event in new:
                reporter.event(event)
        reporter.close()
        if not has_ended(found):
            reporter.say(
                [f"the run was killed: nobody writes its events any more, the last one is of {tail.last_s:.0f} s"]
            )
        return found


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
            text.show(run_list.document(found, args.directory))
        else:
            put(f"there are no runs in {args.directory}")
        return 0
