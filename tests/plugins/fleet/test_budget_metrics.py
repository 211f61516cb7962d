"""What is exported of a budget, scraped over HTTP."""

import socket
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from autocap.errors import ExporterError
from autocap.plugins.fleet.budget.words import JobStanding, Standing
from autocap.plugins.fleet.manager.standing import values_of
from autocap.reports.prometheus.exporter import MEANINGS, BudgetExporter
from tests.reports.test_prometheus import port

__all__ = ["port"]  # the fixture

JOB = JobStanding(
    name="train.py 7", devices=("A", "B"), tuned=True, pid=7, cap_w=210.0, lowest_w=100.0, draw_w=400.0, slowdown=0.05,
    slowdown_stderr=0.01, ceiling_w=250.0,
)  # fmt: skip
STANDING = Standing(
    budget_w=1200.0, policy="fair", reserved_w=3.0, room_w=17.0, power_w=900.0, short_w=0.0, pause=(), jobs=(JOB,),
    free=("C",), record="", pid=1,
)  # fmt: skip


def scraped(port: int) -> dict[str, tuple[dict[str, str], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {one.name: (one.labels, one.value) for family in families for one in family.samples}


def test_every_metric_has_its_value(port: int) -> None:
    exporter = BudgetExporter("127.0.0.1", port, lambda: values_of(STANDING))
    try:
        found = scraped(port)
    finally:
        exporter.close()
    assert set(found) == set(MEANINGS)
    assert found["autocap_budget_watts"] == ({"policy": "fair"}, 1200.0)
    assert found["autocap_budget_job_slowdown_ratio"] == ({"job": "train.py 7", "tuned": "true"}, 0.05)


def test_what_is_not_known_is_left_out(port: int) -> None:
    unknown = replace(STANDING, power_w=None, jobs=(replace(JOB, draw_w=None),))
    for standing, missing in (
        (None, set(MEANINGS)),
        (unknown, {"autocap_budget_power_watts", "autocap_budget_job_power_watts"}),
    ):
        exporter = BudgetExporter("127.0.0.1", port, lambda standing=standing: values_of(standing))  # type: ignore[misc]
        try:
            assert set(MEANINGS) - set(scraped(port)) == missing
        finally:
            exporter.close()


def test_a_port_that_is_taken_is_told(port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(ExporterError, match="cannot listen on"):
            BudgetExporter("127.0.0.1", port, lambda: {})
