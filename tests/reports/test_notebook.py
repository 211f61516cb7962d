"""What a notebook shows of a result: by itself, escaped, and no more than was measured."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from autocap.events import Decided, Event, MetricInfo, RunEnded, Warned
from autocap.metrics import Rates
from autocap.reports.html import notebook as html
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording.headline import headline
from tests.doubles.told import told

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
