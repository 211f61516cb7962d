"""A sweep's report, to the letter where a user would look for something."""

from dataclasses import replace

from autocap.events.sweep import SweepPlan
from autocap.reports.text import lines
from autocap.sweep.document import present_sweep
from tests.sweep.test_sweep import curve_runs, finished, logged, plan


def told(made: SweepPlan, runs, why="every run is done") -> list[str]:
    return lines(present_sweep(logged(made, runs, why)).document, 140)


def test_what_was_swept_and_where_is_said_first() -> None:
    report = told(plan(repeats=2, discard=False), curve_runs())
    assert report[0] == "sweep of python train.py; ended: every run is done"
    assert report[2] == "GPU 0: card; limit found on arrival 260 W"


def test_what_is_left_out_and_what_is_left_to_do_is_said() -> None:
    failed = replace(finished(260.0, 0), trouble="the command ended with status 1")
    report = told(plan(repeats=2), [failed, *curve_runs()], "SIGINT ended the sweep")
    assert report[0].endswith("; ended: SIGINT ended the sweep; runs left: 1")
    assert report[-2:] == ["runs that are not averaged: 1", "  260 W, warming up: the command ended with status 1"]
