"""Electricity Maps' carbon intensity of a zone: the hours to come where the token's plan has them, else this hour."""

import os
import urllib.parse
from http import HTTPStatus

from autocap.events.quote import CARBON
from autocap.plugins.grid.answers import amount, answers_of, field, items, series_of, time_of
from autocap.session.prices.https import NotAnswered, get_json
from autocap.session.prices.series import Series, SourceRefused

ZONED = True
SERVER = "https://api.electricitymaps.com/v3"
TOKEN = "ELECTRICITYMAPS_TOKEN"
_HOUR_S = 3600.0
_LATE_S = 3600.0  # by which the value of the next hour may come late
_NOT_IN_PLAN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


def missing() -> str | None:
    """What has to be there before it can be asked, as a sentence; `None` where nothing lacks."""
    if os.environ.get(TOKEN):
        return None
    return f"Electricity Maps asks for a token; set {TOKEN} to yours (https://portal.electricitymaps.com)"


def read(zone: str, wall_s: float, server: str = SERVER) -> Series:
    """What is known of a zone, such as DE or US-CAL-CISO. Raises SourceRefused."""
    why_not = missing()
    if why_not is not None:
        raise SourceRefused(why_not)
    latest = _ask(server, "latest", zone)
    with answers_of(server):
        values = {time_of(field(latest, "datetime")): amount(field(latest, "carbonIntensity"))}
    try:
        forecast = _ask(server, "forecast", zone)
    except NotAnswered as error:
        if error.status not in _NOT_IN_PLAN:
            raise
        with answers_of(server):
            return series_of(CARBON, None, values.items(), _HOUR_S + _LATE_S)
    with answers_of(server):
        for one in items(field(forecast, "forecast")):
            values.setdefault(time_of(field(one, "datetime")), amount(field(one, "carbonIntensity")))
        return series_of(CARBON, None, values.items(), _HOUR_S)


def _ask(server: str, what: str, zone: str) -> object:
    query = urllib.parse.urlencode({"zone": zone})
    return get_json(f"{server}/carbon-intensity/{what}?{query}", {"auth-token": os.environ[TOKEN]})
