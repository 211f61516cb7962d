"""Records become JSON and records again; what is no such record is refused, and the field that is wrong is named."""

import json
import math
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.records import Reading
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import BadMessage, parse
from tests.doubles import arbitrary


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    w: float
    kind: Literal["a", "b"] | None = None
    pair: tuple[int, float] = (0, 0.0)


@dataclass(frozen=True, kw_only=True)
class Whole:
    parts: tuple[Part, ...]
    either: int | str = 0


PART = Part(name="n", w=1.5, kind="a", pair=(1, 2.5))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_a_record_is_read_as_it_was_written(strict: bool, flat: bool) -> None:
    whole = Whole(parts=(PART, Part(name="", w=-0.0)), either="x")
    said = parse(json.dumps(encode(whole, strict=strict, flat=flat)).encode(), 1000)
    assert decode(Whole, said, strict=strict, flat=flat) == whole


@pytest.mark.slow
@given(arbitrary.of(Reading))
def test_by_position_a_later_version_may_have_more_fields_than_an_earlier_one(reading: Reading) -> None:
    said = encode(reading, flat=True)
    assert isinstance(said, list)
    assert decode(Reading, said, flat=True) == decode(Reading, encode(reading))
    assert decode(Reading, said[:2], flat=True) == Reading(t_s=reading.t_s, power_w=reading.power_w)
    with pytest.raises(BadMessage, match="not of the type"):
        decode(Reading, [*said, 1.0], flat=True)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"w": None}, "w"),
        ({"w": True}, "w"),
        ({"w": "1"}, "w"),
        ({"w": math.inf}, "w"),
        ({"w": math.nan}, "w"),
        ({"w": 10**400}, "w"),
        ({"name": 7}, "name"),
        ({"name": "x" * 1025}, "name"),
        ({"name": "\x1b[2J"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"kind": "c"}, "kind"),
        ({"kind": ["a"]}, "kind"),
        ({"pair": [1]}, "pair"),
        ({"pair": [1.5, 1.5]}, "pair"),
        ({"pair": {}}, "pair"),
    ],
)
def test_what_another_user_says_is_refused_unless_it_is_such_a_record(wrong: dict[str, object], field: str) -> None:
    body = {"parts": [{"name": "n", "w": 1.0, **wrong}]}
    with pytest.raises(BadMessage, match=rf"^parts: {field}: "):
        decode(Whole, body, strict=True)  # type: ignore[arg-type]


def test_what_is_missing_is_said() -> None:
    with pytest.raises(BadMessage, match=r"^parts: a key of Part is missing"):
        decode(Whole, {"parts": [{"name": "n"}]}, strict=True)


def test_of_our_own_records_a_number_that_json_lacks_is_infinite_and_half_a_character_an_escape() -> None:
    assert encode(Part(name="n", w=math.nan))["w"] is None  # type: ignore[index, call-overload]
    assert decode(Part, {"name": "a\ud800", "w": None, "later": [1]}) == Part(name="a\\ud800", w=math.inf)
    with pytest.raises(BadMessage, match=r"^w: "):
        decode(Part, {"name": "n", "w": 10**400})


@given(st.binary(max_size=100))
def test_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        parse(data, 50)
    except ValueError:
        return
    assert len(data) <= 50
