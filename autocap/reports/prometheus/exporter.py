"""Serves the metrics of a run, and those of a budget, over HTTP, with the official client, for as long as they last.

The HTTP server is a small one: whoever connects, what it holds stays within bounds. One thread, no more than so many
connections at a time, and each of them closed so many seconds after it was accepted, whatever it did or did not do
until then. One more is closed at once.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, StateSetMetricFamily
from prometheus_client.metrics_core import Metric as AnyFamily
from prometheus_client.registry import Collector

from autocap.errors import ExporterError
from autocap.events import Event
from autocap.records import Sample
from autocap.reports.live.status import Status
from autocap.reports.live.terminal import Reporter
from autocap.reports.prometheus.metrics import METRICS, Kind, Metric, label_values
from autocap.text import printable

MOST_CONNECTIONS = 16
LONGEST_S = 5.0
_MOST_BYTES = 8192  # of a request: its first line and headers
_MOST_WAITING = 128  # for their turn; the kernel keeps them
_AT_ONCE = 2 * MOST_CONNECTIONS  # connections that are accepted or refused at once, and then none for a moment:
_MOMENT_S = 0.05  # who connects without end, or when no descriptor is left, must not keep us busy
_TRANSLATED = {"accept": "HTTP_ACCEPT", "accept-encoding": "HTTP_ACCEPT_ENCODING"}

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]  # WSGI's own signature

_Family = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily | StateSetMetricFamily
_FAMILIES: dict[Kind, Callable[..., _Family]] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.STATES: StateSetMetricFamily,
    Kind.INFO: InfoMetricFamily,
}


class Exporter(Reporter, Collector):
    """Serves `/metrics` from its start until it is closed. Fed by the run, read by the server's threads."""

    def __init__(self) -> None:
        self._status = Status()
        self._lock = threading.Lock()
        self._server: ScrapeServer | None = None

    @classmethod
    def start(cls, address: str, port: int, *, longest_s: float = LONGEST_S) -> "Exporter":
        """Begin to listen. longest_s: of a connection. Raises ExporterError where that cannot be."""
        exporter = cls()
        exporter._server = serve(exporter, address, port, longest_s=longest_s)
        return exporter

    def event(self, event: Event) -> None:
        with self._lock:
            self._status.event(event)

    def sample(self, sample: Sample) -> None:
        with self._lock:
            self._status.sample(sample)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def collect(self) -> Iterator[AnyFamily]:
        """Every metric of which something is known, as of now."""
        with self._lock:
            found = [_family(metric, self._status) for metric in METRICS]
        return (family for family in found if family.samples)


def _family(metric: Metric, status: Status) -> _Family:
    """The metric with a value for each GPU; what is unknown is left out, such as the draw before the first sample."""
    name = metric.name.removesuffix("_info")  # which the client adds, as it does `_total` where that is missing
    family = _FAMILIES[metric.kind](name, metric.meaning, labels=metric.labels)
    of_each = label_values(status, metric.labels)
    values = list(metric.values(status)) * (len(of_each) if metric.of_job else 1)
    for labels, value in zip(of_each, values, strict=False):
        if value is not None:
            family.add_metric(labels, value)  # type: ignore[arg-type]  # each family has its own kind of value
    return family


Values = dict[str, list[tuple[dict[str, str], float]]]


class BudgetExporter(Collector):
    """Serves `/metrics` from its start until it is closed. values: what holds now, by name of a metric and the labels
    of each value; called in the server's threads."""

    def __init__(self, address: str, port: int, values: Callable[[], Values]) -> None:
        self._values = values
        self._server = serve(self, address, port)

    def close(self) -> None:
        self._server.close()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every metric of which something is known, as of now."""
        for name, values in self._values().items():
            if values:
                family = GaugeMetricFamily(name, MEANINGS[name], labels=tuple(values[0][0]))
                for labels, value in values:
                    family.add_metric([printable(one) for one in labels.values()], value)
                yield family


MEANINGS = {
    "autocap_budget_watts": "The budget.",
    "autocap_budget_power_watts": "What is drawn of it.",
    "autocap_budget_reserved_watts": "What is kept for what is no job.",
    "autocap_budget_room_watts": "What is not given away; below 0 while caps are being lowered.",
    "autocap_budget_short_watts": "By how much the lowest caps of all exceed it.",
    "autocap_budget_job_cap_watts": "The cap in force at the devices of a job, the lowest of them.",
    "autocap_budget_job_ceiling_watts": "The cap that each device of a job may have.",
    "autocap_budget_job_power_watts": "What all devices of a job draw.",
    "autocap_budget_job_slowdown_ratio": "How much longer an iteration takes at the cap in force, by the job's curve.",
}


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


class ScrapeServer:
    """Answers with a WSGI application from its start until it is closed. Raises OSError where it cannot listen."""

    def __init__(self, address: str, port: int, application: Application, *, longest_s: float = LONGEST_S) -> None:
        self._application, self._longest_s = application, longest_s
        family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self._listener = _listening(family, place)
        self._connected = 0
        self._loop = asyncio.new_event_loop()
        self._serving = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="exporter", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End at once, whoever is connected; more calls do nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._serving.cancel)
            self._thread.join()

    def _run(self) -> None:
        with closing(self._loop), self._listener, suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)

    async def _serve(self) -> None:
        somebody = asyncio.Event()
        async with asyncio.TaskGroup() as attended:
            while True:
                somebody.clear()
                self._loop.add_reader(self._listener, somebody.set)
                await somebody.wait()
                self._loop.remove_reader(self._listener)
                with suppress(OSError):  # nobody is left, or no descriptor
                    for _ in range(_AT_ONCE):
                        self._accept(attended)
                await asyncio.sleep(_MOMENT_S)

    def _accept(self, attended: asyncio.TaskGroup) -> None:
        """Who waits; not with `sock_accept`, which loses a connection that comes as it is cancelled."""
        accepted, _ = self._listener.accept()
        if self._connected >= MOST_CONNECTIONS:
            accepted.close()
            return
        accepted.setblocking(False)
        self._connected += 1
        attended.create_task(self._attend(accepted)).add_done_callback(partial(self._part, accepted))

    async def _attend(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it has gone, or its time is over
            async with asyncio.timeout(self._longest_s):
                await self._loop.sock_sendall(connection, await self._answered(connection))

    def _part(self, connection: socket.socket, _: "asyncio.Task[None]") -> None:
        connection.close()
        self._connected -= 1

    async def _answered(self, connection: socket.socket) -> bytes:
        """The answer to what is asked there; nothing where the asking breaks off."""
        asked = b""
        while len(asked) <= _MOST_BYTES:
            data = await self._loop.sock_recv(connection, _MOST_BYTES)
            asked += data
            head, whole, _ = asked.partition(b"\r\n\r\n")
            if whole and len(head) <= _MOST_BYTES:
                return _answer(head, self._application)
            if not data:
                return b""
        return _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


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
