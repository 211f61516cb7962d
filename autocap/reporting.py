"""From a run directory to pages and pictures: the only place that joins reading, summary, figures and renderers."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.pages import Page, run_page
from autocap.reporters import html, plots
from autocap.runlog import REPORT, read_samples, replace
from autocap.samples import parse
from autocap.sweep.page import sweep_page
from autocap.sweep.summary import is_sweep

KINDS = ("png", "svg")


def page(run_dir: Path, events: Sequence[Event]) -> bytes:
    """The HTML report of a run, finished or not. Raises RunDirectoryError where the run has no start on record, or its
    samples cannot be read."""
    return html.document(_page(run_dir, events))


def write_page(run_dir: Path, events: Sequence[Event]) -> Path:
    """Put `report.html` into a run directory; its path. Raises as `page`, and where it cannot be written."""
    return _put(run_dir / REPORT, page(run_dir, events))


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
