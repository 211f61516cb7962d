"""Where the SM clock stands for the iterations: ratios of low confidence wherever the run is shown, and no seconds."""

import functools
import json
import re

import pytest
from rich.console import Console

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.devices.simulated.job import SimulatedJob
from autocap.events import Decided, Event
from autocap.metrics import Metric
from autocap.progress import SpeedProgress
from autocap.records import Measurement
from autocap.reports import html
from autocap.reports.figures import pictures
from autocap.reports.html import notebook
from autocap.reports.live.view import View
from autocap.reports.prometheus.exporter import Exporter
from autocap.reports.rendering import to_json_dict
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from autocap.reports.wording.events import Wording
from autocap.runlog.columns import read_samples
from bench.simulation.jobs import tune
from tests.doubles.logs import in_full, status_after, whole_log

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
OF_AN_ITERATION = re.compile(r"\d (?:s|J)/iter|s/iter|J/iter|iterations in|_iteration_(?:s|j|seconds|stderr)")


@functools.cache
def log() -> tuple[Event, ...]:
    """A whole run by the clock."""
    config = TuneConfig(metric=Metric(name="eds", k=2.0), caps_w=(150.0, 200.0))
    job = SimulatedJob(profile=RESNET50, iterations=600)
    outcome = tune(job, config, "linear", progress=SpeedProgress())
    return tuple(in_full(outcome))


def test_the_text_shows_ratios_with_errors_that_span_what_is_possible() -> None:
    text = "\n".join(lines(run_document(summarise(log()), log())))
    assert not OF_AN_ITERATION.search(text)
    assert "iterations from speed (low confidence)" in text
    assert re.search(r"150 W instead of 260 W: 3\d % less energy, up to 1\d % more time; .*\(emulated, low conf", text)
    assert "Measured caps (emulated, low confidence)" in text
    assert "iterations were not counted: the SM clock stands for their speed" in text
    row = next(line for line in text.splitlines() if line.startswith("  150 "))
    time = re.search(r"×(1\.\d+) ± (0\.\d+)", row)
    assert time
    middle, error = float(time[1]), float(time[2])
    assert middle - 2 * error == pytest.approx(1.0, abs=0.015)
    assert middle + 2 * error == pytest.approx(RESNET50.slowdown(150.0), abs=0.03)


def test_what_is_said_while_it_runs_has_no_seconds_either() -> None:
    wording = Wording()
    said = "\n".join(filter(None, map(wording.line, log())))
    assert not OF_AN_ITERATION.search(said)
    assert "iterations from speed, with low confidence: time is known only against the baseline's" in said
    assert re.search(r"150 W: eds \S+ ± \S+, \S+ W \(emulated\), time ×1\S+ ± 0\S+, energy ×0\S+ ± 0\S+ \(low c", said)


def test_the_live_view_shows_the_time_over_the_baselines() -> None:
    decided = next(place for place, event in enumerate(log()) if isinstance(event, Decided))
    view = View(Console(width=160, force_terminal=False))
    for events in (log(), log()[: decided + 1]):
        shown = "\n".join(view.lines(status_after(list(events)), 100.0, 160, 30))
        assert not OF_AN_ITERATION.search(shown)
        assert re.search(r"time ×1\.\d\d\d \(low confidence\)", shown)


def test_result_json_has_null_for_seconds_and_ratios_beside_them() -> None:
    result = to_json_dict(summarise(log()))
    assert result["progress"] == {"kind": "speed", "confidence": "low"}
    base, (first, *_) = result["baseline"], result["trials"]  # type: ignore[misc]
    assert (base["period_s"], base["time_ratio"], base["energy_ratio"]) == (None, 1.0, 1.0)  # type: ignore[index, call-overload]
    found = first["measurement"]  # type: ignore[index, call-overload]
    assert (found["period_s"], found["energy_per_iteration_j"], found["iterations"]) == (None, None, None)
    assert found["time_ratio"] == pytest.approx(1 + first["time_pct"] / 100)  # type: ignore[index, call-overload]
    assert found["period_rel_stderr"] >= found["proxy_rel_stderr"] > 0
    assert result["totals"]["iterations"] is None  # type: ignore[index, call-overload]
    assert result["chosen"]["measurement"]["time_ratio"] > 1  # type: ignore[index, call-overload]
    assert not re.search(r'"period_s": [\d"]', json.dumps(result))


def test_a_counted_run_has_neither_of_these_keys() -> None:
    assert not re.search("time_ratio|energy_ratio|proxy", json.dumps(to_json_dict(summarise(whole_log()))))


def test_page_and_notebook_say_low_confidence(tmp_path) -> None:  # type: ignore[no-untyped-def]
    summary = summarise(log())
    page = html.page(run_document(summary, log()), pictures(summary, log(), read_samples(tmp_path)))
    for shown in (page, notebook(run_document(summary, log()))):
        assert "low confidence" in shown
        assert not OF_AN_ITERATION.search(shown)
    assert "time per iteration over the baseline" in page
    assert "time per iteration, s" not in page


def test_the_exporter_serves_a_ratio_and_no_seconds() -> None:
    exporter = Exporter()
    for event in log():
        exporter.event(event)
    served = {sample.name: sample.value for family in exporter.collect() for sample in family.samples}
    assert 1.0 < served["autocap_proxy_time_ratio"] < 1.2
    assert not {"autocap_iteration_seconds", "autocap_iterations_total"} & served.keys()


def test_what_the_whole_run_saved_is_as_uncertain_as_its_iterations() -> None:
    versus = summarise(log()).versus_baseline
    kept: Measurement = next(event.measurement for event in log() if isinstance(event, Decided) and event.measurement)  # type: ignore[misc]
    assert versus.net_energy_stderr_j > 0.5 * abs(versus.net_energy_j) * (kept.proxy_rel_stderr or 0.0)
    assert (versus.time_stderr_pct or 0.0) >= 100 * (kept.proxy_rel_stderr or 0.0)
