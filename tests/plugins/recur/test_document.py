"""What is shown of a recurring job."""

import re
from dataclasses import replace

import numpy as np
import pytest

from autocap.events import MetricInfo
from autocap.plugins.recur.document import present
from autocap.plugins.recur.policy import Outcome, Rules
from autocap.plugins.recur.record import JobSettings, KeptRecurrence, Spent
from autocap.reports import text
from autocap.reports.figures.model import Marker, Points

SETTINGS = JobSettings(
    target="acc >= 0.9",
    rules=Rules(batch_sizes=(16, 32), default=32),
    metric=MetricInfo(name="energy"),
    command=("train", "<{batch_size}>"),
)
REACHED = KeptRecurrence(
    number=0,
    batch_size=32,
    outcome=Outcome.REACHED,
    started_at="2026-01-01T00:00:00+00:00",
    ended_at="2026-01-01T01:00:00+00:00",
    spent=Spent(energy_j=50_000.0, time_s=3600.0, devices=1, most_w=260.0),
    cap_w=180.0,
    gpus=("Card",),
)
STOPPED = replace(
    REACHED,
    number=1,
    batch_size=16,
    outcome=Outcome.STOPPED,
    spent=Spent(energy_j=100_500.0, time_s=7000.0, devices=1, most_w=260.0),
    cap_w=None,
    reason="it has cost too much",
)
RUNNING = KeptRecurrence(number=2, batch_size=32, outcome=Outcome.RUNNING, started_at="2026-01-02T00:00:00+00:00")
KEPT = [REACHED, STOPPED, RUNNING]


def test_the_text_says_what_is_believed_and_what_each_recurrence_came_to() -> None:
    lines = text.lines(present("nightly", SETTINGS, KEPT).document)
    assert lines[0] == "nightly: batch size 32 costs 50 kJ to acc >= 0.9, and no other has reached it"
    assert not re.search(r"± ?[\d.]", "\n".join(lines)), "a single run says nothing of how runs scatter"
    rows = [line.split() for line in lines]
    assert ["16", "1", "0", "a", "run", "cost", "too", "much", "and", "was", "stopped"] in rows
    assert rows[-3][1:] == ["2026-01-01T00:00:00+00:00", "32", "reached", "50", "3600", "180"]
    assert rows[-2][2:] == ["16", "stopped", "100.5", "7000", "it", "has", "cost", "too", "much"]
    assert rows[-1] == ["2", "2026-01-02T00:00:00+00:00", "32", "running"]


def costing(number: int, size: int, joules: float) -> KeptRecurrence:
    return replace(REACHED, number=number, batch_size=size, spent=replace(REACHED.spent, energy_j=joules))  # type: ignore[type-var]


def test_it_says_what_costs_least_only_beyond_the_errors_and_what_choosing_it_saved() -> None:
    clear = [costing(0, 32, 50_000.0), *(costing(number, 16, 30_000.0) for number in range(1, 9))]
    lines = text.lines(present("nightly", SETTINGS, clear).document)
    assert lines[0] == "nightly: batch size 16 costs least, 30 ± 0.64 kJ to acc >= 0.9"
    assert lines[1].startswith("saved against the default 32: 40.0 ± ")
    assert " % of a run's cost; 160 ± " in lines[1]  # nine at 50 kJ, less 290 kJ that were spent
    close = [costing(0, 32, 31_000.0), *(costing(number, 16, 30_000.0) for number in range(1, 4))]
    headline = text.lines(present("nightly", SETTINGS, close).document)[0]
    assert headline.startswith("nightly: batch size 16 costs least so far, 30 ± ")
    assert "; 32 costs 3.3 ± " in headline
    assert headline.endswith(" % more, which may be chance")
    result = present("nightly", SETTINGS, clear).result
    assert isinstance(result["saved"], dict)
    assert result["saved"]["a_run"] == pytest.approx(0.4)


def test_the_result_holds_costs_in_the_metrics_own_unit() -> None:
    result = present("nightly", replace(SETTINGS, metric=MetricInfo(name="edp")), KEPT).result
    assert (result["cheapest"], result["unit"]) == (32, "J·s")
    kept = result["recurrences"]
    assert isinstance(kept, list)
    assert [one["cost"] for one in kept if isinstance(one, dict)] == [50_000.0 * 3600, 100_500.0 * 7000, None]


def test_the_picture_shows_every_cost_and_sets_those_in_vain_apart() -> None:
    (picture,) = present("nightly", SETTINGS, KEPT).pictures()
    over_time, means = picture.plots
    points = [mark for mark in over_time.marks if isinstance(mark, Points)]
    assert [(mark.name, mark.style.marker, list(mark.x), list(mark.y)) for mark in points] == [
        ("16, in vain", Marker.RING, [1.0], [100.5]),
        ("32", Marker.DISC, [0.0], [50.0]),
    ]
    assert [list(mark.y) for mark in means.marks] == [[50.0]]
    assert all(over_time.y.low <= y <= over_time.y.high for mark in points for y in np.asarray(mark.y))


def test_emulated_power_is_marked_wherever_it_is_shown() -> None:
    shown = present("nightly", SETTINGS, [replace(REACHED, gpus=("Card (emulated)",))])
    (picture,) = shown.pictures()
    assert "EMULATED" in picture.note
    assert "EMULATED" in shown.page
    assert any("EMULATED" in line for line in text.lines(shown.document))


def test_a_job_that_never_reached_its_target_has_a_page_too() -> None:
    shown = present("nightly", SETTINGS, [RUNNING])
    assert text.lines(shown.document)[0] == "nightly: no batch size has reached acc >= 0.9 yet"
    assert "&lt;{batch_size}&gt;" in shown.page
