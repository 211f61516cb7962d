"""Day-ahead prices of Europe's bidding zones, from ENTSO-E's transparency platform, by entsoe-py."""

import os
from collections.abc import Iterable
from datetime import datetime
from importlib.util import find_spec
from itertools import pairwise
from typing import Protocol

from autocap.config.values import shown
from autocap.events.quote import PRICE
from autocap.plugins.grid.answers import amount, answers_of, series_of
from autocap.session.prices.series import Series, SourceRefused

ZONED = True
KEY = "ENTSOE_API_KEY"
_NAME = "ENTSO-E"
_WITHIN_S = 20
_AHEAD_S = 48 * 3600.0
_LONGEST_S = 3600.0  # that a price holds
_MWH = 1e3  # kWh


class Prices(Protocol):
    """A series of pandas: EUR/MWh by time."""

    def items(self) -> Iterable[tuple[datetime, float]]: ...


def missing() -> str | None:
    """What has to be there before it can be asked, as a sentence; `None` where nothing lacks."""
    if find_spec("entsoe") is None:
        return "entsoe needs the package entsoe-py; install it with: pip install entsoe-py"
    if not os.environ.get(KEY):
        return f"{_NAME} asks for a key; set {KEY} to yours (https://transparency.entsoe.eu)"
    return None


def read(zone: str, wall_s: float) -> Series:
    """The prices of a bidding zone, such as DE_LU, from a time on, seconds since 1970. Raises SourceRefused."""
    why_not = missing()
    if why_not is not None:
        raise SourceRefused(why_not)
    return as_series(_asked(zone, wall_s))


def as_series(prices: Prices) -> Series:
    """Of EUR/MWh by time. Raises SourceRefused."""
    with answers_of(_NAME):
        known = [(at.timestamp(), float(euros)) for at, euros in prices.items()]
        values = [(at_s, None if euros != euros else amount(euros / _MWH, least=-1e6)) for at_s, euros in known]
        return series_of(PRICE, "EUR", values, _usual_s([at_s for at_s, _ in known]))


def _usual_s(at_s: list[float]) -> float:
    """For how long a price holds: as long as the closest two are apart."""
    return min([_LONGEST_S, *(later - earlier for earlier, later in pairwise(at_s))])


def _asked(zone: str, wall_s: float) -> Prices:
    import pandas
    from entsoe import EntsoePandasClient

    start_s = wall_s - wall_s % _LONGEST_S
    start, end = (pandas.Timestamp(at_s, unit="s", tz="UTC") for at_s in (start_s, start_s + _AHEAD_S))
    client = EntsoePandasClient(api_key=os.environ[KEY], timeout=_WITHIN_S, retry_count=1)
    try:
        prices: Prices = client.query_day_ahead_prices(zone, start=start, end=end)
    except ValueError as error:  # of a name that it does not know
        raise SourceRefused(f"{_NAME} has no zone {shown(zone)}; give one such as DE_LU or FR") from error
    except Exception as error:  # noqa: BLE001 - whatever it is; its words may hold the key, so they are not repeated
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = f"answers with HTTP {status}" if status else f"gave no prices of {zone} ({type(error).__name__})"
        raise SourceRefused(f"{_NAME} {why}") from None
    return prices
