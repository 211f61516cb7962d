"""Who comes is let in, or told why not; and where nobody can be taken, nobody spins."""

import errno
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.wire import listening
from autocap.wire.guests import Bounds
from autocap.wire.server import Door
from autocap.wire.stream import dialled


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


def door(listener: socket.socket, clock: VirtualClock, bounds: Bounds) -> Door:
    return Door(listener, bounds, clock.now, lambda why: f"{why.code}: {why.text}\n".encode())


def wakes(one: Door) -> bool:
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
        ((connection, guest),) = one.enter(9, socket.socket.close)
        assert guest.peer.pid > 0
        connection.close()


def test_who_is_turned_away_is_told_why(listener: Scarce, tmp_path: Path) -> None:
    listener.left = 1
    one = door(listener, VirtualClock(), Bounds(clients_of_uid=0))
    with dialled(tmp_path / "socket", 5.0) as client:
        assert list(one.enter(9, socket.socket.close)) == []
        assert client.recv(100).startswith(b"too_many: 0 connections of ")
        assert client.recv(100) == b""
