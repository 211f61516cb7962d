"""The page of a run: whole by itself, whatever the run was and whenever it was killed; and what a notebook shows."""

import io
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from autocap.cli import main
from autocap.config import RunConfig, TuneConfig
from autocap.errors import RunDirectoryError
from autocap.events import Decided, Event, MetricInfo, RunEnded, RunStarted, Warned
from autocap.metrics import Metric, Rates
from autocap.reports import rendering
from autocap.reports.html import notebook as html
from autocap.reports.html import stylesheet
from autocap.reports.live.terminal import PlainLines
from autocap.reports.rendering import present_run
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording.headline import headline
from autocap.runlog.directory import EVENTS, SAMPLES, RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.output import hand_out
from autocap.session.recorder import Recorder
from tests.doubles.recorded import record
from tests.doubles.told import told


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "run")


def page_of(run: Path) -> str:
    return present_run(run, read_events(run)).page


class Strict(HTMLParser):
    """Checks that what is opened is closed, and collects what a browser would load."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.loads += [values[name] or "" for name in ("src", "href", "srcset", "data") if name in values]
        assert tag not in ("script", "iframe", "object", "img")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def checked(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert "nan" not in re.sub(r"<[^>]*>", "", page[page.index("<body>") :]).split()
    return parser


@pytest.mark.slow
def test_the_page_needs_nothing_but_itself_and_takes_nothing_of_the_run_for_markup(run: Path) -> None:
    page = page_of(run)
    assert checked(page).loads == ["data:,"]
    assert "url(" not in page.replace("url(#", "")
    assert "@import" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\udcff" in page


def test_the_page_says_what_was_kept_what_it_saves_and_what_the_search_took_with_errors(run: Path) -> None:
    text = re.sub(r"<[^>]*>", " ", page_of(run)).replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"\d+ W instead of 260 W: \d+ % less energy, \d+ % more time; saved [\d.]+ Wh in this run", text)
    assert re.search(r"energy per iteration \(emulated\)\s+−\d+\.\d ± \d\.\d %", text)
    assert re.search(r"time per iteration\s+\+\d+\.\d ± \d\.\d %", text)
    assert re.search(r"whole run, net of the search \(emulated\)\s+−\d+ J", text)
    assert re.search(r"the search took\s+\d+ s", text)
    assert text.count("EMULATED power: modelled, not measured") > 4


def test_warnings_are_shown(run: Path, tmp_path: Path) -> None:
    events = [*read_events(run), Warned(t_s=1.0, text="too hot & <b>loud</b>")]
    assert "<li>too hot &amp; &lt;b&gt;loud&lt;/b&gt;</li>" in present_run(run, events).page


@pytest.mark.slow
def test_a_run_killed_at_any_byte_of_its_files_has_a_page(run: Path, tmp_path: Path) -> None:
    events, samples = (run / EVENTS).read_bytes(), (run / SAMPLES).read_bytes()
    first = events.index(b"\n") + 1
    dice = random.Random(0)
    for _ in range(12):
        (tmp_path / EVENTS).write_bytes(events[: dice.randrange(first, len(events))])
        (tmp_path / SAMPLES).write_bytes(samples[: dice.randrange(len(samples))])
        checked(page_of(tmp_path))


@pytest.mark.slow
def test_an_observed_run_and_one_without_a_device_have_pages(run: Path, tmp_path: Path) -> None:
    observed = page_of(record(tmp_path / "observed", observe=True))
    assert "<h1>No cap was kept</h1>" in observed
    assert "Observed only: a search would have begun with" in observed
    assert "baseline time per iteration" in observed
    start = next(event for event in read_events(run) if isinstance(event, RunStarted))
    untuned = present_run(run, [start, RunEnded(t_s=1.0, ended_because="no device to tune: no driver")]).page
    checked(untuned)
    assert "<h1>Not tuned</h1>" in untuned
    assert "Ended: no device to tune: no driver." in untuned


def test_a_page_that_cannot_be_written_says_where(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match=r"report\.html cannot be written: .*; check its permissions"):
        rendering.write_page(tmp_path / "file", present_run(run, read_events(run)))


def test_a_fault_in_making_the_page_is_a_sentence_that_names_its_traceback(run: Path, tmp_path: Path) -> None:
    start = next(event for event in read_events(run) if isinstance(event, RunStarted))
    broken = replace(start, started_at=None)  # type: ignore[arg-type]
    stream = io.StringIO()
    with RunDirectory.create(tmp_path, False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        recorder, reporter = Recorder(directory), PlainLines(stream)
        config = RunConfig(command=("true",), tune=TuneConfig(metric=Metric(name="energy")))
        hand_out(directory, recorder, present_run(run, [start]), [], reporter, config)
        assert (tmp_path / "report.html").exists()
        hand_out(directory, recorder, present_run(run, [broken]), [], reporter, config)
    where, said, _ = stream.getvalue().splitlines()
    assert where == f"autocap: run directory: {tmp_path}"
    assert said.startswith("autocap: warning: report.html could not be made: internal fault: ")
    assert said.endswith(f"; its traceback is in {tmp_path / 'internal-fault.txt'}")
    assert "Traceback (most recent call last):" in (tmp_path / "internal-fault.txt").read_text()


@pytest.mark.slow
def test_the_command_writes_the_page_says_where_and_leaves_stdout_to_what_was_asked_for(run, capsys) -> None:
    assert main(["report", str(run), "--html"]) == 0
    assert capsys.readouterr() == ("", f"autocap: wrote {run / 'report.html'}\n")
    checked((run / "report.html").read_text())
    assert main(["report", str(run), "--html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1


@pytest.mark.slow
def test_rates_of_the_report_stand_in_for_those_of_the_run_on_every_form_of_it(run, tmp_path, capsys) -> None:
    started, *rest = read_events(run)
    assert isinstance(started, RunStarted)
    rates = Rates(energy_price=0.3, currency="€", carbon_g_per_kwh=380.0)
    with RunDirectory.create(tmp_path / "rated", False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        for event in (replace(started, rates=rates), *rest):
            directory.append(event)

    def report(*words: str) -> str:
        assert main(["report", str(tmp_path / "rated"), *words]) == 0
        return capsys.readouterr().out

    told = r"saved [\d.]+ Wh, [\d.]+ € and [\d.]+ g CO₂ in this run"
    assert re.search(told, report())
    rated = json.loads(report("--json"))["rates"]
    assert rated == {"energy_price": 0.3, "currency": "€", "carbon_g_per_kwh": 380.0}
    report("--html", "--carbon", "900", "--currency", "kr")
    page = (tmp_path / "rated" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"<h1>.* Wh, [\d.]+ kr and [\d.]+ g CO₂ in this run", page)
    assert "rates" not in present_run(run, [started, *rest]).result
    assert main(["report", str(run), str(run), "--carbon", "380"]) == 2
    assert "--carbon is about one run, and these are two" in capsys.readouterr().err
    assert main(["report", str(run), "--currency", "€"]) == 2
    assert "--currency € is of the energy price; add --energy-price, or drop it" in capsys.readouterr().err


def test_what_was_not_asked_for_is_folded_and_every_table_can_be_reached_and_has_a_name(run: Path) -> None:
    page = page_of(run)
    folded = re.findall(r"<details><summary><h2[^>]*>([^<]+)", page)
    assert [title.partition(" (")[0].partition(":")[0] for title in folded] == [
        *("The search alone", "The metrics that were not asked for", "Best cap by metric", "Pareto front"),
        "Power limits",
    ]
    named = re.findall(r'<div class="scroll" tabindex="0" role="region" aria-labelledby="([^"]+)">', page)
    assert len(named) == page.count("<table>")
    assert set(named) <= set(checked(page).ids)
    headings = re.findall(r'<h2 id="table-\d+">([^<]+)</h2>(?:</summary>)?<p class="hint"', page)
    hinted = {title.partition(" (")[0].partition(":")[0] for title in headings}
    assert {"Measured caps", "Power limits"} <= hinted <= {"Measured caps", "Power limits", "Pareto front"}
    assert page.count('<th scope="row"') == page.count("<tr") - page.count("<thead>")
    columns = re.findall(r'<th scope="col">([^<]*)</th>', page)
    assert columns[:7] == ["cap W", "eds", "energy %", "time %", "W", "s/iter", "J/iter"], "what decides comes first"


def luminance(colour: str) -> float:
    """Relative luminance of `#rgb` or `#rrggbb`, as WCAG 2 defines it."""
    digits = colour.removeprefix("#")
    pairs = [2 * digit for digit in digits] if len(digits) == 3 else [digits[at : at + 2] for at in (0, 2, 4)]
    shares = [int(pair, 16) / 255 for pair in pairs]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("dark", [False, True])
def test_every_colour_of_text_stands_out_enough_from_the_page(dark: bool) -> None:
    light, _, after = stylesheet().partition("@media screen and (prefers-color-scheme:dark)")
    colours = dict(re.findall(r"--(\w+):\s*(#\w+)", after if dark else light))
    page = luminance(colours["page"])
    for name in ("ink", "muted", "label"):
        brighter, darker = sorted((luminance(colours[name]), page), reverse=True)
        assert (brighter + 0.05) / (darker + 0.05) >= 4.5, name


@pytest.mark.slow
def test_eds_is_explained_before_any_value_of_it(run: Path) -> None:
    text = re.sub(r"<[^>]*>", " ", page_of(run)[page_of(run).index("<h1>") :]).replace("\N{NO-BREAK SPACE}", " ")
    assert text.index("eds k=2 (50 % energy + 50 % time") < text.index("eds 0.")
    assert "expected" not in text[: text.index("The job")]


HOSTILE = "</table><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[2J\u202e\udcff"


class Shown(HTMLParser):
    """Elements, attributes and text of a fragment; every element is closed."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(fragment)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles |= {value or "" for name, value in attrs if name == "style"}
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open[-1:] in (["td"], ["th"]):
            self.tables[-1][-1][-1] += data


