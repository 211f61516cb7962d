"""A knob's values and settings, there and back, and how they are written."""

from dataclasses import replace

import pytest

from autocap.events import CapSet, DeviceFound
from autocap.knobs import POWER_LIMIT, Knob, as_read, as_written
from autocap.records import Trial, TrialState
from autocap.wire.codec import decode, encode
from tests.doubles.feeds import measurement

CLOCK = Knob.stepped("clock", 600, 1500, 400, unit="MHz")
LEVEL = Knob(name="level", values=(1, 2, 3), faster="down")
MODE = Knob(name="mode", values=(0, 1, 4), labels=("calm", "even", "eager"), faster=None)


def test_a_range_has_every_step_and_its_end() -> None:
    assert CLOCK.values == (600.0, 1000.0, 1400.0, 1500.0)
    assert CLOCK.settings == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("knob", [CLOCK, LEVEL, MODE])
def test_values_are_settings_and_back(knob: Knob) -> None:
    assert [knob.value(knob.setting(value)) for value in knob.values] == list(knob.values)
    assert sorted(map(knob.setting, knob.values)) == list(knob.settings)


def test_the_slowest_comes_first() -> None:
    assert (CLOCK.text(1.0), LEVEL.text(1.0), LEVEL.text(3.0), MODE.text(3.0)) == ("600 MHz", "3", "1", "eager")
    assert POWER_LIMIT.text(200.5) == "200.5 W"


@pytest.mark.parametrize(("knob", "value"), [(CLOCK, 590.0), (CLOCK, 1510.0), (MODE, 2.0), (MODE, 5.0)])
def test_what_is_no_setting_is_refused(knob: Knob, value: float) -> None:
    with pytest.raises(ValueError, match=knob.name):
        knob.setting(value)
    assert knob.setting_or_none(value) is None
    with pytest.raises(ValueError, match=knob.name):
        knob.including([value])


@pytest.mark.parametrize(
    "given",
    [
        {"name": "Clock"},
        {"values": (1.0,)},
        {"values": (2.0, 1.0)},
        {"labels": ("one",)},
        {"faster": "sideways"},
        {"settle_s": -1.0},
        {"unit": "\x1b[2J"},
    ],
)
def test_what_is_no_knob_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="knob"):
        replace(CLOCK, **given)


def test_a_value_that_was_found_between_two_has_a_place_of_its_own() -> None:
    knob = CLOCK.including([1111.0, 1000.0, 1111.0])
    assert knob.values == (600.0, 1000.0, 1111.0, 1400.0, 1500.0)
    assert (knob.setting(1111.0), knob.text(3.0)) == (3.0, "1111 MHz")
    labelled = replace(LEVEL, labels=("fast", "even", "slow")).including([1.5])
    assert [labelled.text(setting) for setting in labelled.settings] == ["slow", "even", "1.5", "fast"]
    assert CLOCK.including([600.0]) == CLOCK
    assert POWER_LIMIT.including([123.0]) == POWER_LIMIT


@pytest.mark.parametrize(("word", "setting"), [("eager", 3.0), ("calm", 1.0), ("4", 3.0)])
def test_a_setting_is_named_by_its_label_or_value(word: str, setting: float) -> None:
    assert MODE.named(word) == setting


@pytest.mark.parametrize("word", ["", "loud", "2", "nan", "1e999"])
def test_another_word_is_refused_with_what_there_is(word: str) -> None:
    with pytest.raises(ValueError, match="choose of calm, even, eager"):
        MODE.named(word)


@pytest.mark.parametrize(("knob", "shown"), [(MODE, ["eager", "calm"]), (CLOCK, [1400.0, 600.0])])
def test_settings_are_written_as_labels_or_values_and_under_no_key_of_watts(knob: Knob, shown: list[object]) -> None:
    event = CapSet(t_s=1.0, setting=(3.0, 1.0))
    written = as_written(encode(event), knob)
    assert written == {"t_s": 1.0, "setting": shown}
    assert decode(CapSet, as_read(written, knob)) == event
    assert as_written(encode(event), POWER_LIMIT) == {"t_s": 1.0, "cap_w": [3.0, 1.0]}


def test_a_knob_reads_back_as_it_was_written() -> None:
    found = DeviceFound(t_s=0.0, kind="mine", emulated=False, gpus=(), original=(), knob=MODE)
    assert decode(DeviceFound, encode(found)).knob == MODE


def test_sentences_about_caps_are_said_of_settings() -> None:
    said = "no cap is kept, the limit found on arrival is put back: caps cost more"
    assert MODE.said(said) == "no setting is kept, the setting found on arrival is put back: settings cost more"
    assert POWER_LIMIT.said(said) == said


def test_who_reads_caps_still_finds_them() -> None:
    trial = Trial(setting=200.0, state=TrialState.FAILED)
    assert (trial.cap_w, measurement(cap_w=200.0).cap_w) == (200.0, (200.0,))
