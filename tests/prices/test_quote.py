"""A quote says what is in force at any time, and what comes."""

import re

import pytest

from autocap.events.quote import CARBON, PRICE, Quote

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
