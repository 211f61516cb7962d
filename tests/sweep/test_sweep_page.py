"""The page and the pictures of a sweep, from its events."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap.devices.model import profiles
from autocap.events import Event, MetricInfo, RunEnded, SweepRunEnded
from autocap.events.sweep import FinishedRun, PlannedRun, Used
from autocap.reports.document import Sentences
from autocap.reports.figures.model import Plot, Points
from autocap.sweep.document import present_sweep
from autocap.sweep.schedule import in_order
from tests.sweep.test_sweep import gpu_set, logged, plan

PROFILE = profiles.load("quadro-rtx-6000/resnet50")
EPOCH = 500  # iterations a run


def swept(labels: Sequence[str] = ("0", "0,1", "0,1,2,3"), *, repeats: int = 3) -> list[Event]:
    """A whole sweep of an emulated card; two GPUs halve the time but for a tenth of it that they wait."""
    sets = tuple(gpu_set(label, caps_w=(260.0, 220.0, 180.0, 160.0, 140.0, 120.0, 100.0)) for label in labels)
    command = ("python", "train.py", "<b>&")
    made = plan(command=command, device="emulated", emulated=True, sets=sets, repeats=repeats)
    dice = np.random.default_rng(0)

    def used(run: PlannedRun) -> Used:
        gpus = run.gpus.count(",") + 1
        time_s = float(PROFILE.time_s(run.cap_w)) * EPOCH * (0.9 / gpus + 0.1) * dice.normal(1, 0.01)
        power_w = float(PROFILE.power_w(run.cap_w)) * dice.normal(1, 0.004)
        return Used(time_s=time_s, energy_j=(power_w * time_s,) * gpus)

    start = replace(logged(made, [])[0], metric=MetricInfo(name="eds", k=2.0), runs_left=len(list(in_order(made))))
    runs = [
        SweepRunEnded(t_s=float(number), finished=FinishedRun(run=run, used=used(run), exit_status=0))
        for number, run in enumerate(in_order(made), start=1)
    ]
    return [start, *runs, RunEnded(t_s=1e3, ended_because="every run was made")]


def test_a_sweep_of_several_gpu_sets_has_a_panel_and_tables_for_each() -> None:
    report = present_sweep(swept())
    page, pictures = report.document, report.pictures()
    sets = ["train.py on GPU 0", "train.py on GPU 0,1", "train.py on GPU 0,1,2,3"]
    assert [picture.name for picture in pictures] == ["tradeoff", "caps"]
    for picture in pictures:
        assert [panel.title for panel in picture.panels if isinstance(panel, Plot)] == sets
        assert picture.note == "EMULATED power: modelled, not measured"
    caps_of = [one.heading for one in page.tables if one.heading.startswith("Caps of")]
    assert caps_of == [f"Caps of {name}" for name in sets]
    assert page.headline.startswith("Best by eds k=2: ")
    assert len(page.remarks) == 3
    assert re.search(r"best on train.py on GPU 0: \d+ W, eds 0\.\d{4} ± 0\.\d{4} of the baseline's", page.remarks[0])


def test_a_sweep_of_one_network_has_a_panel_for_each_metric_and_its_best_cap_with_errors() -> None:
    report = present_sweep(swept(["0"]))
    page, pictures = report.document, report.pictures()
    panels = [[panel.title for panel in picture.panels if isinstance(panel, Plot)] for picture in pictures[1:]]
    assert panels == [["energy", "time", "EDS(2)"], ["EDP", "ED²P", "EDS(1.5)"]]
    (plot,) = pictures[0].panels
    assert isinstance(plot, Plot)
    best = next(mark for mark in plot.marks if isinstance(mark, Points) and mark.name == "best by eds k=2")
    assert best.y[0] < 1 < best.x[0]
    assert [fact.name for fact in page.facts] == ["energy per run (emulated)", "time per run", "eds"]
    assert all(re.fullmatch(r"[+-]\d+\.\d ± \d+\.\d %", fact.value) for fact in page.facts)


@pytest.mark.parametrize("count", [1, 2, 4, 9, 15])
def test_an_interrupted_sweep_has_a_page_that_says_what_is_left(count: int) -> None:
    text = present_sweep(swept(["0"])[:count]).page
    assert "killed or still running; runs left: " in text
    assert "&lt;b&gt;&amp;" in text


def test_caps_without_a_baseline_are_listed_and_not_compared() -> None:
    start, *runs, end = swept(["0"])
    report = present_sweep([start, *(run for run in runs if run.finished.run.cap_w != 260.0), end])
    page, pictures = report.document, report.pictures()
    assert page.headline == "Nothing to compare yet"
    assert pictures == ()
    assert [table.heading for table in page.tables] == ["Caps of train.py"]
    (said,) = [block.lines for block in page.body if isinstance(block, Sentences)][2:]
    assert said == ("the limit found on arrival was not measured, so there is nothing to compare",)


def test_how_often_a_cap_is_run_is_said_in_words() -> None:
    for repeats, said in ((1, "one run per cap in"), (3, "up to 3 runs per cap in")):
        assert present_sweep(swept(("0",), repeats=repeats)).document.aim.startswith(said)
