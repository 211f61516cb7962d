"""The Grafana dashboard asks for what the exporter serves, and for all of it."""

import json
import re
from dataclasses import replace
from typing import Any

from autocap.events import DeviceFound, ProgressFound
from autocap.knobs import Knob
from autocap.records import Reading, Sample
from autocap.reports.prometheus.exporter import Exporter
from autocap.reports.prometheus.metrics import METRICS
from tests.docs.pages import ROOT
from tests.doubles.logs import whole_log

PANELS: list[dict[str, Any]] = json.loads((ROOT / "contrib" / "grafana" / "autocap.json").read_text())["panels"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
NAMES = {metric.name for metric in METRICS}


def served() -> dict[str, set[str]]:
    """The labels of each metric that is served at the end of a whole run, or of one whose iterations a proxy counts, or
    that has only begun with another knob."""
    found, mode = dict[str, set[str]](), Knob(name="mode", values=(0, 1), faster=None)
    turned = [replace(one, knob=mode, original=(1.0,)) for one in whole_log() if isinstance(one, DeviceFound)]
    for confidence, log in (("high", whole_log()), ("low", whole_log()), ("", turned)):
        exporter = Exporter()
        for event in log:
            known = isinstance(event, ProgressFound)
            exporter.event(replace(event, confidence=confidence) if known else event)  # type: ignore[type-var]
        for t_s in (1.0, 2.0):
            exporter.sample(
                Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=150.0, requested_w=200.0, knob_value=1.0),))
            )
        samples = [sample for family in exporter.collect() for sample in family.samples]
        found |= {sample.name: set(sample.labels) for sample in samples}
    return found


def test_every_metric_is_served_with_its_labels_shown_and_on_the_page_on_reports() -> None:
    assert served() == {metric.name: {*metric.labels, *metric.more} for metric in METRICS}
    assert {re.findall(r"autocap_\w+(?={)", target["expr"])[0] for target in TARGETS} == NAMES
    page = (ROOT / "docs" / "reports.md").read_text()
    assert set(re.findall(r"`(autocap_\w+)[`{]", page)) == NAMES


def test_a_query_names_labels_that_its_metric_has() -> None:
    known = {metric.name: {*metric.labels, *metric.more} for metric in METRICS}
    for target in TARGETS:
        names = set(re.findall(r"[a-z_]+", re.sub(r'"[^"]*"', "", target["expr"])))
        (metric,) = names & NAMES - {"autocap_state"} or {"autocap_state"}
        labels = names - {metric, "max", "without"} | set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        assert labels <= known[metric] | {"instance"}, target  # which Prometheus adds


def test_modelled_power_is_labelled_wherever_a_number_is_drawn() -> None:
    drawn = [target for panel in PANELS if panel["type"] == "timeseries" for target in panel["targets"]]
    assert len(drawn) > 4
    assert all("emulated: {{emulated}}" in target["legendFormat"] for target in drawn)
