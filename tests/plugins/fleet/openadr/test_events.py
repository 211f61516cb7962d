"""Events as JSON has them: which watts are allowed when, by whom, and what cannot be followed."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.plugins.fleet.openadr.events import (
    Context,
    Read,
    coming,
    duration,
    holding,
    lacks_units,
    read_events,
)
from bench.budget_faults.vtn import PROGRAM, event

T0 = 1_769_875_200.0  # 2026-01-31T16:00Z
AT = "2026-01-31T16:00:00Z"
HOUR = 3600.0
CONTEXT = Context(wall_s=T0, seed="here")


def read(*events: dict[str, Any], wall_s: float = T0, **more: Any) -> Read:
    return read_events(list(events), Context(wall_s=wall_s, **{"seed": "here", **more}))


def rows(found: Read) -> list[tuple[float, float, float]]:
    """(hours from T0, hours from T0, watts)."""
    return [((span.from_s - T0) / HOUR, (span.to_s - T0) / HOUR, span.watts) for span in found.spans]


def intervals(*ones: tuple[dict[str, Any] | None, list[Any]]) -> list[dict[str, Any]]:
    """Periods and values of a limit."""
    return [
        ({} if period is None else {"intervalPeriod": period})
        | {"id": number, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": values}]}
        for number, (period, values) in enumerate(ones)
    ]


@pytest.mark.parametrize(
    ("text", "end_s"),
    [
        ("PT0S", T0),
        ("P0S", T0),
        ("PT1H30M2.5S", T0 + 5402.5),
        ("P1W2D", T0 + 9 * 86400),
        ("P1M", T0 + 28 * 86400),  # to the end of a February
        ("P1Y", T0 + 365 * 86400),
        ("P9999Y", math.inf),
        ("P", None),
        ("PT", None),
        ("1H", None),
        ("-PT1H", None),
        ("PT1H ", None),
    ],
)
def test_a_duration_ends_as_iso_8601_means_it(text: str, end_s: float | None) -> None:
    found = duration(text)
    assert (None if found is None else found.after(T0)) == end_s


def test_intervals_follow_one_another_unless_they_say_otherwise() -> None:
    made = intervals(
        (None, [2.0]),
        ({"duration": "PT30M"}, [1.5]),  # its own length, right behind
        ({"start": "0001-01-01", "duration": "PT30M"}, [1.0]),  # as well
        ({"start": "2026-01-31T20:00:00+01:00"}, [0.5]),  # in another zone
        ({"duration": "PT2H"}, [3.0, 1.0]),  # two halves
    )
    found = read(event("a", 9, start=AT, intervals=made))
    assert found.refused == ()
    assert rows(found) == [
        (0, 1, 2000), (1, 1.5, 1500), (1.5, 2, 1000), (3, 4, 500), (4, 5, 3000), (5, 6, 1000),
    ]  # fmt: skip
    later = read(event("a", 9, start=AT, intervals=made), wall_s=T0 + 1.75 * HOUR)
    assert rows(later)[0] == (1.5, 2, 1000)  # what is over is left out


def test_an_event_that_begins_now() -> None:
    (forever,) = read(event("a", 1, start="0001-01-01", duration="P9999Y")).spans
    assert (forever.from_s, forever.to_s) == (0.0, math.inf)
    changed = {"modificationDateTime": "2026-01-31T15:30:00Z"}
    for start in ("0001-01-01", "0001-01-01T00:00:00", "0000-00-00"):
        assert rows(read(event("a", 1, start=start, **changed))) == [(-0.5, 0.5, 1000)]
    cancelled = event("a", 1, start="0001-01-01", duration="PT0S")  # as the User Guide, 7.9, has it
    assert read(cancelled) == Read()


def test_the_duration_of_an_event_cuts_its_intervals_short_or_repeats_them() -> None:
    made = intervals((None, [2.0]), (None, [1.0]))
    short = event("a", 9, start=AT, intervals=made) | {"duration": "PT90M"}
    assert rows(read(short)) == [(0, 1, 2000), (1, 1.5, 1000)]
    assert rows(read(short | {"duration": "PT0S"})) == [(0, 1, 2000), (1, 2, 1000)]  # as if it were not there
    daily = event("a", 9, start=AT, intervals=made) | {"duration": "P9999Y"}
    found = read(daily, wall_s=T0 + 1001.5 * HOUR)
    assert rows(found)[:3] == [(1001, 1002, 1000), (1002, 1003, 2000), (1003, 1004, 1000)]
    assert 160 < len(found.spans) < 180  # a week


def test_of_several_events_the_one_of_the_lowest_number_counts_and_of_equals_the_lower_watts() -> None:
    found = read(
        event("none", 0.5, start=AT, duration="PT4H"),
        event("five", 1.0, start=AT, duration="PT3H", priority=5),
        event("also five", 0.9, start=AT, duration="PT1H", priority=5),
        event("zero", 2.0, start="2026-01-31T16:30:00Z", duration="PT1H", priority=0),
    )
    assert [getattr(holding(found.spans, T0 + h * HOUR), "watts", None) for h in (-1, 0, 0.75, 2, 3.5, 4)] == [
        None, 900, 2000, 1000, 500, None,
    ]  # fmt: skip
    next = coming(found.spans, T0)
    assert next.label == "event 'peak zero' (zero)"
    assert coming(found.spans, T0 + HOUR) is None


def test_a_random_start_is_the_same_again_for_one_machine_and_another_for_others() -> None:
    period = {"start": AT, "duration": "PT1H", "randomizeStart": "PT10M"}
    made = event("a", 1, start=AT) | {"intervalPeriod": period, "intervals": intervals((None, [1]), (None, [2]))}
    first = rows(read(made))
    assert rows(read(made)) == rows(read(made | {"modificationDateTime": "2026-01-31T15:00:00Z"})) == first
    (from_h, to_h, _), (next_h, _, _) = first
    assert to_h == next_h == pytest.approx(from_h + 1)
    others = [rows(read(made, seed=f"host {n}"))[0][0] for n in range(200)]
    assert len(set(others)) == 200
    assert -1 / 6 <= min(others) < -0.15
    assert 0.15 < max(others) <= 1 / 6
    assert abs(sum(others) / 200) < 0.02


def test_a_later_interval_with_a_date_is_shifted_like_the_first_or_anew() -> None:
    first = {"start": AT, "duration": "PT1H", "randomizeStart": "PT10M"}
    later = {"start": "2026-01-31T18:00:00Z", "duration": "PT1H"}
    for none in ({}, {"randomizeStart": "PT0S"}):
        like = rows(read(event("a", 9, start=AT, intervals=intervals((first, [1]), (later | none, [2])))))
        assert like[1][0] - 2 == pytest.approx(like[0][0]) != 0
    anew = intervals((first, [1]), (later | {"randomizeStart": "PT10M"}, [2]))
    drawn = rows(read(event("a", 9, start=AT, intervals=anew)))
    assert drawn[1][0] - 2 != pytest.approx(drawn[0][0])
    assert abs(drawn[1][0] - 2) <= 1 / 6


def test_units_are_those_of_the_event_or_else_of_its_program() -> None:
    bare = event("a", 1, start=AT) | {"payloadDescriptors": None}
    assert lacks_units([bare])
    assert not lacks_units([event("a", 1, start=AT)])
    program = PROGRAM | {"payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KW"}]}
    assert rows(read(bare, programs={"p-1": program})) == [(0, 1, 1000)]
    assert "unit of its IMPORT_CAPACITY_LIMIT is not said, and should be KW" in read(bare).refused[0]
    malformed = {"p-1": PROGRAM | {"payloadDescriptors": 5}}
    assert rows(read(event("good", 1, start=AT), programs=malformed)) == [(0, 1, 1000)]


def test_a_setpoint_counts_and_the_lower_of_two_limits() -> None:
    both = [
        {"type": "DISPATCH_SETPOINT", "values": [0.8]},
        {"type": "PRICE", "values": [0.2]},
        {"type": "IMPORT_CAPACITY_LIMIT", "values": [0.9]},
    ]
    units = [{"payloadType": kind, "units": "KW"} for kind in ("DISPATCH_SETPOINT", "IMPORT_CAPACITY_LIMIT")]
    made = event("a", 9, start=AT, payloadDescriptors=units, intervals=[{"id": 0, "payloads": both}])
    assert rows(read(made)) == [(0, 1, 800)]
    assert rows(read(event("a", 0, start=AT))) == [(0, 1, 1)]  # the least that a budget can be


def test_events_for_others_are_left_out() -> None:
    named = event("a", 1, start=AT, targets=["group-1"])
    by_type = event("b", 1, start=AT, targets=[{"type": "VEN_NAME", "values": ["mine", "other"]}])
    all_of_them = event("c", 1, start=AT)

    def ids(*targets: str) -> list[str]:
        return [span.label[-2] for span in read(named, by_type, all_of_them, targets=frozenset(targets)).spans]

    assert ids() == ["a", "b", "c"]
    assert ids("mine") == ["b", "c"]
    assert ids("group-1", "else") == ["a", "c"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"intervalPeriod": {"start": "2026-01-31T16:00:00", "duration": "PT1H"}}, "which is no date with a zone"),
        ({"intervalPeriod": {"start": 7, "duration": "PT1H"}}, "its start is '7', which is no date"),
        ({"intervalPeriod": {"start": AT, "duration": "1 h"}}, "its duration is '1 h', which is no duration"),
        ({"intervalPeriod": {"start": AT, "randomizeStart": "P9999Y"}}, "its randomizeStart has no end"),
        ({"intervalPeriod": None}, "its first interval has no start"),
        ({"intervalPeriod": []}, "its intervalPeriod is no object"),
        ({"priority": -1}, "its priority is '-1', which is no whole number"),
        ({"priority": True}, "its priority is 'True'"),
        ({"payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KVA"}]}, "is 'KVA', and should be"),
        ({"intervals": intervals((None, [-1]))}, "its IMPORT_CAPACITY_LIMIT is '-1'; a number from 0 to 1000000 kW"),
        ({"intervals": intervals((None, ["1"]))}, "a number from 0"),
        ({"intervals": intervals((None, []))}, "its IMPORT_CAPACITY_LIMIT has no value"),
        ({"intervals": intervals(({"start": AT, "duration": "P9999Y"}, [1, 2]))}, "2 values share an interval without"),
        ({"intervals": intervals((None, [1] * 9000), (None, [1] * 9000))}, "it has more than 10000 values"),
        ({"id": None}, "it has no ID"),
        ({"duration": "P1.5D"}, "its duration is 'P1.5D'"),
        ({"intervals": 5}, "its intervals are no list of at most 10000"),
        ({"intervals": [{"payloads": 5}]}, "its payloads are no list"),
        ({"payloadDescriptors": 5}, "its payloadDescriptors are no list"),
        ({"targets": 5}, "its targets are no list"),
        ({"priority": 10**400}, "which is no whole number"),
        ({"intervals": intervals((None, [10**400]))}, "a number from 0 to 1000000 kW can be followed"),
        (
            {"intervalPeriod": {"start": "0000-00-00", "duration": "PT1H"}, "modificationDateTime": None,
             "createdDateTime": ""},
            "it begins now, and its VTN does not say when it was made",
        ),
    ],
)  # fmt: skip
def test_a_bad_event_is_one_sentence_and_the_others_count(changes: dict[str, Any], complaint: str) -> None:
    bad = event("x\x1b[31m", 1, start=AT) | changes
    found = read(bad, good := event("good", 2, start=AT))
    assert not lacks_units([bad, good])
    (sentence,) = found.refused
    assert complaint in sentence
    assert "is not followed" in sentence
    assert "\x1b" not in sentence
    assert rows(found) == [(0, 1, 2000)]


def test_events_of_something_else_are_one_sentence_together() -> None:
    price = [{"id": 0, "payloads": [{"type": "PRICE", "values": [0.1]}, {"type": "GHG", "values": [1]}]}]
    made = [event(str(n), 1, start=AT, intervals=price) for n in range(3)]
    report = event("r", 1, start=AT, intervals=[{"id": 0, "payloads": []}])
    found = read(*made, report)
    assert found.refused == (
        "events of GHG, PRICE are not followed, as IMPORT_CAPACITY_LIMIT and DISPATCH_SETPOINT alone are limits in "
        "watts",
    )


def test_what_is_passed_on_is_bounded() -> None:
    made = intervals(*[(None, [1.0])] * 5000)
    found = read(event("a", 9, start=AT, duration="PT1S", intervals=made))
    assert len(found.spans) == 256
    assert found.spans[-1].from_s == T0 + 255
    assert len(found.spans[0].label) < 120


GOOD = {"a": 1.0, "b": 2.0}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["PT1H", "P9999Y", AT, "0001-01-01", "KW", "IMPORT_CAPACITY_LIMIT", 10**400, -(10**400), 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["start", "type", "values"]), inner),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None)
@given(data=st.data())
def test_each_event_is_judged_by_itself(data: st.DataObject) -> None:
    """Whatever stands in one, and in its program, the others are followed as if it were not there."""
    bad = event("bad", 3, start=AT, programID="bad")
    names = sorted(
        {*bad, "intervals", "intervalPeriod", "priority", "duration", "targets", "payloadDescriptors"} - {"id"}
    )
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        bad[name] = data.draw(JSON)
    if isinstance(bad["intervals"], list) and data.draw(st.booleans()):
        bad["intervals"] = [data.draw(JSON), *bad["intervals"]]
    good = [event(name, kilowatts, start=AT) for name, kilowatts in GOOD.items()]
    programs = {"bad": data.draw(st.dictionaries(st.just("payloadDescriptors"), JSON))}
    context = Context(
        wall_s=T0, seed="here", targets=frozenset(data.draw(st.sampled_from([[], ["x"]]))), programs=programs
    )
    alone = read_events(good, context).spans
    beside = read_events([good[0], bad, good[1]], context).spans
    assert [span for span in beside if "(bad)" not in span.label] == [*alone] or len(beside) == 256
    assert all(span.from_s < span.to_s > T0 and 1 <= span.watts <= 1e9 for span in beside)
    lacks_units([*good, bad])
