"""One client's thread: reads lines, writes answers, and sees the client end. Whatever the client does or leaves undone
holds up nobody else."""

import logging
import os
import select
import socket

from autocap.job.processes import has_ended, identify
from autocap.limits.helper.conversation import Conversation
from autocap.limits.helper.house import House
from autocap.limits.helper.protocol import MOST_REQUEST_BYTES
from autocap.limits.vital_signs import Look, VitalSigns
from autocap.wire.guests import Guest
from autocap.wire.json_lines import BadMessage
from autocap.wire.stream import LineStream
from autocap.wire.who import pidfd_of

log = logging.getLogger(__name__)

STOPPED = "the helper ends"
_MOST_THREADS = 256  # of a client that are looked at ten times a second, while it is silent


class PeerProcess:
    """The process that connected: whether it is still there, and what it does. To be closed.

    fd: a descriptor of it, readable once it has ended; `None` where the kernel gives none. It is taken over. Raises
    OSError where no descriptors are left.
    """

    def __init__(self, fd: int | None, pid: int) -> None:
        self.fd = fd
        self._signs: VitalSigns | None = None
        try:
            process = None if self.fd is None else identify(pid)
        except OSError:  # no descriptors are left
            self.close()
            raise
        if process is not None and not self.has_ended():  # so the number was still its own when it was looked at
            self._signs = VitalSigns(process, _MOST_THREADS)

    def has_ended(self) -> bool:
        return self.fd is not None and has_ended(self.fd)

    def look(self, *, threads: bool) -> Look | None:
        """As `VitalSigns.look`."""
        return None if self._signs is None else self._signs.look(threads=threads)

    def is_there(self) -> bool:
        """Whether it can still hear us: it lives, and is not stopped."""
        return not self.has_ended() and (self._signs is None or not self._signs.is_stopped())

    def close(self) -> None:
        if self._signs is not None:
            self._signs.close()
        if self.fd is not None:
            os.close(self.fd)


def attend_peer(house: House, connection: socket.socket, guest: Guest, stop_fd: int) -> None:
    """Serve who has connected, as `attend` does."""
    peer = guest.peer
    try:
        process = PeerProcess(pidfd_of(connection, peer.pid), peer.pid)
    except OSError as error:
        log.debug("%s is not served: %s", peer.who, error)
        connection.close()
        return
    attend(house, connection, guest, stop_fd, process)


def attend(house: House, connection: socket.socket, guest: Guest, stop_fd: int, process: PeerProcess) -> None:
    """Serve one client until it ends, or the helper does. stop_fd: readable when the helper is to end. process: the
    client's. Both are closed at the end."""
    try:
        conversation = Conversation(house, guest, process.look, process.is_there)
        why = "internal fault"
        try:
            why = _Attendant(house, connection, process, stop_fd).serve(conversation)
        finally:
            conversation.end(why)
    finally:
        process.close()
        connection.close()


class _Attendant:
    def __init__(self, house: House, connection: socket.socket, process: PeerProcess, stop_fd: int) -> None:
        self._house, self._connection, self._process = house, connection, process
        self._stop_fd = stop_fd
        self._stream = LineStream(connection, connection, MOST_REQUEST_BYTES)
        self._ends = select.poll()  # what ends all
        self._ends.register(stop_fd, select.POLLIN)
        if process.fd is not None:
            self._ends.register(process.fd, select.POLLIN)
        self._input = select.poll()
        self._input.register(connection, select.POLLIN)
        for fd in filter(None, (stop_fd, process.fd)):
            self._input.register(fd, select.POLLIN)

    def serve(self, conversation: Conversation) -> str:
        """Why it has ended."""
        why = None
        while why is None:
            found = {fd for fd, _ in self._input.poll(1000 * conversation.wait_s())}
            if self._connection.fileno() in found:
                why = self._read(conversation)
            why = why or self._ended(found) or conversation.over
            if why is None:
                conversation.pass_time()
                why = conversation.over
        return why

    def _read(self, conversation: Conversation) -> str | None:
        """Answer what has arrived; why that was the last."""
        self._stream.read(MOST_REQUEST_BYTES)
        while conversation.over is None:
            try:
                line = self._stream.take()
            except BadMessage as error:
                self._send(conversation.complain(error))
                break
            if line is None:
                break
            answer, wait_s = conversation.hear(line)
            why = self._send(answer)
            if why is None and wait_s > 0:  # so that a client in a hurry takes no more than its share
                why = self._ended({fd for fd, _ in self._ends.poll(1000 * wait_s)})
            if why is not None:
                return why
            conversation.pass_time()  # what is due does not wait for all that a client has sent ahead
        return conversation.over or ("the client has closed the connection" if self._stream.ended else None)

    def _ended(self, found: set[int]) -> str | None:
        if self._stop_fd in found:
            return STOPPED
        if self._process.fd is not None and self._process.fd in found:
            return "the client's process has ended"
        return None

    def _send(self, data: bytes) -> str | None:
        """Why the client takes none; it need not be long in doing so, as its answers are few and short."""
        self._stream.say(data)
        if self._stream.deliver(self._house.bounds.send_s):
            return None
        return "the client has closed the connection" if self._stream.broken else "the client does not read its answers"
