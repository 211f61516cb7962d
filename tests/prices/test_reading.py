"""When a source is read again, in a process beside the session, and what is said of it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.events.quote import CARBON, PRICE
from autocap.job.supervised import CommandFailed, output_of
from autocap.session.prices.reading import Feed, Said, Stamp, Watched
from autocap.session.prices.series import Series, SourceRefused
from tests.doubles.jobs import children

START_S = 1_700_000_000.0
FLAT = Series(kind=PRICE, currency="EUR", steps=((START_S, 0.1),), until_s=START_S + 1e6)


class Source:
    """Says what it is told to, and when it was asked."""

    def __init__(self, *answers: Series | Exception) -> None:
        self.answers, self.asked_s, self.stamp = list(answers), list[float](), (1, 1, 1)

    def read(self, source: str, kind: str, wall_s: float) -> Series:
        self.asked_s.append(wall_s - START_S)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stamped(self, path: str) -> Stamp | None:
        return self.stamp

    def watched(self, source: str) -> Watched:
        return Watched(PRICE, source, self.read, self.stamped)


def look(watched: Watched, seconds: int, at: Callable[[int], None] = lambda second: None) -> list[tuple[int, Said]]:
    found = []
    for second in range(seconds):
        at(second)
        said = watched.look(START_S + second)
        if said is not None:
            found.append((second, said))
    return found


def test_a_program_is_asked_every_five_minutes_and_sooner_after_it_has_failed() -> None:
    source = Source(SourceRefused("not now"), FLAT)
    found = look(source.watched("command:rows"), 500)
    assert source.asked_s == [0.0, 60.0, 360.0]
    assert [(second, said.trouble) for second, said in found] == [(0, "not now"), (60, "")]
    assert found[-1][1].series == FLAT


def test_a_file_is_read_again_once_it_has_changed_and_stays_so_for_a_look() -> None:
    source = Source(FLAT)
    watched = source.watched("file:rows.csv")

    def write(second: int) -> None:
        if 10 <= second < 14:  # bit by bit
            source.stamp = (second, second, 1)

    look(watched, 30, write)
    assert source.asked_s == [0.0, 1.0, 14.0]


def test_the_same_is_said_once() -> None:
    source = Source(SourceRefused("gone"), SourceRefused("gone"), FLAT, FLAT, SourceRefused("gone"))
    said = [said.trouble for _, said in look(source.watched("gb"), 1500)]
    assert said == ["gone", "", "gone"]


def test_a_fault_of_a_library_is_said_as_well() -> None:
    found = look(Source(ZeroDivisionError("by 0")).watched("entsoe:FR"), 1)
    assert found[0][1].trouble == "entsoe:FR: ZeroDivisionError: by 0"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("sleep 100 & sleep 100", "has not ended within 0.2 s"),
        ("yes", "prints more than 1 MiB"),
        ("echo no such zone >&2; exit 4", "ended with status 4: 'no such zone'"),
        ("kill -9 $$", "ended with status 137"),
    ],
)
def test_a_command_that_hangs_or_fails_is_told_in_a_sentence_and_ended(command: str, complaint: str) -> None:
    with pytest.raises(CommandFailed) as told:
        output_of(command, within_s=0.2 if "sleep" in command else 20.0, most_bytes=1 << 20)
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_what_a_command_has_left_running_is_not_waited_for(tmp_path: Path) -> None:
    assert output_of("echo rows; sleep 100 &", within_s=20.0, most_bytes=1 << 20) == b"rows\n"


def heard(feed: Feed, enough: Callable[[list[Said]], bool]) -> list[Said]:
    """What it says until that is enough, within a minute."""
    found, deadline_s = list[Said](), time.monotonic() + 60
    while not enough(found):
        assert time.monotonic() < deadline_s, f"waited in vain, heard {found}"
        found += feed.news()
        time.sleep(0.02)
    return found


@pytest.fixture
def feed(others: set[int], tmp_path: Path) -> Iterator[Feed]:
    rows = tmp_path / "rows.csv"
    rows.write_text("time,EUR/MWh\n2020-01-01T00:00Z,120\n2120-01-01T00:00Z,80\n")
    made = Feed({PRICE: f"file:{rows}", CARBON: "command:sleep 1000"})
    yield made
    made.close()


@pytest.fixture
def others() -> set[int]:
    """What earlier tests have left."""
    return children()


@pytest.mark.slow
def test_one_source_is_heard_while_another_hangs_and_all_ends_with_the_session(feed: Feed, others: set[int]) -> None:
    before = children() - others
    (said,) = heard(feed, bool)
    assert said.series is not None
    assert (said.kind, said.series.currency) == (PRICE, "EUR")
    assert [value for _, value in said.series.steps] == [0.12, 0.08]
    assert children() >= before  # the hanging command's among them
    feed.close()
    assert before
    assert children().isdisjoint(before)


def test_a_reader_that_is_killed_is_missed_once(feed: Feed, others: set[int]) -> None:
    heard(feed, bool)
    for pid in sorted(children() - others):  # the reader before what it has started
        os.kill(pid, signal.SIGKILL)
    lost = heard(feed, lambda found: len(found) >= 2)
    assert {said.kind for said in lost} == {PRICE, CARBON}
    assert {said.trouble for said in lost} == {"the process that reads prices has ended"}
    assert feed.news() == []
