"""A run that turned another knob than the power limit is told in that knob's words, wherever it is told."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from autocap.cli import main
from autocap.events import Decided, TrialStarted
from autocap.integrations.result import Result, load
from autocap.knobs import POWER_LIMIT, Knob
from autocap.reports.comparison import compare
from autocap.reports.comparison import document as of_two
from autocap.reports.figures.caps import caps, of_run
from autocap.reports.figures.model import Band, Line
from autocap.reports.live.terminal import PlainLines
from autocap.reports.live.view import View
from autocap.reports.rendering import present_run
from autocap.reports.run_list import remembered_job as of_one
from autocap.reports.run_list import remembered_jobs as memories
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from tests.doubles.knob_logs import CLOCK, FOUND, KEPT, MODE, SETTINGS, keys_in, record_turned, remembered, turned
from tests.doubles.logs import status_after, until
from tests.doubles.memories import NOW, entry
from tests.doubles.told import told

pytestmark = pytest.mark.parametrize("knob", [CLOCK, MODE], ids=lambda knob: knob.name)
WATTS = re.compile(r"\d W\b|cap W|kept W")
CAPS = re.compile(r"\bcaps?\b(?!-)")


def require_words(text: str, knob: Knob) -> None:
    """Its own, and none of a power limit's; names of pages stay as they are."""
    assert KEPT[knob.name] in text
    assert not WATTS.findall(text)
    assert not CAPS.findall(text.replace("no-cap-kept", ""))
    assert "no-setting-kept" not in text


def test_the_text_of_a_report(knob: Knob) -> None:
    report = present_run(Path("run"), turned(knob))
    text = "\n".join(lines(report.document))
    require_words(text, knob)
    assert text.startswith(f"{KEPT[knob.name]} instead of {FOUND[knob.name]}: 24 % less energy")
    title = {"clock": "clock MHz", "mode": "    mode"}[knob.name]
    assert f"\nMeasured settings\n{title}" in text


def test_of_a_run_that_kept_none_as_well(knob: Knob) -> None:
    log = turned(knob)
    place = next(place for place, event in enumerate(log) if isinstance(event, Decided))
    log[place] = Decided(t_s=160.0, setting=None, confirmed=False, reason="no better")
    text = "\n".join(lines(present_run(Path("run"), log).document))
    assert text.startswith("No setting was kept\n")
    assert (
        "no setting was kept, the setting found on arrival was put back: no better (`autocap help no-cap-kept`" in text
    )
    assert not WATTS.findall(text)


def test_the_page_of_a_report(knob: Knob, tmp_path: Path) -> None:
    log = turned(knob)
    page = present_run(record_turned(tmp_path / "run", log, knob), log).page
    shown = re.sub(r"<style>.*?</style>|<[^>]+>", "\n", page, flags=re.DOTALL)
    drawn = [line for line in shown.splitlines() if "drawn" not in line and "range W" not in line]
    require_words("\n".join(drawn), knob)


def test_the_result_has_labels_or_values_and_names_the_knob(knob: Knob) -> None:
    result = json.loads(json.dumps(present_run(Path("run"), turned(knob)).result))
    assert (result["knob"], result["unit"]) == (knob.name, knob.unit)
    assert not keys_in(result) & (SETTINGS | {"cap_original_w", "cap_final_w"})
    kept, found = {"clock": (1200.0, 1500.0), "mode": ("eager", "compiled")}[knob.name]
    assert result["chosen"]["setting"] == result["chosen"]["measurement"]["setting"] == [kept]
    gpu = result["device"]["gpus"][0]
    assert (gpu["original_setting"], gpu["final_setting"]) == (found, found)
    assert (gpu["cap_min_w"], gpu["cap_max_w"], gpu["cap_default_w"]) == (100.0, 260.0, 260.0)  # whatever is turned


def test_what_is_said_as_it_happens(knob: Knob, capsys: pytest.CaptureFixture[str]) -> None:
    plain = PlainLines(sys.stdout)
    for event in turned(knob):
        plain.event(event)
    said = capsys.readouterr().out
    require_words(said, knob)
    assert f"found on arrival {FOUND[knob.name]}" in said
    assert f"keeping {KEPT[knob.name]}, confirmed: " in said
    assert f"best at {KEPT[knob.name]} (eds)" in said


