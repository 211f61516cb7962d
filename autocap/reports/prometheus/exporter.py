"""Serves the metrics of a run over HTTP, with the official client, for as long as the run lasts."""

import threading
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, StateSetMetricFamily
from prometheus_client.metrics_core import Metric as AnyFamily
from prometheus_client.registry import Collector

from autocap.events import Event
from autocap.records import Sample
from autocap.reports.live.plain import Reporter
from autocap.reports.live.status import Status
from autocap.reports.prometheus.metrics import METRICS, Kind, Metric, label_values
from autocap.reports.prometheus.server import LONGEST_S, ScrapeServer, serve

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
