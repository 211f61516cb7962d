"""A sweep's report, to the letter where a user would look for something."""

from dataclasses import replace

from autocap.events.sweep import SweepPlan
from autocap.reports.text import lines
from autocap.sweep.document import present_sweep
from tests.sweep.test_sweep import curve_runs, finished, logged, plan


def told(made: SweepPlan, runs, why="every run is done") -> list[str]:
    return lines(present_sweep(logged(made, runs, why)).document, 140)


def row(report: list[str], beginning: str) -> list[str]:
    """The first of these: a cap stands in the Pareto front as well."""
    return next(line.split() for line in report if line.strip().startswith(beginning))


def test_what_was_swept_and_where_is_said_first() -> None:
    report = told(plan(repeats=2, discard=False), curve_runs())
    assert report[0] == "sweep of python train.py; ended: every run is done"
    assert report[2] == "GPU 0: card; limit found on arrival 260 W"


def test_what_is_left_out_and_what_is_left_to_do_is_said() -> None:
    failed = replace(finished(260.0, 0), trouble="the command ended with status 1")
    report = told(plan(repeats=2), [failed, *curve_runs()], "SIGINT ended the sweep")
    assert report[0].endswith("; ended: SIGINT ended the sweep; runs left: 1")
    assert report[-2:] == ["runs that are not averaged: 1", "  260 W, warming up: the command ended with status 1"]


def test_without_the_baseline_the_caps_are_shown_alone() -> None:
    report = told(plan(repeats=1), [finished(200.0)])
    assert report[-1] == "the limit found on arrival was not measured, so there is nothing to compare"
    assert row(report, "200 ")[:5] == ["200", "1", "100.0", "1000.0", "10.00"]
