"""A sweep's report, to the letter where a user would look for something."""

from dataclasses import replace

from autocap.events.sweep import SweepPlan
from autocap.reports.text import lines
from autocap.sweep.document import present_sweep
from tests.sweep.test_sweep import curve_runs, finished, gpu_set, logged, plan


def told(made: SweepPlan, runs, why="every run is done") -> list[str]:
    return lines(present_sweep(logged(made, runs, why)).document, 140)


def row(report: list[str], beginning: str) -> list[str]:
    """The first of these: a cap stands in the Pareto front as well."""
    return next(line.split() for line in report if line.strip().startswith(beginning))


def test_every_cap_is_shown_with_means_standard_deviations_and_ratios_to_the_baseline() -> None:
    report = told(plan(repeats=2, discard=False), curve_runs())

    assert report[0] == "sweep of python train.py; ended: every run is done"
    assert report[2] == "GPU 0: card; limit found on arrival 260 W"
    assert " ".join(row(report, "200 ")) == (
        "200 2 144.2 ± 0.0 1500.0 ± 21.2 10.40 ± 0.15 -25.0 +4.0 0.7800 0.8950 0.9433"
    )
    assert row(report, "260 ")[-1] == "baseline"


def test_the_best_caps_stand_as_in_the_papers_tables() -> None:
    report = told(plan(repeats=2), curve_runs())

    assert row(report, "target")[:3] == ["target", "cap", "W"]
    assert row(report, "baseline ")[1:] == ["260", "200.0", "2000.0", "–", "10.00", "–"]
    assert row(report, "min energy")[2:8] == ["150", "100.0", "1300.0", "-35.0", "13.00", "+30.0"]
    assert row(report, "min edp")[2:4] == ["200", "144.2"]
    assert row(report, "asked for")[-1] == "edp"


def test_emulated_power_is_marked_and_each_gpu_is_shown() -> None:
    made = plan(repeats=2, emulated=True, sets=(gpu_set("0,1"),))
    report = told(made, curve_runs("0,1", gpus=2))

    assert "(EMULATED power: modelled, not measured)" in report[0]
    assert report[4] == "Caps of train.py (emulated)"
    assert " ".join(row(report, "200 ")[-3:]) == "each 72/72 W"


def test_what_is_left_out_and_what_is_left_to_do_is_said() -> None:
    failed = replace(finished(260.0, 0), trouble="the command ended with status 1")
    report = told(plan(repeats=2), [failed, *curve_runs()], "SIGINT ended the sweep")

    assert report[0].endswith("; ended: SIGINT ended the sweep; runs left: 1")
    assert report[-2:] == [
        "runs that are not averaged: 1",
        "  260 W, warming up: the command ended with status 1",
    ]


def test_without_the_baseline_the_caps_are_shown_alone() -> None:
    report = told(plan(repeats=1), [finished(200.0)])

    assert report[-1] == "the limit found on arrival was not measured, so there is nothing to compare"
    assert row(report, "200 ")[:5] == ["200", "1", "100.0", "1000.0", "10.00"]
