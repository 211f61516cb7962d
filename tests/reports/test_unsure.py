"""Runs that know less: where the SM clock stands for the iterations there are ratios of low confidence wherever the run
is shown, and no seconds; where no error is known none is shown, and nothing takes a number for exact."""

import functools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events import Decided, Event, Predicted, TrialEnded
from autocap.metrics import Metric
from autocap.progress import SpeedProgress
from autocap.records import Measurement, Trial
from autocap.reports import comparison, html, run_list
from autocap.reports.figures import pictures
from autocap.reports.html import notebook
from autocap.reports.live.view import View
from autocap.reports.prometheus.exporter import Exporter
from autocap.reports.rendering import present_run, to_json_dict
from autocap.reports.run_document import run_document
from autocap.reports.run_list import FINISHED, past_run, read_result
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from autocap.reports.wording.events import Wording
from autocap.runlog.columns import read_samples
from autocap.session.warm_start import curve_of
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import tune
from tests.doubles.logs import in_full, status_after, until, whole_log
from tests.doubles.memories import entry
from tests.sweep.test_sweep_page import leaves

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
OF_AN_ITERATION = re.compile(r"\d (?:s|J)/iter|s/iter|J/iter|iterations in|_iteration_(?:s|j|seconds|stderr)")


@functools.cache
def log() -> tuple[Event, ...]:
    """A whole run by the clock."""
    config = TuneConfig(metric=Metric(name="eds", k=2.0), caps_w=(150.0, 200.0))
    job = SimulatedJob(profile=RESNET50, iterations=600)
    outcome = tune(job, config, "linear", progress=SpeedProgress())
    return tuple(in_full(outcome))


@pytest.mark.slow
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


@pytest.mark.slow
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


NOW = datetime(2026, 2, 1, tzinfo=UTC)
ERRORS = {"period_rel_stderr": math.inf, "energy_rel_stderr": math.inf, "power_rel_stderr": math.inf}


def once(value: Any) -> Any:
    """The same without a known error anywhere."""
    if isinstance(value, tuple):
        return tuple(map(once, value))
    if not is_dataclass(value):
        return value
    found = replace(value, **{field.name: once(getattr(value, field.name)) for field in fields(value)})  # type: ignore[type-var]
    if isinstance(found, Measurement):
        return replace(found, **ERRORS)
    return replace(found, cost_stderr=math.inf) if isinstance(found, Trial) and found.cost is not None else found


@functools.cache
def log_once() -> tuple[Event, ...]:
    return tuple(once(event) for event in whole_log() if not isinstance(event, Predicted))


def shown(folder: Path) -> Iterator[str]:
    """The run as text, page, notebook cell, comparison and log lines."""
    summary, wording = summarise(log_once()), Wording()
    document = run_document(summary, log_once())
    yield "\n".join(lines(document, 200))
    yield html.page(document, pictures(summary, log_once(), read_samples(folder)))
    yield notebook(document)
    found = comparison.compare(summary, summary)
    yield "\n".join(lines(comparison.document(("a", "b"), summary, summary, found), 200))
    for event in log_once():
        if not isinstance(event, Decided):  # its reason is a sentence of the time
            yield wording.line(event) or ""
    view = View(Console(width=160, force_terminal=False))
    for events in (log_once(), log_once()[:-3], until(list(log_once()), TrialEnded)):
        yield "\n".join(view.lines(status_after(list(events)), 125.0, 160, 30))
    row = past_run("runs/one", read_result(present_run(folder, list(log_once())).result), FINISHED, None)
    yield "\n".join(lines(run_list.document([row], Path("runs")), 200))
    curve = curve_of(log_once())
    assert curve.points
    remembered = entry("00", curve)
    for memory in (run_list.remembered_jobs([remembered], NOW), run_list.remembered_job(remembered, NOW)):
        yield "\n".join(lines(memory, 200))


def test_no_table_page_line_or_picture_shows_an_error(tmp_path: Path) -> None:
    for text in shown(tmp_path):
        text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
        assert not re.search(r"± ?[\d.]", text)
        assert not re.search(r"\b(inf|nan)\b", text)


def test_no_scrape_has_one() -> None:
    for events, known in ((whole_log(), True), (log_once(), False)):
        exporter = Exporter()
        for event in events:
            exporter.event(event)
        samples = [sample for family in exporter.collect() for sample in family.samples]
        assert any("stderr" in one.name for one in samples) == known
        assert all(math.isfinite(one.value) for one in samples)


def test_no_json_has_one() -> None:
    result = json.loads(json.dumps(to_json_dict(summarise(log_once()))))
    errors = [(name, value) for name, value in leaves(result) if re.search(r"_stderr|_sd(_|$)", name)]
    assert len(errors) > 20
    assert {value for _, value in errors} <= {None, 0.0}
