"""The process that reads sources for a session."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.events.quote import CARBON, PRICE
from autocap.session.prices.reading import Feed, Said
from tests.doubles.children import children


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
