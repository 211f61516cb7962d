"""What is opened to be read: files and streams that were passed, nothing that waits, answers or never ends."""

import os
import re
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from autocap.errors import AutocapError
from autocap.reports.rendering import present_run
from autocap.runlog import input_file, traces
from autocap.runlog.columns import read_samples
from autocap.runlog.event_log import EventTail, read_events
from autocap.runlog.input_file import InputRefused, open_input, read_input
from autocap.session.warm_start import warm_start
from tests.runlog.test_runlog import EVENTS, a_run


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(AutocapError) as caught:
        read()
    return str(caught.value)


def with_a_socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as ours:
        ours.bind(str(path))


@pytest.mark.parametrize(
    ("put", "kind"),
    [(os.mkfifo, "a named pipe"), (with_a_socket, "a socket"), (lambda path: path.symlink_to("/dev/zero"), "a device")],
    ids=["pipe", "socket", "device"],
)
def test_what_is_no_file_is_not_opened_wherever_it_stands(tmp_path, put, kind, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # as the path of a socket is short
    put(Path("trace.csv"))
    assert refused(lambda: traces.read(Path("trace.csv"))) == f"trace.csv is {kind}; pass a file"
    put(Path("events.jsonl"))
    with EventTail(Path()) as tail:
        for read in (lambda: read_events(Path()), lambda: warm_start(Path()), tail.read):
            assert refused(read) == f"events.jsonl is {kind}; pass a file"
    Path("events.jsonl").unlink()
    run = a_run(Path("run"))
    (run / "samples.csv.gz").unlink()
    put(run / "samples.csv.gz")
    report = present_run(run, read_events(run))
    assert refused(lambda: report.page) == f"run/samples.csv.gz is {kind}; pass a file"


def test_a_directory_that_is_no_log_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    assert refused(lambda: read_events(tmp_path)).startswith(f"{tmp_path / 'events.jsonl'} cannot be read: Is a dir")


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_input(tmp_path / "link", 4) == b"text"


@pytest.mark.parametrize("way", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_a_stream_that_was_passed_is_read_to_its_end(way: str) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "wb") as end:
        end.write(b"t_s,power_w\n")
    os.set_blocking(ours, False)
    assert read_input(Path(way.format(ours)), 100) == b"t_s,power_w\n"
    os.close(ours)


def test_a_stream_that_is_no_pipe_but_a_device_is_refused() -> None:
    zero = os.open("/dev/zero", os.O_RDONLY)
    assert refused(lambda: open_input(Path(f"/dev/fd/{zero}"))) == f"/dev/fd/{zero} is a device; pass a file"
    os.close(zero)


def test_no_more_is_read_than_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "_CHUNK", 1 << 10)
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 1 << 40)  # a hole, which takes no room
    with pytest.raises(InputRefused, match=re.escape("large holds more than 2 MiB, the most that is read of a file")):
        read_input(path, 2 << 20)


def test_what_is_held_open_is_let_go(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    for name in ("pipe", "absent", "."):
        with pytest.raises((AutocapError, OSError)):
            read_input(tmp_path / name, 1)
    assert os.listdir("/proc/self/fd") == before


def test_an_error_shows_nothing_of_what_was_found(tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("root:$6$secret:19000:0:99999:7:::\n" * 3)
    assert "secret" not in refused(lambda: traces.read(secret))
    (tmp_path / "events.jsonl").write_bytes(secret.read_bytes())
    said: list[str] = []
    assert read_events(tmp_path, said.append) == []
    assert said == [f"{tmp_path / 'events.jsonl'}: 3 lines are damaged and left out, the first is line 1"]


@pytest.mark.slow
def test_a_log_of_more_events_than_any_run_has_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"{}\n" * 100_001)
    said = f"{log} holds more than 100000 events, the most that is read of a run"
    assert refused(lambda: read_events(tmp_path, str)) == said


def test_of_tallies_in_a_row_the_last_is_read(tmp_path: Path) -> None:
    tally = next(event for event in EVENTS if type(event).__name__ == "Tally")
    run = a_run(tmp_path, [EVENTS[0], tally, tally, tally, EVENTS[-1]])
    assert read_events(run) == [EVENTS[0], tally, EVENTS[-1]]


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "warned", "t_s": NaN, "text": ""}',
        '{"event": "warned", "t_s": -Infinity, "text": ""}',
        '{"event": "warned", "t_s": 1e11, "text": ""}',
        '{"event": "warned", "t_s": 1e400, "text": ""}',
        '{"event": "cap_set", "t_s": 1.0, "cap_w": []}',
        '{"event": "cap_set", "t_s": 1.0, "cap_w": [1e10]}',
        '{"event": "run_ended", "t_s": 1.0, "ended_because": "", "exit_status": ' + "9" * 30 + "}",
        '{"event": "warned", "t_s": 1.0, "text": "' + "x" * (4 << 20) + '"}',
        '{"event": ' * 100_000,
        "[" * 100_000,
        "[]",
        '{"event": "warned", "t_s": 1' + "0" * 400 + ', "text": ""}',
        '{"event": "warned", "t_s": 1.0, "te',
    ],
    ids=lambda line: line[-40:],
)
def test_a_line_that_no_run_can_have_written_is_damaged(tmp_path: Path, line: str) -> None:
    good = '{"event": "warned", "t_s": 1.0, "text": "good"}'
    (tmp_path / "events.jsonl").write_text("\n".join([good, line, good, ""]))
    said: list[str] = []
    assert len(read_events(tmp_path, said.append)) == 2
    assert said == [f"{tmp_path / 'events.jsonl'}: line 2 is damaged and left out"]


def test_half_a_surrogate_pair_is_shown_as_an_escape(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "warned", "t_s": 1.0, "text": "a\\ud800b\\udcffc"}\n')
    (event,) = read_events(tmp_path)
    assert event.text == "a\\ud800b\udcffc"  # type: ignore[union-attr]  # that of a warning


def test_samples_that_no_device_gives_are_missing(tmp_path: Path) -> None:
    a_run(tmp_path)
    rows = ["t_s,power_w,steps", "1,100,1", "2,inf,2", "3,1e308,3", "4,-5,-1", "5,5e-324,5", "1e300,100,6", "6,102,7"]
    (tmp_path / "samples.csv.gz").write_text("\n".join(rows))
    found = read_samples(tmp_path)
    assert found.t_s.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.power_w.tolist()[0::5] == [100, 102]
    assert [str(watts) for watts in found.power_w.tolist()[1:5]] == ["nan", "nan", "nan", "0.0"]
