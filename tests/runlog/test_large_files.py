"""Files that unpack to gigabytes, lines and rows without an end: read in bounded room, or refused in a sentence."""

import gzip
import re
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from autocap.reports.rendering import present_run
from autocap.runlog import columns, traces
from autocap.runlog.columns import columns_of
from autocap.runlog.event_log import read_events
from tests.runlog.test_runlog import a_run

WANTED = re.compile(r"t_s|power_w")
HEAD = b"t_s,power_w\n"


def rows(count: int, first: int = 0) -> bytes:
    return b"".join(b"%d,%d\n" % (number, 100 + number % 7) for number in range(first, first + count))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test reaches in a moment."""
    monkeypatch.setattr(columns, "_MOST_TEXT", 1 << 16)
    monkeypatch.setattr(columns, "_MOST_ROWS", 1000)
    monkeypatch.setattr(columns, "_MOST_NUMBERS_THINNED", 2000)
    monkeypatch.setattr(columns, "_CHUNK", 64)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "trace.csv"
    path.write_bytes(data)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HEAD + bytes(1 << 25), "a row of it has no end"),
        (HEAD + b'a","b\n' * (1 << 19), "a row of it has no end"),
        (HEAD + b'"' + b"x" * 140_000 + b'"\n', "its cells cannot be told apart"),
        (b"t_s,power_w" + b",x" * 5000 + b"\n1,2\n", "it has more than 4096 columns"),
    ],
    ids=["line", "quotes", "cell", "columns"],
)
@pytest.mark.parametrize("pack", [partial(gzip.compress, compresslevel=1), bytes], ids=["packed", "plain"])
def test_what_has_no_end_is_refused_in_bounded_room(tmp_path, data, why, pack) -> None:
    path = written(tmp_path, pack(data))
    tracemalloc.start()
    try:
        with pytest.raises(traces.TraceError) as caught:
            traces.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value) == f"{path} is not CSV: {why}; pass a CSV file, which may be gzipped"
    assert peak < 200 << 20


@pytest.mark.usefixtures("small")
def test_a_trace_with_more_rows_than_are_read_is_cut_and_that_is_said(tmp_path: Path) -> None:
    trace = traces.read(written(tmp_path, HEAD + rows(5000)))
    assert len(trace.t_s) == 999
    assert trace.notes == ("the file is too large: what comes after its first 1000 lines is left out",)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_file_that_unpacks_to_far_more_than_its_size_is_cut(tmp_path: Path) -> None:
    found = columns_of([gzip.compress(HEAD + rows(500) + b"\n" * (1 << 24))], WANTED)
    assert 400 < found.rows <= 500
    assert not found.cut_short
    assert len(found.notes) == 1


@pytest.mark.usefixtures("small")
def test_of_many_samples_some_are_shown_from_the_first_to_the_last() -> None:
    packed = [rows(100, first) for first in range(0, 20_000, 100)]
    found = columns_of([HEAD, *packed], WANTED, thinned=True)
    assert 500 <= found.rows <= 1000
    assert np.all(np.diff(found.values["t_s"]) > 0)
    assert found.values["t_s"][0] == 0
    assert found.values["t_s"][-1] > 19_000
    assert found.notes == ("the file is large: about one of 32 rows is used",)


@pytest.mark.usefixtures("small")
def test_a_picture_says_that_it_shows_some_of_the_samples(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "samples.csv.gz").write_bytes(gzip.compress(HEAD + rows(4000)))
    page = present_run(run, read_events(run)).page
    assert "Of the samples: the file is large: about one of " in page


@pytest.mark.slow
def test_of_thousands_of_trials_a_report_shows_the_last(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    log = run / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    trial = next(line for line in lines if b'"trial_ended"' in line and b"complete" in line)
    log.write_bytes(b"".join([*lines[:-1], trial * 400, lines[-1]]))
    (table, *_) = present_run(run, read_events(run)).document.tables
    assert len(table.rows) == 304  # with the baselines, the kept cap, and a row for those that are left out
    assert table.rows[1][-1] == "102 earlier trials"
