"""Rows of time and a value with a unit: what they mean, what is refused, what is in force at any time, and what
comes."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.events.quote import CARBON, PRICE, Quote
from autocap.session.prices.series import Series, SourceRefused, parse, unit_in

T0 = 1_769_875_200.0  # 2026-01-31T16:00Z
ROWS = b"time,EUR/MWh\n2026-01-31T17:00:00+01:00,112.5\n2026-01-31T17:00:00Z,-20\n2026-01-31T18:30:00Z,\n"


def test_rows_hold_until_the_next_and_nothing_is_known_from_an_empty_one_on() -> None:
    series = parse(ROWS, "rows", PRICE)
    assert (series.currency, series.steps) == ("EUR", ((T0, 0.1125), (T0 + 3600, -0.02), (T0 + 9000, None)))
    assert series.quote(T0 + 10, T0) == Quote(kind=PRICE, values=((0.0, 0.1125), (3600.0, -0.02)), until_s=9000.0)
    assert series.quote(T0 + 3600, T0 - 5) == Quote(kind=PRICE, values=((3605.0, -0.02),), until_s=9005.0)
    assert series.quote(T0 + 9000, T0) is None
    assert series.quote(T0 - 1, T0) is None


@pytest.mark.parametrize(
    ("text", "until_s"), [("2026-01-31T16:00Z,5", 3600.0), ("2026-01-31T16:00Z,5\n2026-01-31T16:15Z,6", 1800.0)]
)
def test_the_last_row_holds_as_long_as_the_one_before_and_a_lone_one_for_an_hour(text: str, until_s: float) -> None:
    series = parse(f"time,g/kWh\n{text}\n".encode(), "rows", CARBON)
    assert series.until_s - T0 == until_s
    assert series.quote(T0 + until_s, T0) is None


@pytest.mark.parametrize(
    ("heading", "kind", "per_kwh", "currency"),
    [
        ("EUR/MWh", PRICE, 1e-3, "EUR"),
        ("price [$/kWh]", PRICE, 1.0, "$"),
        ("SEK / kwh", PRICE, 1.0, "SEK"),
        ("gCO2/kWh", CARBON, 1.0, None),
        ("intensity (gCO2eq/kWh)", CARBON, 1.0, None),
        ("g CO₂/kWh", CARBON, 1.0, None),
        ("kg/MWh", CARBON, 1.0, None),
        ("tCO2/MWh", CARBON, 1e3, None),
        ("lbs/MWh", CARBON, 0.45359237, None),
    ],
)
def test_units_stand_in_the_heading(heading: str, kind: str, per_kwh: float, currency: str | None) -> None:
    unit = unit_in(heading)
    assert (unit.kind, unit.currency) == (kind, currency)
    assert math.isclose(unit.per_kwh, per_kwh)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "rows lacks the column time; give rows under a heading such as time,EUR/MWh"),
        ("time,price\n2026-01-31T16:00Z,5\n", "rows lacks a column whose name holds a unit; give rows under"),
        ("time,gCO2/kWh\n2026-01-31T16:00Z,5\n", "rows is in 'gCO2/kWh', which is not what --energy-price needs"),
        ("time,EUR/MWh,USD/MWh\n2026-01-31T16:00Z,5,6\n", "rows has the columns 'EUR/MWh' and 'USD/MWh'; leave one"),
        ("time,EUR/MWh\n", "rows holds 0 rows; give 1 to"),
        ("time,EUR/MWh\n2026-01-31T16:00:00,5\n", "line 2: time is '2026-01-31T16:00:00'; give a date with a zone"),
        ("time,EUR/MWh\n12,5\n", "line 2: time is '12'; give a date with a zone"),
        ("time,EUR/MWh\n2026-01-31T16:00Z,cheap\n", "line 2: 'EUR/MWh' is 'cheap'; give a number from -1000000000 to"),
        ("time,EUR/MWh\n2026-01-31T16:00Z,nan\n", "line 2: 'EUR/MWh' is 'nan'"),
        ("time,EUR/MWh\n2026-01-31T16:00Z,5\n2026-01-31T16:00Z,6\n", "line 3: time '2026-01-31T16:00Z' is not after"),
    ],
)
def test_what_is_no_price_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(SourceRefused) as told:
        parse(text.encode(), "rows", PRICE)
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_carbon_is_never_below_0() -> None:
    with pytest.raises(SourceRefused, match=r"line 2: 'kg/MWh' is '-1'; give a number from 0 to 1000000"):
        parse(b"time,kg/MWh\n2026-01-31T16:00Z,-1\n", "rows", CARBON)


def test_what_is_too_far_ahead_is_left_for_later() -> None:
    steps = tuple((T0 + 900.0 * place, float(place)) for place in range(5000))
    whole = Series(kind=PRICE, currency=None, steps=steps, until_s=T0 + 900.0 * 5000)
    shown = whole.from_now(T0 + 1000.0)
    assert shown.steps[0] == steps[1]
    assert len(shown.steps) == 2000
    assert shown.until_s == steps[2001][0]


@pytest.mark.slow
@given(
    st.binary(max_size=200)
    | st.lists(st.tuples(st.sampled_from(["2026-01-31T16:00Z", "2026-02-01T00:00+01:00", "9999-12-31T00:00-12:00", ""]),
                         st.text(max_size=6)), max_size=4)
    .map(lambda rows: "\n".join(["time,EUR/kWh", *(f"{at},{value}" for at, value in rows)]).encode())
)  # fmt: skip
def test_whatever_is_in_a_file_is_a_series_or_refused(data: bytes) -> None:
    try:
        series = parse(data, "rows", PRICE)
    except SourceRefused:
        return
    quote = series.quote(series.steps[0][0], 0.0)
    assert quote is None or all(math.isfinite(value) for _, value in quote.values)


HOURLY = Quote(kind=PRICE, values=((0.0, 0.2), (3600.0, -0.01), (7200.0, 0.3)), until_s=10800.0)


@pytest.mark.parametrize(
    ("t_s", "value", "ends_s"),
    [(-1.0, None, None), (0.0, 0.2, 3600.0), (3600.0, -0.01, 7200.0), (10799.0, 0.3, 10800.0), (10800.0, None, None)],
)
def test_a_value_is_in_force_from_its_time_to_the_next_ones(t_s, value, ends_s) -> None:
    assert (HOURLY.at(t_s), HOURLY.ends_s(t_s)) == (value, ends_s)


def test_what_comes_begins_with_the_rest_of_the_value_in_force() -> None:
    assert HOURLY.ahead(5400.0) == ((1800.0, -0.01), (3600.0, 0.3))
    assert HOURLY.ahead(10800.0) == ()


@pytest.mark.parametrize(
    ("kind", "values", "until_s", "message"),
    [
        ("wind", ((0.0, 1.0),), 1.0, "a quote is of a price or of carbon, not of 'wind'"),
        (PRICE, (), 1.0, "a quote needs a value at least"),
        (PRICE, ((0.0, float("nan")),), 1.0, "a quote's times and values must be finite"),
        (PRICE, ((0.0, 1.0), (0.0, 2.0)), 1.0, "a quote's values must follow one another"),
        (PRICE, ((0.0, 1.0),), 0.0, "a quote's values must follow one another"),
        (CARBON, ((0.0, -1.0),), 1.0, "carbon is never below 0 g per kWh"),
    ],
)
def test_what_is_no_quote_is_refused(kind, values, until_s, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Quote(kind=kind, values=values, until_s=until_s)
