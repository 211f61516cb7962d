"""Pictures, tables and sentences of a run that turned another knob than the power limit."""

import re
from dataclasses import replace

import pytest

from autocap.events import Decided, DeviceFound, Event, LimitRestored, TrialEnded, TrialStarted
from autocap.integrations.result import Result
from autocap.knobs import Knob
from autocap.records import Measurement
from autocap.reports.figures import pictures, svg
from autocap.reports.rendering import to_json_dict
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.text import lines
from autocap.reports.wording.events import Wording
from autocap.runlog.columns import parse
from tests.doubles.told import told

CLOCK = Knob.stepped("clock", 600, 1500, 100, unit="MHz")
MODE = Knob(name="mode", values=tuple(range(10)), labels=tuple("abcdefghij"), faster=None)


def turned(knob: Knob) -> list[Event]:
    """A whole run on caps of 120 to 260 W, as if they had been places 1 to 10."""

    def place(watts: float | None) -> float | None:
        return None if watts is None else round((watts - 100) / 16)

    def moved(one: Event) -> Event:
        if isinstance(one, DeviceFound):
            return replace(one, knob=knob, original=tuple(map(place, one.original)))
        if isinstance(one, LimitRestored):
            return replace(one, final=place(one.final))
        found = {}
        for name in one.__dataclass_fields__:
            value = getattr(one, name)
            if isinstance(value, Measurement):
                found[name] = replace(value, setting=tuple(map(place, value.setting)))
            elif name == "setting":
                found[name] = tuple(map(place, value)) if isinstance(value, tuple) else place(value)
            elif name == "trial":
                shown = value.measurement and replace(
                    value.measurement, setting=tuple(map(place, value.measurement.setting))
                )
                found[name] = replace(value, setting=place(value.setting), measurement=shown)
        return replace(one, **found)

    return [moved(one) for one in told(emulated=False)]


@pytest.mark.parametrize("knob", [CLOCK, MODE], ids=["clock", "mode"])
def test_nothing_is_said_of_its_settings_in_watts(knob: Knob) -> None:
    events = turned(knob)
    summary, words = summarise(events), Wording()
    (kept,) = {one.setting for one in events if isinstance(one, Decided) and one.setting is not None}
    said = [line for line in map(words.line, events) if line]
    report = lines(run_document(summary, events), 200, "utf-8")
    assert f"keeping {knob.text(kept)}, confirmed" in "\n".join(said)
    assert f"kept {knob.text(kept)}" in "\n".join(report)
    places = {f"{one.setting:g}" for one in events if isinstance(one, TrialStarted)}
    for line in (*said, *report):
        assert not any(re.search(rf"(?<![\d.]){place} W\b", line) for place in places), line
        assert not re.search(r"\bcaps?\b", line) or "reason" in line, line


@pytest.mark.parametrize("knob", [CLOCK, MODE], ids=["clock", "mode"])
def test_its_settings_stand_on_the_axis_by_name(knob: Knob) -> None:
    events = turned(knob)
    drawn = {one.name: svg.file(one).decode() for one in pictures(summarise(events), events, parse([]))}
    tried = {knob.bare(one.trial.setting) for one in events if isinstance(one, TrialEnded) and one.trial.measurement}
    shown = set(re.findall(r"<text[^>]*>([^<]*)</text>", drawn["caps"]))
    assert len(tried & shown) > len(tried) / 2  # as many as there is room for
    assert (", ".join(filter(None, (knob.name, knob.unit)))) in shown
    assert "cap, W" not in shown
    assert tried & set(re.findall(r"<text[^>]*>([^<]*)</text>", drawn["tradeoff"]))


@pytest.mark.parametrize(("knob", "found"), [(CLOCK, 1500.0), (MODE, "j")], ids=["clock", "mode"])
def test_its_result_has_no_key_of_watts_for_a_setting(knob: Knob, found: object) -> None:
    result = to_json_dict(summarise(turned(knob)))
    assert (result["knob"], result["unit"]) == (knob.name, knob.unit)
    assert result["device"]["gpus"][0]["original_setting"] == found
    assert '"cap_w"' not in str(result).replace("'", '"')
    assert all(isinstance(one, type(found)) for one in result["chosen"]["setting"])


def test_a_table_of_trials_has_its_settings_as_they_are_called() -> None:
    pytest.importorskip("pandas")
    events = turned(MODE)
    table = Result.of(summarise(events), events).trials_dataframe()
    assert "cap_w" not in table
    assert {type(one) for one in table["setting"]} == {str}
