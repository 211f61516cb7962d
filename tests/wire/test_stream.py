"""Who does not read, or says too much, keeps nobody waiting and takes no memory.

Lines are the same however they arrive, and one without an end takes no memory.

Who comes is let in, or told why not; and where nobody can be taken, nobody spins.
"""

import errno
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.clock import VirtualClock
from autocap.wire import listening
from autocap.wire.admission import Bounds
from autocap.wire.json_lines import NotALine
from autocap.wire.lines import Lines
from autocap.wire.server import ClientAdmission
from autocap.wire.stream import LineStream, dialled


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


@pytest.mark.slow
@pytest.mark.parametrize("returns", [False, True])
@given(st.lists(st.sampled_from([b"x", b"yy" * 9, b"\r", b"\n", b"\r\n", b"\x0c", b"\xff"])).map(b"".join), st.data())
def test_lines_are_the_same_however_they_arrive(returns: bool, stream: bytes, data: st.DataObject) -> None:
    lines, found, rest = Lines(16, returns=returns), list[bytes](), stream
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        found += lines.feed(rest[:count])
        rest = rest[count:]
        assert lines.held <= 17
        assert lines.is_too_long == (lines.held > 16)
    found.append(lines.end())
    assert lines.held == 0
    if returns:  # \r\n may arrive in two pieces
        found = [line for line in found if line]
        expected = [line for line in stream.replace(b"\r", b"\n").split(b"\n") if line]
    else:
        expected = stream.split(b"\n")
    assert found == [line[:17] for line in expected]


class Scarce(socket.socket):
    """A listening socket of a process that has no descriptor left."""

    left = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.left:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Scarce]:
    with listening.own(tmp_path / "socket", None) as made, Scarce(fileno=made.detach()) as scarce:
        yield scarce


def door(listener: socket.socket, clock: VirtualClock, bounds: Bounds) -> ClientAdmission:
    return ClientAdmission(listener, bounds, clock.now, lambda why: f"{why.code}: {why.text}\n".encode())


def wakes(one: ClientAdmission) -> bool:
    poll = select.poll()
    one.watch(poll)
    return bool(poll.poll(0))


def test_without_a_descriptor_left_a_server_does_not_wake_up_again_and_again(listener: Scarce, tmp_path: Path) -> None:
    clock = VirtualClock()
    one = door(listener, clock, Bounds())
    with dialled(tmp_path / "socket", 5.0):
        assert wakes(one)
        assert list(one.enter(9, socket.socket.close)) == []
        assert not wakes(one)
        clock.wait_until(clock.now() + 0.1)
        listener.left = 1
        assert wakes(one)
        ((connection, admitted),) = one.enter(9, socket.socket.close)
        assert admitted.peer.pid > 0
        connection.close()


def test_who_is_turned_away_is_told_why(listener: Scarce, tmp_path: Path) -> None:
    listener.left = 1
    one = door(listener, VirtualClock(), Bounds(clients_of_uid=0))
    with dialled(tmp_path / "socket", 5.0) as client:
        assert list(one.enter(9, socket.socket.close)) == []
        assert client.recv(100).startswith(b"too_many: 0 connections of ")
        assert client.recv(100) == b""
