"""What an agent reads and writes: nothing that comes ends it, and nobody who does not read keeps it."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from autocap.plugins.fleet.nodes.agent.standard_streams import Inbox, Outbox
from autocap.plugins.fleet.nodes.protocol import (
    Command,
    CommandKind,
    Done,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Message,
    Note,
    Row,
    Rows,
    SetAllocation,
    line_of,
    said,
)
from autocap.records import Reading

WORD = Heartbeat(number=1, interval_s=0.1, counted=True)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = os.pipe()
    yield ours, theirs
    for fd in (ours, theirs):
        with suppress(OSError):  # a test has closed it
            os.close(fd)


def rows(first: int, readings: int = 1) -> Rows:
    reading = Reading(t_s=1.5, power_w=100.0)
    return Rows(first=first, rows=tuple(Row(t_s=2.0, readings=(reading,)) for _ in range(readings)))


def all_said(outbox: Outbox, pipe: tuple[int, int]) -> bytes:
    """What arrives at a reader who reads all of it."""
    heard = b""
    while outbox.waiting:
        heard += os.read(pipe[0], 1 << 16)
        outbox.flush()
    os.close(pipe[1])
    while part := os.read(pipe[0], 1 << 16):
        heard += part
    return heard


class TestInbox:
    def test_lines_for_others_are_left_out_but_show_that_the_controller_lives(self, pipe: tuple[int, int]) -> None:
        inbox = Inbox(pipe[0], 2)
        os.write(pipe[1], line_of(WORD, to=(0, 1)))
        assert list(inbox.messages()) == []
        assert inbox.speaks
        os.write(pipe[1], line_of(WORD, to=(1, 2)) + line_of(WORD))
        assert list(inbox.messages()) == [WORD, WORD]

    def test_what_is_no_message_is_left_out_and_shows_nothing(self, pipe: tuple[int, int]) -> None:
        inbox = Inbox(pipe[0], 0)
        os.write(pipe[1], b'srun: warning\n\xff\xfe\n{"says": "word"}\n[]\n{"says":"word","with":{"number":"x"}}\n\n')
        assert list(inbox.messages()) == []
        assert not inbox.speaks
        assert not inbox.ended
        do = Command(number=3, what=CommandKind.SET, caps_w=(200.0,))
        os.write(pipe[1], b"garbage\n" + line_of(do))
        assert list(inbox.messages()) == [do]

    def test_the_end_is_seen(self, pipe: tuple[int, int]) -> None:
        inbox = Inbox(pipe[0], 0)
        assert list(inbox.messages()) == []
        assert not inbox.ended
        os.close(pipe[1])
        assert list(inbox.messages()) == []
        assert inbox.ended


class TestOutbox:
    @pytest.mark.slow
    def test_what_nobody_reads_is_kept_but_for_old_rows(self, pipe: tuple[int, int]) -> None:
        outbox = Outbox(pipe[1])
        outbox.put(Note(text="first"))
        for number in range(5000):
            outbox.put(rows(number, readings=20))
            if number % 100 == 0:
                outbox.put(Done(number=number))
        assert outbox.waiting
        heard_bytes = all_said(outbox, pipe)
        messages = [said(line) for line in heard_bytes.splitlines()]
        assert messages[0] == Note(text="first")
        assert [each.number for each in messages if isinstance(each, Done)] == list(range(0, 5000, 100))
        firsts = [each.first for each in messages if isinstance(each, Rows)]
        assert firsts == sorted(firsts)
        assert firsts[-1] == 4999
        assert len(firsts) < 4000
        assert len(heard_bytes) < 2 << 20

    def test_the_same_answer_waits_once(self, pipe: tuple[int, int]) -> None:
        outbox = Outbox(pipe[1])
        while not outbox.waiting:
            outbox.put(rows(0, readings=50))
        for _ in range(1000):
            outbox.put(Done(number=7))
        assert all_said(outbox, pipe).count(b'"number":7') == 1

    def test_a_reader_that_is_gone_is_seen(self, pipe: tuple[int, int]) -> None:
        outbox = Outbox(pipe[1])
        os.close(pipe[0])
        outbox.put(HeartbeatReply(number=1, heard_s=1.0, said_s=1.0))
        assert outbox.broken
        outbox.deliver(5.0)  # and is not waited for

    def test_all_arrives_where_it_is_read(self, pipe: tuple[int, int]) -> None:
        outbox = Outbox(pipe[1])
        messages: list[FromAgent] = [Note(text="a"), rows(0), Done(number=1)]
        for each in messages:
            outbox.put(each)
        assert not outbox.waiting
        assert [said(line) for line in all_said(outbox, pipe).splitlines()] == messages


def test_messages_are_called_on_the_wire_as_earlier_versions_call_them() -> None:
    reply = HeartbeatReply(number=1, heard_s=1.0, said_s=2.0)
    sent: list[Message] = [WORD, Command(number=1, what=CommandKind.END), reply, allocation()]
    assert [json.loads(line_of(message))["says"] for message in sent] == ["word", "do", "heard", "share"]


def allocation() -> SetAllocation:
    return SetAllocation(number=1, policy="fair", since=(0,), serials=(0,), parts_w=(0.0,))
