"""What a run writes that turned another knob than the power limit, and what is read of it."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.config.option import TakenSetting
from autocap.events import KINDS, DeviceFound, Event, PluginEvent, SettingsTaken, Tally
from autocap.knobs import POWER_LIMIT, Knob
from autocap.runlog.columns import read_samples
from autocap.runlog.directory import SAMPLES
from autocap.runlog.event_log import EVENTS, EventLines, EventTail, line_of, load_plugin_events, read_events
from autocap.wire.codec import encode
from tests.doubles import arbitrary
from tests.doubles.knob_logs import CLOCK, MODE, SETTINGS, as_of_knob, keys_in, record_turned, turned
from tests.doubles.told import told

load_plugin_events()
SLOWER = Knob(name="level", values=(0.0, 1.0, 2.5), labels=("fast", "middling", "slow"), faster="down")
# A sweep turns the power limit.
OF_A_RUN = [kind for name, kind in KINDS.items() if kind is not DeviceFound and not name.startswith("sweep")]
knobs = pytest.mark.parametrize("knob", [CLOCK, MODE], ids=lambda knob: knob.name)


def found_in(lines: list[bytes]) -> tuple[list[Event], list[str]]:
    """The events of a log, and what is said of it."""
    said: list[str] = []
    log = EventLines(Path("log"), said.append)
    events = log.take(b"".join(lines))
    log.warn()
    return events, said


def told_of(log: Sequence[Event]) -> list[Event]:
    """Without tallies, of which the last in a row is read."""
    return [event for event in log if not isinstance(event, Tally)]


def device_found(knob: Knob) -> DeviceFound:
    found = next(event for event in told() if isinstance(event, DeviceFound))
    return replace(found, knob=knob, original=(knob.settings[-1],) if knob.settings else found.original)


@knobs
def test_a_run_of_another_knob_reads_back_as_it_was_and_never_speaks_of_watts(knob: Knob, tmp_path: Path) -> None:
    log = turned(knob)
    record_turned(tmp_path / "run", log, knob)
    assert told_of(read_events(tmp_path / "run")) == told_of(log)
    entries = [json.loads(line) for line in (tmp_path / "run" / EVENTS).read_text().splitlines()]
    assert not keys_in(entries) & SETTINGS
    by_name = {entry["event"]: entry for entry in entries}
    shown = {"clock": (1200.0, [600.0, 900.0], [1500.0], 1500.0), "mode": ("eager", ["fused", "graphs"], ["compiled"])}
    kept, tried, original = shown[knob.name][:3]
    assert by_name["decided"]["setting"] == kept
    assert by_name["decided"]["measurement"]["setting"] == [kept]
    assert by_name["would_try"]["settings"] == tried
    assert by_name["device_found"]["original_setting"] == original
    assert by_name["limit_restored"]["final_setting"] == original[0]
    assert by_name["device_found"]["knob"]["name"] == knob.name
    assert by_name["device_found"]["gpus"][0]["cap_range"]["max_w"] == 260.0  # of the device, whatever is turned


@knobs
def test_a_log_that_is_followed_line_by_line_is_read_in_the_same_way(knob: Knob, tmp_path: Path) -> None:
    log = turned(knob)
    record_turned(tmp_path / "run", log, knob)
    lines = (tmp_path / "run" / EVENTS).read_bytes().splitlines(keepends=True)
    (tmp_path / "seen").mkdir()
    found: list[Event] = []
    with EventTail(tmp_path / "seen") as tail, (tmp_path / "seen" / EVENTS).open("ab", buffering=0) as file:
        for line in lines:
            file.write(line[:7])
            found += tail.read()
            file.write(line[7:])
            found += tail.read()
    assert told_of(found) == told_of(log)


@pytest.mark.parametrize("kind", OF_A_RUN, ids=lambda kind: kind.logged_as)
@settings(max_examples=5)
@given(knob=st.sampled_from([CLOCK, MODE, SLOWER]), data=st.data())
def test_every_event_of_such_a_run_reads_back_as_it_was_written(
    kind: type[Event], knob: Knob, data: st.DataObject
) -> None:
    event = data.draw(arbitrary.of(kind))
    if not isinstance(event, PluginEvent):
        event = as_of_knob(event, knob)
    found = device_found(knob)
    line = line_of(event, knob)
    assert found_in([line_of(found), line]) == ([found, event], [])
    if not issubclass(kind, PluginEvent):
        assert not keys_in(json.loads(line)) & SETTINGS


def test_what_lies_between_two_values_comes_back() -> None:
    found = replace(device_found(CLOCK), original=(2.5,))
    assert json.loads(line_of(found))["original_setting"] == [1050.0]
    assert found_in([line_of(found)]) == ([found], [])


@pytest.mark.parametrize(
    ("knob", "old", "new"),
    [
        (MODE, b'"eager"', b'"Eager"'),
        (MODE, b'"eager"', b"0.5"),
        (MODE, b'"eager"', b"true"),
        (MODE, b'"eager"', b'["eager"]'),
        (MODE, b'"eager"', b'{"cap_w": 1}'),
        (MODE, b'"eager"', b'"0"'),
        (CLOCK, b'"setting": 1200.0', b'"setting": 1800.0'),
        (CLOCK, b'"setting": 1200.0', b'"setting": "1200"'),
        (CLOCK, b'"setting": 1200.0', b'"setting": -1'),
        (CLOCK, b'"setting": 1200.0', b'"cap_w": 1200.0'),
        (CLOCK, b'"setting": 1200.0', b'"settings": ' + b"[" * 600 + b"]" * 600),
    ],
)
def test_a_setting_that_the_knob_does_not_have_is_a_damaged_line(knob: Knob, old: bytes, new: bytes) -> None:
    log = turned(knob)
    place = next(place for place, event in enumerate(log) if event.logged_as == "trial_started")
    lines = [line_of(event, knob) for event in log]
    assert old in lines[place]
    lines[place] = lines[place].replace(old, new)
    events, said = found_in(lines)
    assert told_of(events) == told_of(log[:place] + log[place + 1 :])
    assert said == [f"log: line {place + 1} is damaged and left out"]


@pytest.mark.parametrize("knob", [POWER_LIMIT, MODE], ids=lambda knob: knob.name)
def test_a_log_has_one_knob_and_a_second_is_damage(knob: Knob) -> None:
    """Whatever was said of the first would be read as settings of the second, which it may not have."""
    first, second = device_found(knob), device_found(CLOCK)
    assert found_in([line_of(first), line_of(second)])[0] == [first]
    trial = next(event for event in told() if event.logged_as == "trial_ended")
    assert found_in([line_of(trial), line_of(second)])[0] == [trial]
    assert found_in([line_of(first), line_of(first)])[0] == [first, first]


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ('"labels": []', '"labels": ["a"]'),
        ('"values": [600.0, 900.0, 1200.0, 1500.0]', '"values": [900.0, 600.0]'),
        ('"faster": "up"', '"faster": "sideways"'),
        ('"name": "clock"', '"name": "Clock!"'),
    ],
)
def test_a_knob_that_is_none_is_damage_and_so_is_what_is_set_of_it(part: str, other: str) -> None:
    lines = [line_of(event, CLOCK) for event in turned(CLOCK)]
    assert part.encode() in lines[1]
    events, said = found_in([lines[0], lines[1].replace(part.encode(), other.encode()), *lines[2:]])
    assert not keys_in([encode(event) for event in events]) & SETTINGS
    assert "lines are damaged and left out, the first is line 2" in said[0]


def test_settings_of_the_command_line_are_not_the_knobs() -> None:
    taken = SettingsTaken(t_s=1.0, settings=(TakenSetting(name="metric", value="edp", source="autocap.toml"),))
    found = device_found(MODE)
    assert found_in([line_of(found), line_of(taken, MODE)])[0] == [found, taken]


def test_of_the_power_limit_lines_are_as_they_were_but_for_the_knob() -> None:
    """Watts under the keys that they always had; a log from before there was another knob reads alike."""
    log = told()
    lines = [line_of(event) for event in log]
    for event, line in zip(log, lines, strict=True):
        entry = json.loads(line)
        if isinstance(event, DeviceFound):
            assert entry.pop("knob")["name"] == "power-limit"
            assert entry["original_w"] == [260.0]
        fields = encode(event)
        assert isinstance(fields, dict)
        assert entry == {"event": event.logged_as, **{key: one for key, one in fields.items() if key != "knob"}}
        assert not keys_in(entry) & {"setting", "original_setting", "final_setting"}
    place = next(place for place, event in enumerate(log) if isinstance(event, DeviceFound))
    old = json.loads(lines[place])
    del old["knob"]
    lines[place] = (json.dumps(old) + "\n").encode()
    events, said = found_in(lines)
    assert (told_of(events), said) == (told_of(log), [])


@knobs
def test_samples_have_a_column_of_what_is_set(knob: Knob, tmp_path: Path) -> None:
    run = record_turned(tmp_path / "run", turned(knob), knob)
    rows = list(csv.DictReader(io.StringIO(gzip.decompress((run / SAMPLES).read_bytes()).decode())))
    value = {"clock": "1200", "mode": "0"}[knob.name]
    assert [row["setting"] for row in rows] == ["", *[value] * 9]
    assert {row["requested_w"] for row in rows} == {"260"}  # of the device, in watts
    assert read_samples(run).requested_w.tolist() == [260.0] * 10
    record_turned(tmp_path / "power", told(), POWER_LIMIT)
    assert "setting" not in gzip.decompress((tmp_path / "power" / SAMPLES).read_bytes()).decode()
