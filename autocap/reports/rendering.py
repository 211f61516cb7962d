"""From a run directory to pages and pictures: the only place that joins reading, summary, figures and renderers."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.reports import html, plots
from autocap.reports.page import Page, run_page
from autocap.reports.summary.summarise import summarise
from autocap.reports.summary.to_json import to_json_dict
from autocap.reports.text import WIDTH
from autocap.reports.text import lines as summary_lines
from autocap.runlog.codec import Json, encode
from autocap.runlog.directory import REPORT, RunDirectory, replace
from autocap.runlog.reading import read_samples
from autocap.runlog.samples import parse
from autocap.sweep import summary as sweep_summary
from autocap.sweep.page import sweep_page
from autocap.sweep.summary import is_sweep
from autocap.sweep.text import lines as sweep_lines

log = logging.getLogger(__name__)
KINDS = ("png", "svg")


def lines(events: Sequence[Event], width: int = WIDTH) -> list[str]:
    """What a run or sweep came to, as a terminal shows it, with its warnings."""
    if is_sweep(events):
        swept = sweep_summary.summarise(events)
        told, warnings = sweep_lines(swept, width), swept.warnings
    else:
        summary = summarise(events)
        told, warnings = summary_lines(summary, width), summary.warnings
    return [*told, *(f"warning: {text}" for text in warnings)]


def result(events: Sequence[Event]) -> Json:
    """What `result.json` holds."""
    return encode(sweep_summary.summarise(events)) if is_sweep(events) else to_json_dict(summarise(events))


def page(run_dir: Path, events: Sequence[Event]) -> str:
    """The HTML report of a run or sweep, finished or not. Raises RunDirectoryError where it has no start on record, or
    its samples cannot be read."""
    return html.document(_page(run_dir, events))


def put_page(directory: RunDirectory, events: Sequence[Event]) -> str | None:
    """Put `report.html` into the directory of a run that is over; why not, where it cannot be.

    The run has its exit status by then, so no fault in here may get out.
    """
    try:
        directory.put(REPORT, page(directory.path, events))
    except RunDirectoryError as error:
        return str(error)
    except Exception as error:
        log.debug("no page", exc_info=True)
        return f"{REPORT} could not be made: internal fault: {type(error).__name__}: {error}"
    return None


def write_page(run_dir: Path, events: Sequence[Event]) -> Path:
    """Put `report.html` into a run directory; its path. Raises as `page`, and where it cannot be written."""
    return _put(run_dir / REPORT, page(run_dir, events).encode())


def write_plots(run_dir: Path, events: Sequence[Event]) -> Iterator[Path]:
    """Put each picture into a run directory as PNG and SVG; their paths, one by one.

    Raises PlotsUnavailable without matplotlib, RunDirectoryError where one cannot be written.
    """
    plots.require()
    for picture in _page(run_dir, events).pictures:
        for kind in KINDS:
            yield _put(run_dir / f"{picture.name}.{kind}", plots.draw(picture, kind))


def _page(run_dir: Path, events: Sequence[Event]) -> Page:
    if is_sweep(events):
        return sweep_page(events)
    return run_page(events, parse(read_samples(run_dir)))


def _put(path: Path, data: bytes) -> Path:
    try:
        replace(path, data)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}; check its permissions") from error
    return path
