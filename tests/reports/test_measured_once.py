"""A run that knows no error of what it has measured: wherever it is shown, none is, and nothing takes it for exact."""

import functools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from autocap.events import Decided, Event, Predicted, TrialEnded
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
from autocap.session.earlier import curve_of
from tests.doubles.logs import status_after, until, whole_log
from tests.doubles.memories import entry
from tests.sweep.test_single_runs import leaves

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
def log() -> tuple[Event, ...]:
    return tuple(once(event) for event in whole_log() if not isinstance(event, Predicted))


def shown(folder: Path) -> Iterator[str]:
    """The run as text, page, notebook cell, comparison and log lines."""
    summary, wording = summarise(log()), Wording()
    document = run_document(summary, log())
    yield "\n".join(lines(document, 200))
    yield html.page(document, pictures(summary, log(), read_samples(folder)))
    yield notebook(document)
    found = comparison.compare(summary, summary)
    yield "\n".join(lines(comparison.document(("a", "b"), summary, summary, found), 200))
    for event in log():
        if not isinstance(event, Decided):  # its reason is a sentence of the time
            yield wording.line(event) or ""
    view = View(Console(width=160, force_terminal=False))
    for events in (log(), log()[:-3], until(list(log()), TrialEnded)):
        yield "\n".join(view.lines(status_after(list(events)), 125.0, 160, 30))
    row = past_run("runs/one", read_result(present_run(folder, list(log())).result), FINISHED, None)
    yield "\n".join(lines(run_list.document([row], Path("runs")), 200))
    curve = curve_of(log())
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
    for events, known in ((whole_log(), True), (log(), False)):
        exporter = Exporter()
        for event in events:
            exporter.event(event)
        samples = [sample for family in exporter.collect() for sample in family.samples]
        assert any("stderr" in one.name for one in samples) == known
        assert all(math.isfinite(one.value) for one in samples)


def test_no_json_has_one() -> None:
    result = json.loads(json.dumps(to_json_dict(summarise(log()))))
    errors = [(name, value) for name, value in leaves(result) if re.search(r"_stderr|_sd(_|$)", name)]
    assert len(errors) > 20
    assert {value for _, value in errors} <= {None, 0.0}
