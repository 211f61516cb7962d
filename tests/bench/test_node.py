"""The node of Koszczał et al. 2023: what the paper says of it, and what the controller finds on it."""

from functools import cache
from itertools import pairwise

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.reports.summary.gains import METRICS
from bench.node.command import run
from bench.node.koszczal import case_gains_pct, fit, grid_w, published
from tests.doubles.logs import announced

cases = cache(fit)


def best_w(gpus: int, metric: str) -> float:
    case = next(case for case in cases() if case.gpus == gpus)
    return float(grid_w()[case_gains_pct(case)[metric].argmax()])


@pytest.mark.slow
@pytest.mark.parametrize("row", published()["table_1"], ids=lambda row: row["metric"])
def test_the_best_caps_of_table_1_are_met_within_10_w(row) -> None:
    assert best_w(8, row["metric"]) == pytest.approx(row["cap_w"], abs=10.0)


def test_the_metrics_best_caps_are_in_the_order_of_table_1() -> None:
    energy, difference, edp, eds_15, eds_2 = (best_w(8, row["metric"]) for row in published()["table_1"])
    assert energy < difference == edp == eds_2 < eds_15


@pytest.mark.parametrize("training", published()["trainings"], ids=lambda training: f"{training['gpus']} GPUs")
def test_times_are_as_published_and_energy_gains_within_two_points(training) -> None:
    case = next(case for case in cases() if case.gpus == training["gpus"])
    times_s = case.profile.time_s(grid_w())
    slower = times_s[list(grid_w()).index(170.0)] / times_s[-1]
    assert slower == pytest.approx(training["second_s"] / training["default_s"])
    assert case_gains_pct(case)["energy"].max() == pytest.approx(training["energy_gain_pct"], abs=2.0)


@pytest.mark.parametrize("metric", ["energy", "difference", "edp", "eds_1.5", "eds_2"])
def test_the_best_cap_never_falls_as_fewer_of_the_gpus_train(metric: str) -> None:
    caps_w = [best_w(gpus, metric) for gpus in (1, 2, 4, 8)]
    assert all(fewer >= more for fewer, more in pairwise(caps_w))
    assert caps_w[0] > caps_w[-1]


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, -1], ids=["1 GPU", "8 GPUs"])
def test_the_controller_finds_the_nodes_best_cap_by_its_meter(place: int) -> None:
    case = cases()[place]
    config = TuneConfig(metric=METRICS["energy"], step_w=10.0)
    outcome = run(case, config, "model", seed=3)
    assert outcome.final_cap_w == pytest.approx(best_w(case.gpus, "energy"), abs=10.0)
    baseline = announced(outcome, events.BaselineMeasured)[0].measurement
    assert baseline.power_w - baseline.gpu.power_w == pytest.approx(case.rest_w, rel=0.02)
    idle = announced(outcome, events.IdleEstimated)[0]
    assert idle.power_w == pytest.approx(case.idle_w, rel=0.01)
