"""A helper that answers what a test says, over a real socket; unless told otherwise, as one that is well."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from autocap.limits.helper import protocol
from autocap.wire.lines import Lines


class Hangup(Exception):
    """Raised by a script to end the connection without an answer."""


@dataclass
class ScriptedHelper:
    """found_w: the limits of the devices that it lends. script: answers a request, with `None` for the usual answer.
    silent: it answers nothing. hang_s: as it says. asked: the requests so far, hellos and beats left out. connections:
    how many there were; open: how many there are."""

    path: Path
    found_w: tuple[float, ...] = (250.0,)
    hang_s: float = 1.5
    script: Callable[[protocol.Request], protocol.Answer | protocol.Refusal | bytes | None] = lambda request: None
    silent: bool = False
    asked: list[protocol.Request] = field(default_factory=list)
    beats: int = 0
    connections: int = 0
    open: int = 0

    def answer(self, request: protocol.Request) -> bytes:
        if request.op is protocol.Op.BEAT:
            self.beats += 1
        elif request.op is not protocol.Op.HELLO:
            self.asked.append(request)
        answer = self.script(request)
        if isinstance(answer, bytes):
            return answer
        return protocol.encode_answer(request.id, answer or self._usual(request.op))

    def ops(self) -> list[str]:
        return [str(request.op) for request in self.asked]

    def _usual(self, op: protocol.Op) -> protocol.Answer:
        if op is protocol.Op.HELLO:
            return protocol.Hello(server="scripted", uid=1, hang_s=self.hang_s)
        if op is protocol.Op.LEND:
            return protocol.Lent(original_w=self.found_w, min_w=(100.0,) * len(self.found_w), max_w=self.found_w)
        if op is protocol.Op.BEAT:
            return protocol.Beaten(put_back=False)
        if op in (protocol.Op.RESTORE, protocol.Op.GIVE_BACK):
            back = (protocol.Restored(uuid="gpu", original_w=w, final_w=w, restored=True) for w in self.found_w)
            return protocol.PutBack(restored=tuple(back))
        return protocol.Done()


@contextmanager
def scripted(helper: ScriptedHelper) -> Iterator[ScriptedHelper]:
    """Serve at its path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(helper.path))
    listener.listen()
    ends: list[socket.socket] = []

    def attend(connection: socket.socket) -> None:
        lines = Lines(protocol.MOST_REQUEST_BYTES)
        with connection, suppress(OSError, Hangup):
            while data := connection.recv(4096):
                for line in lines.feed(data):
                    if not helper.silent:
                        connection.sendall(helper.answer(protocol.decode_request(line)))
        helper.open -= 1

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                ends.append(connection)
                helper.connections += 1
                helper.open += 1
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield helper
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
