"""The report of a sweep, from its events: its page, its pictures, and its text to the letter where a user would look
for something. What was run once has no error of its own: none is shown, none is in JSON, and nothing takes it for
exact."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap.devices.model import profiles
from autocap.events import Event, MetricInfo, RunEnded, SweepRunEnded
from autocap.events.sweep import FinishedRun, PlannedRun, SweepPlan, Used
from autocap.metrics import Metric
from autocap.reports import text
from autocap.reports.document import Sentences
from autocap.reports.figures.model import Plot, Points
from autocap.reports.html import page
from autocap.reports.text import lines
from autocap.sweep.document import present_sweep
from autocap.sweep.schedule import in_order
from autocap.sweep.summary import panels, summarise, to_csv
from autocap.wire.json_lines import Json
from tests.sweep.test_sweep import CAPS, curve_runs, finished, gpu_set, logged, plan

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


ONCE = "very cap was run once, so nothing is known of errors"


def once(caps_w=CAPS) -> list[Event]:
    runs = [
        finished(cap_w, time_s=10.0 + (260 - cap_w) / 100, energy_j=(1000.0 - 3 * (260 - cap_w),)) for cap_w in caps_w
    ]
    return logged(plan(repeats=1, discard=False, sets=(gpu_set(caps_w=caps_w),)), runs)


def leaves(value: Json, name: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, name)
    else:
        yield name, value


def test_no_table_page_picture_csv_or_json_has_an_error() -> None:
    presented = present_sweep(once())
    shown = "\n".join(text.lines(presented.document, 200))
    html = page(presented.document, presented.pictures())
    errors = [value for name, value in leaves(presented.result) if re.search(r"_stderr|_sd(_|$)", name)]
    assert ONCE in shown
    assert ONCE in html
    assert "±" not in shown
    assert "±" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    assert "±" not in to_csv(summarise(once()))
    assert len(errors) > 20
    assert [error for error in errors if error is not None] == [0.0, 0.0], "the baseline is once itself, by definition"
    assert "inf" not in shown.replace("infinite", "")


def test_nothing_that_compares_takes_it_for_exact() -> None:
    limited = Metric(name="energy", max_slowdown=0.05)
    runs = [event.finished for event in once() if isinstance(event, SweepRunEnded)]
    (panel,) = panels(plan(), limited, runs)
    base = panel.baseline.measurement
    for row in panel.rows:
        assert not limited.allows(row.measurement, base), "what is not known is not sure"
        assert not limited.forbids(row.measurement, base)
        for name in ("energy", "edp", "ed2p"):
            assert math.isinf(Metric(name=name).versus(row.measurement, base).stderr)
    assert panel.chosen.setting == (260.0,), "200 W takes 6 % more time"
    assert math.isinf(panel.chosen.cost_stderr)


def test_a_second_run_of_any_cap_gives_errors_and_takes_the_sentence_away() -> None:
    events = [*once(), *logged(plan(), [finished(200.0, repeat=2, time_s=10.8, energy_j=(830.0,))])[1:]]
    shown = "\n".join(text.lines(present_sweep(events).document, 200))
    assert ONCE not in shown
    assert "±" in shown


@pytest.mark.parametrize("name", ["energy", "edp", "eds", "ed2p"])
def test_errors_that_are_not_known_stay_so_in_every_metric(name: str) -> None:
    (panel,) = panels(plan(), Metric(name=name, k=2.0 if name == "eds" else None),
                      [event.finished for event in once() if isinstance(event, SweepRunEnded)])  # fmt: skip
    assert all(math.isinf(best.cost_stderr) or best.setting == (260.0,) for best in panel.best_by_metric)
    assert not any(math.isnan(best.cost) for best in panel.best_by_metric)
