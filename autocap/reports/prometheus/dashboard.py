"""A Grafana dashboard of the metrics, as JSON to import or provision: a panel for each heading that they declare."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from string import ascii_uppercase
from typing import Any

from autocap.reports.prometheus.metrics import GPU_LABELS, METRICS, Kind, Metric, Unit

UID = "autocap"
_SCHEMA = 39  # of Grafana 10 and 11, which later versions take over
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24  # of Grafana's grid
_UNITS = {
    Unit.WATT: "watt",
    Unit.JOULE: "joule",
    Unit.SECOND: "s",
    Unit.RATIO: "percentunit",
    Unit.ITERATION: "short",
}
_SHAPES = {Kind.INFO: ("table", 12, 5), Kind.STATES: ("state-timeline", 24, 7)}  # type, columns, rows
_LINES = ("timeseries", 12, 8)
_INSTANCE = 'instance=~"$instance"'  # the label that Prometheus gives to where it scrapes
_GPU = 'gpu=~"$gpu"'

Json = dict[str, Any]


def dashboard() -> Json:
    """The dashboard: where the data comes from, the machine and the GPU are chosen at its top."""
    headings = [(heading, tuple(metrics)) for heading, metrics in groupby(METRICS, lambda metric: metric.panel)]
    return {
        "uid": UID,
        "title": "autocap",
        "description": "Power caps tuned while jobs train. Power of emulated GPUs is modelled, not measured.",
        "tags": ["autocap", "power"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(headings)),
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    for name, query in (
        ("instance", "label_values(autocap_run_info, instance)"),
        ("gpu", f"label_values(autocap_gpu_info{{{_INSTANCE}}}, gpu)"),
    ):
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,  # whenever the time range changes
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def _panels(headings: Sequence[tuple[str, Sequence[Metric]]]) -> Iterator[Json]:
    x = y = deepest = 0
    for number, (heading, metrics) in enumerate(headings, start=1):
        kind, width, height = _SHAPES.get(metrics[0].kind, _LINES)
        if x + width > _COLUMNS:
            x, y = 0, deepest
        unit = metrics[0].unit
        yield {
            "id": number,
            "type": kind,
            "title": heading,
            "description": " ".join(metric.meaning for metric in metrics),
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {} if unit is None else {"unit": _UNITS[unit]}, "overrides": []},
            "options": {},
            "targets": [_target(metric, letter) for metric, letter in zip(metrics, ascii_uppercase, strict=False)],
        }
        x, deepest = x + width, max(deepest, y + height)


def _target(metric: Metric, letter: str) -> Json:
    """The query of a metric; what is the job's, and the same for all of its GPUs, is drawn once."""
    chosen = _INSTANCE if metric.of_job else f"{_INSTANCE}, {_GPU}"
    expression = f"{metric.name}{{{chosen}}}"
    target: Json = {"refId": letter, "datasource": _SOURCE}
    if metric.kind is Kind.INFO:
        return {**target, "expr": expression, "format": "table", "instant": True}
    if metric.of_job:
        own = [label for label in GPU_LABELS if label != "emulated"]
        expression = f"max without ({', '.join(own)}) ({expression})"
    if metric.kind is Kind.STATES:
        (state,) = metric.more
        return {**target, "expr": f"{expression} == 1", "legendFormat": f"{{{{instance}}}} {{{{{state}}}}}"}
    which = "" if metric.of_job else " GPU {{gpu}}"
    label = f"{metric.short}, {{{{instance}}}}{which}, emulated: {{{{emulated}}}}"
    return {**target, "expr": expression, "legendFormat": label}
