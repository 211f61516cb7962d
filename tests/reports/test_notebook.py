"""What a notebook shows of a result: by itself, escaped, and no more than was measured."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from autocap.events import Decided, Event, MetricInfo, RunEnded, Warned
from autocap.metrics import Rates
from autocap.reports.summary.record import Summary
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
        self.rows: list[list[str]] = []
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
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data


def shown(summary: Summary) -> Shown:
    return Shown(summary._repr_html_())


def decided(events: list[Event], decision: Decided) -> list[Event]:
    return [decision if isinstance(event, Decided) else event for event in events]


def test_it_is_the_headline_the_metric_in_words_and_the_caps_with_what_became_of_them() -> None:
    started, *rest = told(MetricInfo(name="eds", k=4.0))
    summary = summarise([replace(started, rates=Rates(energy_price=0.3, currency="€")), *rest])
    found = shown(summary)
    assert found.text.startswith(headline(summary))
    assert "saved 67 Wh and 0.020 € in this run, search included (emulated)" in found.text
    assert found.text.count("eds k=4 is 75 % energy + 25 % time, each as a share of the baseline's") == 1
    assert "EMULATED power: modelled, not measured" in found.text
    titles, *rows = found.rows
    assert titles == ["cap W", "energy %", "time %", "eds", ""]
    assert [(row[0], row[-1].partition(":")[0]) for row in rows] == [
        ("260", "baseline"), ("160", "complete"), ("180", "complete"), ("120", "pruned"), ("180", "complete"),
        ("200", "failed"), ("160", "complete"), ("160", "kept, confirmed"),
    ]  # fmt: skip
    assert rows[1][1:3] == ["−24.0", "+8.0"]
    assert rows[4][1:3] == ["−12.7", "+7.7"], "against the baseline of its time"
    assert rows[5][1:4] == ["–", "–", "–"]
    assert rows[-1][1:3] == ["−23.9", "+7.7"]
    assert "expected" not in found.text


def test_where_no_cap_was_kept_it_says_why_and_claims_nothing() -> None:
    nothing = Decided(t_s=160.0, cap_w=None, confirmed=False, reason="not better beyond its error: eds 0.998")
    found = shown(summarise(decided(told(), nothing)))
    assert found.text.startswith("No cap was kepteds k=2 is 50 % energy")
    assert "Why: not better beyond its error: eds 0.998" in found.text
    assert not re.search("saved|kept, confirmed|less energy", found.text)


def test_a_block_that_was_not_tuned_says_why_without_a_table() -> None:
    summary = summarise([told()[0], RunEnded(t_s=1.0, ended_because="no device to tune: no driver")])
    found = shown(summary)
    assert (found.text, found.rows) == ("Not tunedEnded: no device to tune: no driver", [])


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
    nothing = Decided(t_s=160.0, cap_w=None, confirmed=False, reason=HOSTILE)
    for some in (trials, decided(trials, nothing), [started, RunEnded(t_s=1.0, ended_because=HOSTILE)]):
        found = shown(summarise(some))
        assert found.tags <= {
            *("div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li")
        }
        assert found.attributes <= {"class", "style"}
        assert "<script>alert(1)</script>" in found.text
        assert not re.search("[\x1b\u202e\udcff]", found.text)


def test_it_fits_light_and_dark_and_loads_nothing() -> None:
    found = shown(summarise(told()))
    assert not any(re.search("color|background|url|font-size", style) for style in found.styles)