def shown(events: Sequence[Event]) -> Shown:
    return Shown(html(run_document(summarise(events), events)))


def decided(events: list[Event], decision: Decided) -> list[Event]:
    return [decision if isinstance(event, Decided) else event for event in events]


def test_it_is_the_headline_the_metric_in_words_and_the_caps_with_what_became_of_them() -> None:
    started, *rest = told(MetricInfo(name="eds", k=4.0))
    events = [replace(started, rates=Rates(energy_price=0.3, currency="€")), *rest]
    found = shown(events)
    assert found.text.startswith(headline(summarise(events)))
    assert "saved 67 Wh and 0.020 € in this run, search included (emulated)" in found.text
    assert found.text.count("75 % energy + 25 % time, each as a share of the baseline's") == 1
    assert "EMULATED power: modelled, not measured" in found.text
    trials, cost = found.tables
    assert [trials[0], cost[0]] == [list(table.titles) for table in run_document(summarise(events), events).tables[:2]]
    assert [trials[1][-1], trials[-1][-1]] == ["baseline", "kept, confirmed"]


def test_where_no_cap_was_kept_it_says_why_and_claims_nothing() -> None:
    nothing = Decided(t_s=160.0, setting=None, confirmed=False, reason="not better beyond its error: eds 0.998")
    found = shown(decided(told(), nothing))
    assert found.text.startswith("No cap was kept")
    assert "no cap was kept, the limit found on arrival was put back: not better beyond its error: eds" in found.text
    assert not re.search("saved|kept, confirmed|less energy", found.text)


