"""A small HTTP server for scrapes: whoever connects, what it holds stays within bounds.

One thread, no more than so many connections at a time, and each of them closed so many seconds after it was accepted,
whatever it did or did not do until then. One more is closed at once.
"""

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from autocap.errors import ExporterError

MOST_CONNECTIONS = 16
LONGEST_S = 5.0
_MOST_BYTES = 8192  # of a request: its first line and headers
_MOST_WAITING = 128  # for their turn; the kernel keeps them
_AT_ONCE = 2 * MOST_CONNECTIONS  # connections that are accepted or refused at once, and then none for a moment:
_MOMENT_S = 0.05  # who connects without end, or when no descriptor is left, must not keep us busy
_TRANSLATED = {"accept": "HTTP_ACCEPT", "accept-encoding": "HTTP_ACCEPT_ENCODING"}

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]  # WSGI's own signature


def serve(collector: Collector, address: str, port: int, *, longest_s: float = LONGEST_S) -> "ScrapeServer":
    """Begin to serve `/metrics` of a collector. longest_s: of a connection. Raises ExporterError where that cannot
    be."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        return ScrapeServer(address, port, make_wsgi_app(registry), longest_s=longest_s)
    except OSError as error:
        raise ExporterError(
            f"the exporter cannot listen on {address} port {port}: {error.strerror}; choose another with --prometheus"
        ) from error


@dataclass(slots=True, kw_only=True)
class _Connection:
    """until_s: when it is closed. asked: of the request so far. answer: what is left to send, once that is whole."""

    socket: socket.socket
    until_s: float
    asked: bytes = b""
    answer: memoryview | None = field(default=None)


class ScrapeServer:
    """Answers with a WSGI application from its start until it is closed. Raises OSError where it cannot listen."""

    def __init__(
        self, address: str, port: int, application: Application, *, longest_s: float = LONGEST_S,
        most: int = MOST_CONNECTIONS,
    ) -> None:  # fmt: skip
        self._application, self._longest_s, self._most = application, longest_s, most
        family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self._listener = _listening(family, place)
        self._listens_from_s = 0.0  # not before
        self._connections: dict[int, _Connection] = {}
        self._ready = selectors.DefaultSelector()
        self._stop, self._stopper = os.pipe()
        self._ready.register(self._stop, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End at once, whoever is connected."""
        os.write(self._stopper, b"x")
        self._thread.join()
        os.close(self._stopper)

    def _serve(self) -> None:
        listening = False
        while True:
            now_s = time.monotonic()
            if listening != (now_s >= self._listens_from_s):
                listening = not listening
                if listening:
                    self._ready.register(self._listener, selectors.EVENT_READ)
                else:
                    self._ready.unregister(self._listener)
            for key, _ in self._ready.select(self._patience_s(now_s, listening)):
                if key.fd == self._stop:
                    return self._end()
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._connections:
                    self._go_on(self._connections[key.fd])
            now_s = time.monotonic()
            for connection in [one for one in self._connections.values() if one.until_s <= now_s]:
                self._close(connection)

    def _patience_s(self, now_s: float, listening: bool) -> float | None:
        """How long nothing needs to be done; `None` for ever."""
        times_s = [one.until_s for one in self._connections.values()]
        times_s += [] if listening else [self._listens_from_s]
        return max(0.0, min(times_s) - now_s) if times_s else None

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # nobody is left, or no descriptor
                break
            if len(self._connections) >= self._most:
                accepted.close()
                continue
            accepted.setblocking(False)
            try:
                self._ready.register(accepted, selectors.EVENT_READ)
            except OSError:  # the kernel watches no more for this user
                accepted.close()
                break
            until_s = time.monotonic() + self._longest_s
            self._connections[accepted.fileno()] = _Connection(socket=accepted, until_s=until_s)
        self._listens_from_s = time.monotonic() + _MOMENT_S

    def _go_on(self, connection: _Connection) -> None:
        """Read on, or send on."""
        try:
            if connection.answer is None:
                self._read(connection)
            else:
                connection.answer = connection.answer[connection.socket.send(connection.answer) :]
                if not connection.answer:
                    self._close(connection)
        except BlockingIOError:
            return
        except OSError:  # it has gone
            self._close(connection)

    def _read(self, connection: _Connection) -> None:
        data = connection.socket.recv(_MOST_BYTES)
        connection.asked += data
        head, whole, _ = connection.asked.partition(b"\r\n\r\n")
        if whole and len(head) <= _MOST_BYTES:
            answer = _answer(head, self._application)
        elif len(connection.asked) > _MOST_BYTES:
            answer = _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif not data:
            self._close(connection)
            return
        else:
            return
        connection.answer = memoryview(answer)
        self._ready.modify(connection.socket, selectors.EVENT_WRITE)

    def _close(self, connection: _Connection) -> None:
        self._ready.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.socket.close()

    def _end(self) -> None:
        for connection in list(self._connections.values()):
            self._close(connection)
        self._ready.close()
        self._listener.close()
        os.close(self._stop)


def _listening(family: int, place: Any) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_MOST_WAITING)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _answer(head: bytes, application: Application) -> bytes:
    """The whole response to a request, by its first line and headers."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _response(HTTPStatus.BAD_REQUEST)
    path, _, query = words[1].partition("?")
    environ: dict[str, Any] = {"REQUEST_METHOD": words[0], "PATH_INFO": path, "QUERY_STRING": query}
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() in _TRANSLATED:
            environ[_TRANSLATED[name.lower()]] = value.strip()
    said: list[tuple[str, list[tuple[str, str]]]] = []
    try:
        body = b"".join(application(environ, lambda status, headers: said.append((status, headers))))
        status, headers = said[0]
    except Exception:  # noqa: BLE001 - whatever was asked, the next one is answered
        return _response(HTTPStatus.INTERNAL_SERVER_ERROR)
    return _bytes(status, headers, body)


def _response(status: HTTPStatus) -> bytes:
    return _bytes(f"{status.value} {status.phrase}", [], b"")


def _bytes(status: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    every = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in every)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body
