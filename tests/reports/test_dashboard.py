"""The Grafana dashboard asks for what the exporter serves, for all of it, and is laid out so that Grafana takes it."""

import json
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from autocap.cli import main
from autocap.events import ProgressFound
from autocap.records import Reading, Sample
from autocap.reports.prometheus.dashboard import dashboard
from autocap.reports.prometheus.exporter import Exporter
from autocap.reports.prometheus.metrics import METRICS
from tests.docs.pages import ROOT
from tests.doubles.logs import whole_log

OF_PROMETHEUS = {"instance"}  # where it scraped, which the exporter does not say
WORDS = {"max", "without"}  # of its query language
SHOWN = dashboard()
PANELS: list[dict[str, Any]] = SHOWN["panels"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The labels of each metric that is served at the end of a whole run, or of one whose iterations a proxy counts."""
    found = {}
    for confidence in ("high", "low"):
        exporter = Exporter()
        for event in whole_log():
            known = isinstance(event, ProgressFound)
            exporter.event(replace(event, confidence=confidence) if known else event)  # type: ignore[type-var]
        for t_s in (1.0, 2.0):
            exporter.sample(Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=150.0, requested_w=200.0),)))
        samples = [sample for family in exporter.collect() for sample in family.samples]
        found |= {sample.name: set(sample.labels) for sample in samples}
    return found


def asked(expression: str) -> tuple[str, set[str]]:
    """The metric of a query, and every label that it names."""
    bare = re.sub(r'"[^"]*"', "", expression)
    names = set(re.findall(r"[a-z_]+", bare)) - WORDS
    (metric,) = [name for name in names if f"{name}{{" in bare]
    return metric, names - {metric}


def test_every_query_is_one_that_the_exporter_answers(served: dict[str, set[str]]) -> None:
    assert len(TARGETS) == len(METRICS)
    for target in TARGETS:
        metric, labels = asked(target["expr"])
        assert metric in served
        named = labels | set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
        assert named <= served[metric] | OF_PROMETHEUS, target


def test_whatever_is_exported_is_shown_and_declared(served: dict[str, set[str]]) -> None:
    assert set(served) == {asked(target["expr"])[0] for target in TARGETS} == {metric.name for metric in METRICS}
    for metric in METRICS:
        assert served[metric.name] == {*metric.labels, *metric.more}


def test_modelled_power_is_labelled_wherever_a_number_is_drawn() -> None:
    drawn = [panel for panel in PANELS if panel["type"] == "timeseries"]
    assert len(drawn) > 4
    assert all("emulated: {{emulated}}" in target["legendFormat"] for panel in drawn for target in panel["targets"])


def test_a_panel_has_one_unit_and_says_what_it_shows() -> None:
    for panel in PANELS:
        metrics = [metric for metric in METRICS if metric.panel == panel["title"]]
        assert len({metric.unit for metric in metrics}) == 1
        assert all(metric.meaning in panel["description"] for metric in metrics)
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [panel["gridPos"] for panel in PANELS]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        beneath = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or beneath, (one, other)


def test_the_source_of_the_data_is_chosen_at_the_top() -> None:
    variables = {variable["name"]: variable for variable in SHOWN["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    sources = [*PANELS, *TARGETS, variables["instance"], variables["gpu"]]
    assert all(one["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for one in sources)
    assert set(re.findall(r"\$\{?(\w+)", json.dumps([PANELS, SHOWN["templating"]]))) - {"__all"} == set(variables)
    assert SHOWN["uid"]
    assert SHOWN["schemaVersion"] >= 36


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard"]) == 0
    assert json.loads(capsys.readouterr().out) == SHOWN


def test_the_page_on_reports_names_every_metric() -> None:
    page = (ROOT / "docs" / "reports.md").read_text()
    assert set(re.findall(r"`(autocap_\w+)[`{]", page)) == {metric.name for metric in METRICS}