def test_a_block_that_was_not_tuned_says_why_without_a_table() -> None:
    found = shown([told()[0], RunEnded(t_s=1.0, ended_because="no device to tune: no driver")])
    assert found.text.startswith("Not tuned")
    assert found.text.count("no device to tune: no driver") == 1
    assert found.tables == []


@pytest.mark.parametrize("metric", ["eds", "energy"])
def test_nothing_of_a_run_is_taken_for_markup(metric: str) -> None:
    k = 2.0 if metric == "eds" else None
    events = told(MetricInfo(name=metric, k=k))
    started = replace(events[0], command=(HOSTILE,), rates=Rates(energy_price=0.3, currency=HOSTILE))
    hostile: list[Event] = [started, *events[1:], Warned(t_s=1.0, text=HOSTILE)]
    trials = [
        replace(event, trial=replace(event.trial, reason=HOSTILE)) if hasattr(event, "trial") else event
        for event in hostile
    ]
    nothing = Decided(t_s=160.0, setting=None, confirmed=False, reason=HOSTILE)
    for some in (trials, decided(trials, nothing), [started, RunEnded(t_s=1.0, ended_because=HOSTILE)]):
        found = shown(some)
        assert found.tags <= {
            *("div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li")
        }
        assert found.attributes <= {"class", "style"}
        assert "<script>alert(1)</script>" in found.text
        assert not re.search("[\x1b\u202e\udcff]", found.text)


def test_it_fits_light_and_dark_and_loads_nothing() -> None:
    found = shown(told())
    assert not any(re.search("color|background|url|font-size", style) for style in found.styles)
