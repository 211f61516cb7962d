"""A service's log, line by line."""

import logging
import os
import sys

from autocap.cli.logging_setup import ServiceLines, goes_to_journal


def record(level: int, text: str, *, fault: BaseException | None = None) -> logging.LogRecord:
    info = None if fault is None else (type(fault), fault, None)
    return logging.LogRecord("autocap", level, "here", 1, text, None, info)


def test_the_journal_is_told_how_grave_a_line_is():
    lines = ServiceLines(to_journal=True)
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    assert [lines.format(record(level, "x")) for level in levels] == ["<7>x", "<6>x", "<4>x", "<3>x", "<3>x"]
    assert lines.format(record(logging.ERROR, "x", fault=ValueError("y"))) == "<3>x\n<3>ValueError: y"


def test_whatever_a_line_holds_it_is_one_line():
    assert ServiceLines(to_journal=True).format(record(logging.INFO, "a\n<0>b\x1b[2J")) == "<6>a\\n<0>b\\x1b[2J"
    assert ServiceLines(to_journal=False).format(record(logging.INFO, "a\nb")) == "autocap: a\\nb"
    faulty = record(logging.ERROR, "x", fault=ValueError("y\x1b[2J"))
    assert ServiceLines(to_journal=False).format(faulty) == "autocap: x\nValueError: y\\x1b[2J"


def test_the_journal_is_known_by_its_very_stream():
    status = os.fstat(sys.__stderr__.fileno()) if sys.__stderr__ else os.stat("/dev/null")
    fd = sys.__stderr__.fileno() if sys.__stderr__ else os.open("/dev/null", os.O_WRONLY)
    assert goes_to_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}, fd)
    assert not goes_to_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, fd)
    assert not goes_to_journal({}, fd)
    assert not goes_to_journal({"JOURNAL_STREAM": "8:1"}, 999_999)
