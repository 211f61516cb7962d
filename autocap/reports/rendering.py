"""A run or sweep in all forms that a user may ask for: text, an HTML page, pictures, `result.json`."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.reports import html, plots
from autocap.reports.document import Document
from autocap.reports.figures import pictures
from autocap.reports.figures.model import Picture
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.summary.to_json import to_json_dict
from autocap.runlog.codec import Json
from autocap.runlog.directory import REPORT, RunDirectory, replace
from autocap.runlog.samples import read_samples

log = logging.getLogger(__name__)
KINDS = ("png", "svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """document: for text and page. pictures: draws up those of the page when it is called; raises RunDirectoryError
    where the samples cannot be read. result: what `result.json` holds."""

    document: Document
    pictures: Callable[[], Sequence[Picture]]
    result: Json

    @property
    def page(self) -> str:
        """The HTML page."""
        return html.page(self.document, self.pictures())


def present_run(run_dir: Path, events: Sequence[Event]) -> Presentation:
    """The report on a run, finished or not. Raises RunDirectoryError where it has no start on record."""
    summary = summarise(events)
    return Presentation(
        document=run_document(summary, events),
        pictures=lambda: pictures(summary, events, read_samples(run_dir)),
        result=to_json_dict(summary),
    )


def put_page(directory: RunDirectory, report: Presentation) -> str | None:
    """Put `report.html` into the directory of a run that is over; why not, where it cannot be.

    The run has its exit status by then, so no fault in here may get out.
    """
    try:
        directory.put(REPORT, report.page)
    except RunDirectoryError as error:
        return str(error)
    except Exception as error:
        log.debug("no page", exc_info=True)
        return f"{REPORT} could not be made: internal fault: {type(error).__name__}: {error}"
    return None


def write_page(run_dir: Path, report: Presentation) -> Path:
    """Put `report.html` into a run directory; its path. Raises RunDirectoryError where it cannot be written."""
    return _put(run_dir / REPORT, report.page.encode())


def write_plots(run_dir: Path, report: Presentation) -> Iterator[Path]:
    """Put each picture into a run directory as PNG and SVG; their paths, one by one.

    Raises PlotsUnavailable without matplotlib, RunDirectoryError where one cannot be written.
    """
    plots.require()
    for picture in report.pictures():
        for kind in KINDS:
            yield _put(run_dir / f"{picture.name}.{kind}", plots.draw(picture, kind))


def _put(path: Path, data: bytes) -> Path:
    try:
        replace(path, data)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}; check its permissions") from error
    return path
