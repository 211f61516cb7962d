"""Whatever is in the files of a run directory, reading them gives what was written, or says why not."""

import gzip
import json
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autocap.events import KINDS, Event, Tally
from autocap.runlog import columns, traces
from autocap.runlog.columns import Unzipped
from autocap.runlog.directory import header, row
from autocap.runlog.event_log import EVENTS, EventLines, line_of, load_plugin_events, read_events
from autocap.wire.codec import decode, encode
from tests.doubles import arbitrary

load_plugin_events()
events = st.one_of(*map(arbitrary.of, KINDS.values()))
# A tally that the next one supersedes is not read.
logs = st.lists(events, max_size=5).filter(
    lambda some: not any(isinstance(one, Tally) and isinstance(other, Tally) for one, other in pairwise(some))
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def events_of(lines: list[bytes]) -> list[Event]:
    return EventLines(Path("log"), str).take(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=5)
@given(data=st.data())
def test_every_event_reads_back_as_it_was_written(kind: type, data: st.DataObject) -> None:
    event = data.draw(arbitrary.of(kind))
    line = line_of(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert events_of([line]) == [event]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_record_of_whatever_json_is_refused_as_documented_or_is_a_record(kind: type, data: st.DataObject) -> None:
    fields = encode(data.draw(arbitrary.of(kind)))
    assert isinstance(fields, dict)
    if fields:
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(json_values)
    try:
        read = decode(kind, fields)
    except ValueError:
        return
    assert isinstance(read, kind)


@pytest.mark.slow
@given(logs.filter(len), st.data())
def test_a_damaged_line_costs_that_line_only(written: list[Event], data: st.DataObject) -> None:
    lines = [line_of(event) for event in written]
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = data.draw(st.binary().filter(lambda damage: b"\n" not in damage and b"event" not in damage))
    assert events_of(lines) == written[:place] + written[place + 1 :]


@pytest.mark.slow
@given(logs, st.integers(min_value=0), st.data())
def test_a_log_that_breaks_off_anywhere_gives_all_whole_events(tmp_path_factory, written, cut, data) -> None:
    folder = tmp_path_factory.mktemp("run", numbered=True)
    lines = [line_of(event) for event in written]
    whole = b"".join(lines)
    cut %= len(whole) + 1
    (folder / EVENTS).write_bytes(whole[:cut])
    complete = sum(len(b"".join(lines[: number + 1])) <= cut for number in range(len(lines)))
    found = read_events(folder)
    assert found == written[: len(found)]
    assert complete <= len(found) <= complete + 1  # a line that lacks nothing but its end is whole


@pytest.mark.slow
@example(b"\x1c")
@example(b"\xef\xbb\xbf")
@example(b"\xe2\x80\xa8")
@example(b"t_s,power_w\n")
@example(gzip.compress(b"t_s,power_w\n1,2\n")[:-12])
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode) | st.binary(max_size=200).map(gzip.compress))
def test_whatever_a_trace_holds_it_is_read_or_refused_in_words(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("trace", numbered=True) / "trace.csv"
    path.write_bytes(data)
    with pytest.raises(traces.TraceError, match=r"trace\.csv"):
        traces.read(path)


numbers = st.floats(min_value=-1e6, max_value=1e6, width=32).map(repr)
cells = st.one_of(numbers, st.sampled_from(["", "x", "nan", "inf", '"', "1,2"]))


@pytest.mark.slow
@given(st.lists(st.tuples(cells, cells, cells), max_size=30), st.integers(0, 400))
def test_of_a_trace_with_any_cells_what_is_kept_ascends_and_is_above_0(tmp_path_factory, rows, cut) -> None:
    text = "t_s,power_w,energy_j\n" + "".join(",".join(row) + "\n" for row in rows)
    path = tmp_path_factory.mktemp("trace", numbered=True) / "trace.csv.gz"
    whole = gzip.compress(text.encode())
    path.write_bytes(whole[: max(3, len(whole) - cut)])
    try:
        trace = traces.read(path)
    except traces.TraceError:
        return
    assert np.all(np.diff(trace.t_s) > 0)
    assert np.all(trace.power_w > 0)
    assert trace.update_s > 0
    assert sum(len(part.t_s) for part in trace.split(10 * trace.update_s)) == len(trace.t_s)


@pytest.mark.slow
@given(arbitrary.samples(), st.integers(min_value=0))
def test_samples_come_back_to_a_millionth_as_far_as_they_were_written(written: list, cut: int) -> None:
    lines = [header(written[0]), *map(row, written)]
    whole = zlib.compress("".join(lines).encode(), wbits=31)
    found = columns.parse([whole])
    np.testing.assert_allclose(found.t_s, [sample.t_s for sample in written], atol=1e-6)
    powers = [[reading.power_w for reading in sample.readings] for sample in written]
    expected = [np.nan if None in some else sum(some) for some in powers]
    np.testing.assert_allclose(found.power_w, expected, atol=1e-5)
    part = columns.parse([whole[: cut % len(whole)]])
    np.testing.assert_array_equal(part.power_w, found.power_w[: len(part.power_w)])


@example(zlib.compress(b"power_w_\n\n", wbits=31))
@given(st.binary() | st.binary().map(gzip.compress) | st.text().map(lambda text: gzip.compress(text.encode())))
def test_whatever_a_samples_file_holds_it_is_read(data: bytes) -> None:
    found = columns.parse([data])
    assert np.all(np.diff(found.t_s) >= 0)


@pytest.mark.slow
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=3), st.integers(min_value=0))
def test_of_gzip_members_cut_anywhere_the_beginning_comes_back(parts: list[bytes], cut: int) -> None:
    whole = b"".join(map(gzip.compress, parts))
    unzipped = Unzipped([whole])
    assert b"".join(unzipped) == b"".join(parts)
    assert not unzipped.cut_short
    padded = Unzipped([whole + bytes(7)])
    assert b"".join(padded) == b"".join(parts)
    assert not padded.cut_short  # what a file is filled up with is no damage
    assert b"".join(parts).startswith(b"".join(Unzipped([whole[: cut % (len(whole) + 1)]])))


@pytest.mark.slow
@given(json_values)
def test_a_log_line_of_any_json_is_passed_over_or_is_an_event(value: object) -> None:
    line = json.dumps(value, default=str).encode() if value == value else b""
    assert isinstance(events_of([line]), list)
