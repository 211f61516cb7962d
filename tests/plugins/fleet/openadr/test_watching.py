"""When a VTN is asked, what is said of it, and the process that does so."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autocap.plugins.fleet.openadr.feed import SILENT_S, Feed
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.vtn import Answer
from autocap.plugins.fleet.openadr.watching import Said, Watched
from autocap.session.prices.series import SourceRefused
from bench.budget_faults.vtn import CLIENT_ID, CLIENT_SECRET, StandInVtn, event
from tests.doubles.jobs import children

T0 = 1_769_875_200.0
AT = "2026-01-31T16:00:00Z"
SOURCE = VtnSource(url="https://vtn.example.com/3")


def test_what_was_known_counts_while_a_vtn_cannot_be_asked() -> None:
    answers: list[Answer | Exception] = [
        SourceRefused("not yet"),
        Answer(events=[event("a", 1, start=AT)], programs={}),
        ZeroDivisionError("swordfish"),
        Answer(events=[], programs={}),
    ]

    def ask() -> Answer:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    watched = Watched(SOURCE, ask, "here")
    assert watched.look(T0, 0.0) == Said(trouble="not yet")
    assert watched.look(T0 + 1, 1.0) is None  # too early
    known = watched.look(T0 + 10, 10.0)
    assert [span.watts for span in known.spans] == [1000]
    assert watched.look(T0 + 20, 20.0) == Said(
        spans=known.spans, trouble="vtn.example.com cannot be asked (ZeroDivisionError)"
    )
    assert watched.look(T0 + 30, 30.0) == Said(spans=())


def test_each_bad_event_is_told_once_and_not_too_many_of_them() -> None:
    bad = [event(str(n), 1, start="soon") for n in range(60)]
    watched = Watched(SOURCE, lambda: Answer(events=list(bad), programs={}, more=True), "here")
    told = watched.look(T0, 0.0)
    assert len(told.notes) == 50
    assert "event 'peak 0' (0) is not followed: its start is 'soon'" in told.notes[0]
    assert told.notes[-1] == "other events cannot be followed either, and are not named any more"
    again = watched.look(T0, 100.0)
    assert again.notes == ()
    few = Watched(SOURCE, lambda: Answer(events=[], programs={}, more=True), "here").look(T0, 0.0)
    assert few.notes == ("vtn.example.com has more events than are read; name a program with --openadr-program",)


class Hearing:
    """A feed whose clock can be set forward."""

    def __init__(self, source: VtnSource) -> None:
        self.ahead_s = 0.0
        self.feed = Feed(source, lambda: time.monotonic() + self.ahead_s)

    def until(self, enough: Callable[[list[Said]], bool]) -> list[Said]:
        found, deadline_s = list[Said](), time.monotonic() + 60
        while not enough(found):
            assert time.monotonic() < deadline_s, f"waited in vain, heard {found}"
            found += self.feed.news()
            time.sleep(0.02)
        return found


def test_a_process_that_asks_is_followed_by_another_where_it_hangs_or_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENADR_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("OPENADR_CLIENT_SECRET", CLIENT_SECRET)
    before = children()
    with StandInVtn() as there:
        there.events.append(event("a", 1.5, start="0001-01-01", duration="P9999Y"))
        hearing = Hearing(VtnSource(url=there.url, every_s=1))
        try:
            (first,) = hearing.until(bool)
            assert [span.watts for span in first.spans] == [1500]
            words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children() - before}
            assert all(there.url.encode() in line for line in words.values())
            assert not any(CLIENT_SECRET.encode() in line for line in words.values())
            (reader,) = (pid for pid, line in words.items() if b"autocap.job.supervisor" not in line)
            os.kill(reader, signal.SIGSTOP)
            hearing.ahead_s += SILENT_S
            told, again = hearing.until(lambda found: len(found) >= 2)
            assert f"was silent for {SILENT_S:g} s, and is started again" in told.trouble
            assert again.spans == first.spans
        finally:
            hearing.feed.close()
    deadline_s = time.monotonic() + 60
    while children() - before:  # the stopped one among them
        assert time.monotonic() < deadline_s, "a process is left"
        time.sleep(0.02)
