"""Serves the metrics of a budget over HTTP, for as long as it is held."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from autocap.reports.prometheus.server import serve
from autocap.text import printable

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
