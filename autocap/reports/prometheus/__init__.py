"""What a run says to Prometheus: its status over HTTP, with the official client, for as long as the run lasts.

Every metric carries its meaning. All have the labels `uuid`, `gpu` (its index) and `emulated` (`true`: the power is
modelled), but for `autocap_run_info`. Iterations, state and savings
are those of the job and the same for each of its GPUs. What is unknown is left out.
"""

import threading
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, StateSetMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from autocap.errors import ExporterError
from autocap.events import DeviceFound, Event, RunStarted, State
from autocap.printable import printable
from autocap.records import Sample
from autocap.reports.live.plain import Reporter
from autocap.reports.live.status import Status
from autocap.reports.prometheus.server import LONGEST_S, ScrapeServer

_GPU = ("uuid", "gpu", "emulated")
_Family = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily | StateSetMetricFamily


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
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        try:
            exporter._server = ScrapeServer(address, port, make_wsgi_app(registry), longest_s=longest_s)
        except OSError as error:
            where = f"{address} port {port}"
            raise ExporterError(
                f"the exporter cannot listen on {where}: {error.strerror}; choose another with --prometheus"
            ) from error
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

    def collect(self) -> Iterator[Metric]:
        """Every metric as of now."""
        with self._lock:
            found = list(_families(self._status))
        return iter(found)


def _families(status: Status) -> Iterator[Metric]:
    if status.started is not None:
        yield _run_info(status.started)
    if status.device is None:
        return
    device = status.device
    names = [{"name": printable(gpu.name), "kind": printable(device.kind)} for gpu in device.gpus]
    yield _of_each(device, InfoMetricFamily("autocap_gpu", "The GPUs of the job.", labels=_GPU), names)
    yield _gauge(device, "autocap_cap_watts", "Power limit requested.", status.caps_w)
    yield _gauge(device, "autocap_power_watts", "Draw of the GPU.", status.power_w)
    used = CounterMetricFamily("autocap_energy_joules_total", "Energy used since tuning began.", labels=_GPU)
    yield _of_each(device, used, status.energies_j)
    iterations = 0.0 if status.tally is None else status.tally.iterations
    each = len(device.gpus)  # the job has one count, pace, state and saving
    meaning = "Iterations of the job since its activity was steady."
    counted = CounterMetricFamily("autocap_iterations_total", meaning, labels=_GPU)
    yield _of_each(device, counted, [iterations] * each)
    states = {state.value: state is status.state for state in State}
    yield _of_each(device, StateSetMetricFamily("autocap_state", "State of the tuning.", labels=_GPU), [states] * each)
    for name, (meaning, value) in _of_the_job(status).items():
        if value is not None:
            yield _gauge(device, name, meaning, [value] * each)


def _of_the_job(status: Status) -> dict[str, tuple[str, float | None]]:
    """Gauges by name: what they mean and what they are, `None` while that is not known."""
    versus = status.summary.versus_baseline if status.summary else None
    kept = versus if status.decided is not None and status.decided.cap_w is not None else None
    return {
        "autocap_iteration_seconds": ("Time per iteration.", status.period_s),
        "autocap_net_energy_saving_ratio": (
            "Energy saved so far, the search included, over what as many iterations at the baseline use.",
            status.saved_share,
        ),
        "autocap_net_metric_saving_ratio": (
            "The metric's saving so far, the search included, over the baseline's.",
            _share(versus.net_metric_pct if versus else None),
        ),
        "autocap_expected_energy_saving_ratio": (
            "Energy that the kept cap saves per iteration, as confirmed.",
            _share(kept.energy_pct if kept else None),
        ),
        "autocap_expected_metric_saving_ratio": (
            "What the kept cap saves per iteration in the metric, as confirmed.",
            _share(kept.metric_pct if kept else None),
        ),
    }


def _share(change_pct: float | None) -> float | None:
    """The saving that a change in percent is."""
    return None if change_pct is None else -change_pct / 100


def _gauge(device: DeviceFound, name: str, meaning: str, values: Sequence[float | None]) -> Metric:
    return _of_each(device, GaugeMetricFamily(name, meaning, labels=_GPU), values)


def _of_each(device: DeviceFound, family: _Family, values: Sequence[object]) -> Metric:
    """The family with a value for each GPU; what is unknown is left out, such as the draw before the first sample."""
    for labels, value in zip(_labels(device), values, strict=False):
        if value is not None:
            family.add_metric(labels, value)  # type: ignore[arg-type]  # each family has its own kind of value
    return family


def _run_info(started: RunStarted) -> Metric:
    about = {
        "version": started.autocap_version,
        "mode": started.mode,
        "metric": started.metric.name,
        "strategy": started.strategy,
    }
    return InfoMetricFamily(
        "autocap_run", "The run: what is minimised, and how.", {name: printable(value) for name, value in about.items()}
    )


def _labels(device: DeviceFound) -> list[tuple[str, ...]]:
    emulated = "true" if device.emulated else "false"
    return [(printable(gpu.uuid), str(gpu.index), emulated) for gpu in device.gpus]
