"""A process that has all that a watchdog imports, and forks one for each duty: a start costs it milliseconds of a CPU
instead of the fifth of a second that an interpreter takes, from which the clients of a helper would have to wait.

It shares nothing with the watchdogs that it has forked: each has its own session and its own ends of its channels, and
goes on when this process is killed. It ends with whoever started it, and knows no device, lock, journal or thread.

Its standard input is a socket of packets. A request is a duty's words, with the watchdog's ends of the heartbeat and of
the answers; the answer is the PID with a descriptor of that very process, or without one why there is none.
"""

import gc
import os
import select
import signal
import socket
from contextlib import suppress

from autocap.devices import prepare
from autocap.errors import DeviceError
from autocap.job.signals import ignore_signals
from autocap.limits import watchdog

MOST_BYTES = 1 << 16  # of a packet
_CONTROL = 0
_BETWEEN = b"\0"  # words


def main(kinds: list[str]) -> None:
    """Until whoever started it has gone. kinds: of the devices that will be watched; they are not touched here."""
    ignore_signals()
    for kind in kinds:
        with suppress(DeviceError):  # the watchdog says it
            prepare(kind)
    gc.freeze()  # a collection would write to pages that the forked share
    ForkServer(socket.socket(fileno=_CONTROL)).run()


def request(words: list[str]) -> bytes:
    """A duty's words, as a packet has them."""
    return _BETWEEN.join(map(os.fsencode, words))


def duty_of(packet: bytes) -> list[str]:
    """The words in a packet."""
    return list(map(os.fsdecode, packet.split(_BETWEEN)))


class ForkServer:
    """control: where requests come from."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # PIDs, by their descriptors

    def run(self) -> None:
        """Until the other end of `control` is closed."""
        events = select.poll()
        events.register(self._control, select.POLLIN)
        while True:
            for fd, _ in events.poll():
                if fd in self._children:
                    events.unregister(fd)
                    os.waitpid(self._children.pop(fd), 0)
                    os.close(fd)
                    continue
                packet, ends, _, _ = socket.recv_fds(self._control, MOST_BYTES, 2)
                if not packet:
                    return
                child = self._fork(packet, ends)
                if child is not None:
                    events.register(child, select.POLLIN)

    def _fork(self, packet: bytes, ends: list[int]) -> int | None:
        """Answer a request; the descriptor of the watchdog's process, `None` where there is none."""
        try:
            pid = os.fork()
            if pid == 0:
                self._watch(packet, ends)
            try:
                child = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            self._children[child] = pid
            socket.send_fds(self._control, [str(pid).encode()], [child], socket.MSG_NOSIGNAL)
            return child
        except OSError as error:
            with suppress(OSError):  # who asked has gone
                self._control.send(str(error).encode(), socket.MSG_NOSIGNAL)
            return None
        finally:
            for fd in ends:
                os.close(fd)

    def _watch(self, packet: bytes, ends: list[int]) -> None:
        """In the forked process: be a watchdog, to the end."""
        try:
            os.setsid()
            beats, status = ends
            os.dup2(beats, _CONTROL)  # where a watchdog hears its controller
            for fd in (beats, *self._children):
                os.close(fd)
            watchdog.main([str(status), *duty_of(packet)])
        finally:
            os._exit(0)
