"""Whatever a run, a device or a command is called: no view and no report lets a terminal obey it."""

import io
import json
import logging
import re
import sys
import threading
import warnings
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from autocap.cli import main
from autocap.cli.device_report import DeviceReport, Gpu, Setter
from autocap.cli.devices import show
from autocap.cli.logging_setup import logged
from autocap.devices.inventory import SensorSeen
from autocap.events import KINDS, Event, Warned
from autocap.integrations.tuned import Tuned
from autocap.reports import text
from autocap.reports.live.status import Status
from autocap.reports.live.terminal import LiveView, PlainLines
from autocap.reports.live.view import View
from autocap.reports.rendering import present_run
from autocap.reports.wording.events import Wording
from autocap.runlog.directory import RunDirectory
from autocap.sweep.document import present_sweep
from autocap.text import printable
from tests.doubles.arbitrary import of
from tests.doubles.logs import whole_log
from tests.sweep.test_sweep import curve_runs, plan
from tests.sweep.test_sweep import logged as logged_sweep

HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\r\n\u2028[bold]\ud800-\udcff\x7f"
SHOWN = printable(HOSTILE)
KEPT = {"knob", "metric", "mode", "t_s"}  # fields without which there would be no report


def hostile(value: Any) -> Any:
    """A record in which every text ends with what no terminal should obey."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value) if f.name not in KEPT})
    if isinstance(value, tuple):
        return tuple(map(hostile, value))
    return value + HOSTILE if type(value) is str else value


@pytest.fixture(scope="module")
def log() -> list[Event]:
    events = [hostile(event) for event in whole_log()]
    return [*events[:-1], Warned(t_s=events[-1].t_s, text=f"warned{HOSTILE}"), events[-1]]


@pytest.fixture
def run(tmp_path: Path, log: list[Event]) -> Path:
    with RunDirectory.create(tmp_path / "run", False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        for event in log:
            directory.append(event)
    return tmp_path / "run"


def is_safe(line: str) -> bool:
    return printable(line) == line


def test_plain_lines_are_one_an_event_and_safe(log: list[Event]) -> None:
    stream, words = io.StringIO(), Wording()
    reporter = PlainLines(stream)
    for event in log:
        reporter.event(event)
    lines = stream.getvalue().split("\n")[:-1]
    assert len(lines) == sum(words.line(event) is not None for event in log)
    assert all(map(is_safe, lines))
    assert sum(SHOWN in line for line in lines) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=10)
@given(data=st.data())
def test_an_event_of_whatever_kind_and_content_is_at_most_one_safe_line(kind: type, data: st.DataObject) -> None:
    event = hostile(data.draw(of(kind)))
    stream, words = io.StringIO(), Wording()
    try:
        words.line(event)
    except (AssertionError, ArithmeticError, IndexError):  # one that no run announces
        return
    PlainLines(stream).event(event)
    *lines, rest = stream.getvalue().split("\n")
    assert rest == ""
    assert len(lines) <= 1
    assert all(map(is_safe, lines))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_the_live_view_draws_no_escape_sequence_but_its_own(log: list[Event]) -> None:
    stream, status = Terminal(), Status()
    live = LiveView(stream)
    view = View(Console(file=stream, force_terminal=True, highlight=False, emoji=False, markup=False))
    seen = ""
    for number, event in enumerate(log):
        live.event(event)
        status.event(event)
        if number % 7 and number < len(log) - 1:
            continue
        drawn = view.lines(status, event.t_s, 90, 24)
        assert len(drawn) <= 24
        for line in drawn:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
            assert is_safe(plain)
            assert len(plain) <= 90
            seen += plain
    fresh = re.compile(r" +\r")  # how a message of ours begins a line
    assert all(map(is_safe, fresh.sub("", stream.getvalue()).split("\n")))
    assert r"\x1b]52" in seen, "nothing hostile was shown, so nothing was tested"
    assert "\x1b[" in "".join(drawn), "it has lost its colours"


def test_the_text_and_the_page_of_a_run_are_safe(run: Path, log: list[Event]) -> None:
    report = present_run(run, log)
    lines = text.lines(report.document, 2000)
    assert all(map(is_safe, lines))
    assert len(lines) == len(text.lines(present_run(run, list(whole_log())).document, 2000))
    assert any(SHOWN in line for line in lines)
    assert all(map(is_safe, report.page.split("\n")))
    assert report.page.count(r"\x1b]52") > 5
    report.page.encode()


def test_the_text_of_a_sweep_is_safe_as_well() -> None:
    report = present_sweep([hostile(event) for event in logged_sweep(plan(repeats=2), curve_runs(), "done")])
    assert all(map(is_safe, text.lines(report.document, 2000)))
    assert all(map(is_safe, report.page.split("\n")))


@pytest.mark.parametrize("option", [[], ["--json"], ["--html"], ["--follow"]])
def test_the_command_that_reports_is_safe(run: Path, option: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    moved = run.with_name(f"run{HOSTILE.replace('/', '')[:12]}\udcff")
    run.rename(moved)
    assert main(["report", str(moved), *option]) == 0
    out, err = capfd.readouterr()
    assert all(map(is_safe, (out + err).split("\n")))
    if option == ["--json"]:
        assert HOSTILE[:25] in json.loads(out)["device"]["gpus"][0]["name"]


def test_a_report_can_be_printed_where_there_is_only_ascii(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    assert main(["report", str(run)]) == 0
    assert b" +/- " in written.getvalue()
    assert rb"\xb1" not in written.getvalue()
    assert written.getvalue().isascii()


@pytest.mark.parametrize(
    "words",
    [
        [f"nosuch{HOSTILE}"],
        [f"--nosuch{HOSTILE}"],
        ["run", "--k", f"{HOSTILE}", "--", "true"],
        ["run", f"--nosuch{HOSTILE}", "--", "true"],
        ["run", "--strategy", f"{HOSTILE}", "--", "true"],
        ["run", "--strategy", f"os:{HOSTILE}", "--", "true"],
        ["run", "--progress", f"regex:({HOSTILE}", "--", "true"],
        ["run", "--gpus", f"{HOSTILE}", "--", "true"],
        ["run", "--device", f"emulated:{HOSTILE}", "--", "true"],
        ["run", "--device", "emulated", "--", f"nosuch{HOSTILE}"],
        ["run", "--device", "emulated", "--warm-start", f"nosuch{HOSTILE}", "--", "true"],
        ["attach", "--pid", f"1{HOSTILE}"],
        ["sweep", "--device", f"{HOSTILE}", "--", "true"],
        ["report", f"nosuch{HOSTILE}"],
        ["report", f"nosuch{HOSTILE}", "--follow"],
        ["period", f"nosuch{HOSTILE}"],
        ["period", "nosuch", "--window", HOSTILE],
        ["restore", HOSTILE],
        ["devices", HOSTILE],
    ],
)
def test_an_argument_in_an_error_is_one_safe_line(words, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path / "state"))
    assert main(words) != 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("autocap: ")
    assert err.endswith("\n")
    assert is_safe(err[:-1])


@pytest.mark.slow
def test_the_command_of_a_run_is_safe_in_all_that_it_leaves(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path / "state"))
    argument = HOSTILE.replace("\ud800", "")  # no argument of a process can hold that
    assert main(["run", "--device", "emulated", "--out", "run", "--", "true", argument]) == 0
    assert main(["report", "run"]) == 0
    out, err = capfd.readouterr()
    assert all(map(is_safe, (out + err).split("\n")))
    page = (tmp_path / "run" / "report.html").read_text()
    assert r"\x1b]52" in page
    assert all(map(is_safe, page.split("\n")))


def test_devices_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu(
        index=0, uuid=HOSTILE, name=HOSTILE, cap_min_w=100.0, cap_max_w=260.0, cap_default_w=260.0,
        cap_requested_w=260.0, cap_enforced_w=260.0, settable=False, settable_why=HOSTILE, persistence=False, mig=False,
        sensor=SensorSeen(source=HOSTILE, trouble=HOSTILE),
        setters=tuple(Setter(name=HOSTILE, settable=False, why=f"{HOSTILE}{n}") for n in range(2)),
    )  # fmt: skip
    show(
        DeviceReport(
            driver_version=HOSTILE, unavailable=HOSTILE, gpus=(gpu,), packages=(), packages_unavailable=HOSTILE,
            other_kinds={HOSTILE: HOSTILE},
        )
    )  # fmt: skip
    out = capsys.readouterr().out
    assert all(map(is_safe, out.split("\n")))
    assert out.count("\\x1b]52") >= 8


def test_log_records_and_warnings_are_safe_lines(capsys: pytest.CaptureFixture[str]) -> None:
    text = HOSTILE.replace("\ud800", "").replace("\udcff", "")  # pytest passes both on, and cannot those
    with logged():
        logging.getLogger("somebody").warning("%s", text)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(text, stacklevel=1)
        thread = threading.Thread(target=lambda: {}[HOSTILE], name="exporter")
        thread.start()
        thread.join()
    first, second, third, rest = capsys.readouterr().err.split("\n")
    assert first == f"autocap: warning: {printable(text)}"
    assert second.startswith(f"autocap: warning: UserWarning: {printable(text)} (")
    assert third.startswith("autocap: warning: the thread exporter has ended: internal fault: KeyError('\\x1b")
    assert is_safe(third)
    assert rest == ""


def test_an_internal_fault_is_a_safe_line_and_shows_where_when_it_is_asked_to(tmp_path, monkeypatch, capsys) -> None:
    def fail(*_: object) -> None:
        raise KeyError(HOSTILE)

    monkeypatch.setattr("autocap.runlog.event_log.read_events", fail)
    monkeypatch.delenv("AUTOCAP_DEBUG", raising=False)
    assert main(["report", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(
        r"autocap: internal fault: KeyError: '\\x1b\S+.*'; to see where, set AUTOCAP_DEBUG=1 and try again\n", err
    )
    assert is_safe(err[:-1])
    monkeypatch.setenv("AUTOCAP_DEBUG", "1")
    assert main(["report", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last):\n" in err
    assert all(map(is_safe, err.split("\n")))


def test_what_a_tuned_block_warns_of_is_one_safe_line(tmp_path, monkeypatch, caplog) -> None:
    def fail(*_: object) -> int:
        raise OSError(HOSTILE)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("autocap.integrations.tuned._start", fail)
    with Tuned({"device": "emulated"}):
        pass
    assert caplog.messages == [f"autocap: the job runs untuned: {SHOWN}"]