def test_the_live_view(knob: Knob) -> None:
    log = until(turned(knob), TrialStarted)
    shown = "\n".join(View(Console(width=120)).lines(status_after(log), 130.0, 120, 40))
    assert f"{knob.name} {KEPT[knob.name]}" in shown
    assert f"trying {KEPT[knob.name]}" in shown
    assert "best so far" in shown
    assert not WATTS.findall(shown)


def test_lists_of_runs(knob: Knob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_turned(tmp_path / "runs" / "other", turned(knob), knob)
    assert main(["report", str(tmp_path / "runs" / "other")]) == 0
    capsys.readouterr()
    assert main(["runs", str(tmp_path / "runs")]) == 0
    require_words(capsys.readouterr().out, knob)
    record_turned(tmp_path / "runs" / "power", told(), POWER_LIMIT)
    assert main(["runs", str(tmp_path / "runs")]) == 0
    both = capsys.readouterr().out
    assert KEPT[knob.name] in both
    assert "160 of 260 W" in both  # where the title can have no unit
    assert main(["runs", "--json", str(tmp_path / "runs")]) == 0
    listed = {Path(one["directory"]).name: one for one in json.loads(capsys.readouterr().out)}
    assert (listed["other"]["knob"], listed["other"]["cap_w"]) == (knob.name, None)
    assert listed["other"]["setting"] == KEPT[knob.name]
    assert listed["power"]["cap_w"] == [160.0]


def test_lists_of_what_is_remembered(knob: Knob) -> None:
    own = remembered(knob)
    for document in (memories([own], NOW), of_one(own, NOW)):
        text = "\n".join(lines(document))
        assert not WATTS.findall(text)
        assert KEPT[knob.name].split()[0] in text
    both = "\n".join(lines(memories([own, entry()], NOW)))
    assert KEPT[knob.name] in both
    assert "180 W" in both


def test_two_runs_side_by_side(knob: Knob) -> None:
    first, second = summarise(turned(knob)), summarise(told())
    text = "\n".join(lines(of_two(("a", "b"), first, second, compare(first, second))))
    assert KEPT[knob.name] in text
    assert "160 W" in text
    assert re.search(rf"knob +A +{knob.name}\n +B +power-limit", text)


def test_what_a_script_has_of_it(knob: Knob, tmp_path: Path) -> None:
    result = load(record_turned(tmp_path / "run", turned(knob), knob))
    assert str(result.chosen).startswith(f"{KEPT[knob.name]}, confirmed: ")
    require_words(str(result), knob)
    require_words(result._repr_html_(), knob)


def test_its_picture_has_names_on_the_axis_and_lines_only_where_there_is_an_order(knob: Knob) -> None:
    log = turned(knob)
    curve = of_run(summarise(log), log)
    assert curve is not None
    pictures = caps([replace(curve, predicted=curve.predicted or curve.measured)], "")
    for plot in (plot for picture in pictures for plot in picture.plots):
        assert plot.x.label == {"clock": "clock, MHz", "mode": "mode"}[knob.name]
        names = [name for _, name in plot.x.names]
        assert names == {"clock": ["600", "900", "1200", "1500"], "mode": list(MODE.labels)}[knob.name]
        joined = [mark for mark in plot.marks if isinstance(mark, Line | Band) and mark.style.width != 1.0]
        assert bool(joined) is knob.ordered
        assert [mark.name for mark in plot.key] == (
            ["measured", "predicted"] if knob.ordered else ["predicted", "measured"]
        )


def test_a_table_of_trials_has_its_settings_as_they_are_called(knob: Knob) -> None:
    pytest.importorskip("pandas")
    log = turned(knob)
    table = Result.of(summarise(log), log).trials_dataframe()
    assert "cap_w" not in table
    assert set(table["setting"]) <= {knob.shown(setting) for setting in knob.settings}
