"""The log of a run that turned another knob than the power limit, with settings of all kinds in it."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autocap import events
from autocap.events import Event
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.knobs import Json, Knob
from autocap.records import Prediction, Reading, Sample
from autocap.runlog.directory import RunDirectory
from autocap.runlog.memory.store import Entry
from autocap.wire.codec import decode, encode
from tests.doubles.memories import curve, entry
from tests.doubles.told import told

CLOCK = Knob(name="clock", unit="MHz", values=(600.0, 900.0, 1200.0, 1500.0))
MODE = Knob(name="mode", values=(0.0, 1.0, 2.0, 3.0), labels=("eager", "compiled", "graphs", "fused"), faster=None)
KEPT = {"clock": "1200 MHz", "mode": "eager"}
FOUND = {"clock": "1500 MHz", "mode": "compiled"}
# The settings that stand for the power limits of `told`.
_PLACES = {
    "clock": {120.0: 1.0, 180.0: 2.0, 160.0: 3.0, 200.0: 2.0, 260.0: 4.0},
    "mode": {120.0: 4.0, 180.0: 3.0, 160.0: 1.0, 200.0: 3.0, 260.0: 2.0},
}
SETTINGS = frozenset({"cap_w", "caps_w", "original_w", "final_w", "kept_w"})


def turned(knob: Knob, *, emulated: bool = False) -> list[Event]:
    """The run of `told` as one of that knob."""
    places = _PLACES[knob.name]
    log = [as_of_knob(event, knob, places) for event in told(emulated=emulated)]
    found = next(event for event in log if isinstance(event, events.DeviceFound))
    decided = next(place for place, event in enumerate(log) if isinstance(event, events.Decided))
    log[log.index(found)] = replace(found, knob=knob)
    expected = Prediction(
        setting=1.0, energy=0.8, time=1.4, energy_rel_stderr=0.01, period_rel_stderr=0.01, time_energy_corr=0.0
    )
    # What is not told of this run, to be written, read and said all the same.
    more: list[Event] = [
        events.Remembered(t_s=0.0, key="ab" * 32, runs=3, age_s=9e4, setting=places[160.0]),
        events.WouldTry(t_s=0.5, settings=(places[120.0], places[180.0])),
    ]
    per_gpu: list[Event] = [
        PerGpuTried(t_s=161.0, setting=(places[180.0],), accepted=False, reason="not better"),
        PerGpuDecided(t_s=162.0, setting=(places[160.0],), kept=False, reason="the common one is as good"),
    ]
    predicted: list[Event] = [events.Predicted(t_s=159.0, caps=(expected,))] if knob.ordered else []
    return [*log[:2], *more, *log[2:decided], *predicted, log[decided], *per_gpu, *log[decided + 1 :]]


def as_of_knob(event: Event, knob: Knob, places: Mapping[float, float] | None = None) -> Event:
    """An event with a setting of the knob wherever it has one of the power limit: as `places` says, or any."""

    def place(setting: float) -> float:
        return places[setting] if places else 1.0 + int(abs(setting)) % len(knob.values)

    def said(text: str) -> str:
        return re.sub(r"(\d+) W", lambda found: knob.text(place(float(found[1]))), text) if places else text

    if isinstance(event, events.Decided):
        event = replace(event, expected=None)  # which speaks of caps between those that were tried
    return decode(type(event), _changed(encode(event), place, said))


def _changed(of: Json, place: Callable[[float], float], said: Callable[[str], str]) -> Json:
    if isinstance(of, dict):
        return {
            name: _placed(one, place) if name in SETTINGS else _changed(one, place, said) for name, one in of.items()
        }
    if isinstance(of, list):
        return [_changed(one, place, said) for one in of]
    return said(of) if isinstance(of, str) else of


def _placed(of: Json, place: Callable[[float], float]) -> Json:
    if isinstance(of, list):
        return [_placed(one, place) for one in of]
    return place(float(of)) if isinstance(of, float | int) else of


def keys_in(of: Json) -> set[str]:
    """Every key in it, at whatever depth."""
    if isinstance(of, list):
        return set().union(*map(keys_in, of)) if of else set()
    return set(of).union(*map(keys_in, of.values())) if isinstance(of, dict) else set()


def record_turned(path: Path, log: Iterable[Event], knob: Knob) -> Path:
    """Such a run's directory, with samples of the setting that it keeps, but for the first."""
    with RunDirectory.create(path, False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        for event in log:
            directory.append(event)
        for t_s, setting in enumerate((None, *[_PLACES.get(knob.name, {160.0: 160.0})[160.0]] * 9)):
            reading = Reading(
                t_s=float(t_s),
                power_w=150.0,
                requested_w=260.0,
                enforced_w=260.0,
                knob_value=None if setting is None else knob.value(setting),
            )
            directory.sample(Sample(t_s=float(t_s), readings=(reading,)))
    return path


def remembered(knob: Knob) -> Entry:
    """What is remembered of a job that was tuned by it."""
    places = _PLACES[knob.name]
    found = curve({places[160.0]: 80.0, places[180.0]: 85.0}, kept_w=places[160.0], arrival_w=places[260.0])
    one = entry("cd", found)
    return replace(one, setup=replace(one.setup, knob=knob))
