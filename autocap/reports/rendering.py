"""From a run directory to pages and pictures: the only place that joins reading, summary, figures and renderers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.reports import html, plots
from autocap.reports.page import Page, run_page
from autocap.runlog.directory import REPORT, RunDirectory, replace
from autocap.runlog.reading import read_samples
from autocap.runlog.samples import parse

log = logging.getLogger(__name__)
KINDS = ("png", "svg")


def recorded_page(run_dir: Path, events: Sequence[Event]) -> Page:
    """The page of a run, finished or not, with the samples in its directory. Raises RunDirectoryError where it has no
    start on record, or its samples cannot be read."""
    return run_page(events, parse(read_samples(run_dir)))


def put_page(directory: RunDirectory, page: Callable[[], Page]) -> str | None:
    """Put `report.html` into the directory of a run or sweep that is over; why not, where it cannot be.

    The run has its exit status by then, so no fault in here, or in making the page, may get out.
    """
    try:
        directory.put(REPORT, html.document(page()))
    except RunDirectoryError as error:
        return str(error)
    except Exception as error:
        log.debug("no page", exc_info=True)
        return f"{REPORT} could not be made: internal fault: {type(error).__name__}: {error}"
    return None


def write_page(run_dir: Path, page: Page) -> Path:
    """Put `report.html` into a run directory; its path. Raises RunDirectoryError where it cannot be written."""
    return _put(run_dir / REPORT, html.document(page).encode())


def write_plots(run_dir: Path, page: Page) -> Iterator[Path]:
    """Put each picture of a page into a run directory as PNG and SVG; their paths, one by one.

    Raises PlotsUnavailable without matplotlib, RunDirectoryError where one cannot be written.
    """
    plots.require()
    for picture in page.pictures:
        for kind in KINDS:
            yield _put(run_dir / f"{picture.name}.{kind}", plots.draw(picture, kind))


def _put(path: Path, data: bytes) -> Path:
    try:
        replace(path, data)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}; check its permissions") from error
    return path
