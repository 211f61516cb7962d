"""Who does not read, or says too much, keeps nobody waiting and takes no memory."""

import socket
from collections.abc import Iterator

import pytest

from autocap.wire.json_lines import NotALine
from autocap.wire.stream import LineStream


@pytest.fixture
def ends() -> Iterator[tuple[LineStream, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield LineStream(ours, ours, 16, 1000), theirs


def test_lines_are_taken_one_by_one_up_to_the_end(ends: tuple[LineStream, socket.socket]) -> None:
    stream, theirs = ends
    assert not stream.read()
    theirs.sendall(b"one\ntwo\n\nhalf")
    assert stream.is_readable(0.0)
    assert stream.read()
    assert [stream.take() for _ in range(4)] == [b"one", b"two", b"", None]
    theirs.close()
    assert stream.read()
    assert stream.ended
    assert stream.take() is None


def test_a_line_that_is_too_long_is_refused_before_its_end_has_come(ends: tuple[LineStream, socket.socket]) -> None:
    stream, theirs = ends
    theirs.sendall(b"x" * 15 + b"\n" + b"x" * 15)
    stream.read()
    assert stream.take() == b"x" * 15
    assert stream.take() is None
    theirs.sendall(b"x")
    stream.read()
    with pytest.raises(NotALine, match="longer than 16 bytes"):
        stream.take()
