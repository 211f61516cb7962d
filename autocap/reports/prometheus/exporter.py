"""Serves the metrics of a run, and those of a budget, over HTTP, with the official client, for as long as they last."""

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
from autocap.text import printable

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
