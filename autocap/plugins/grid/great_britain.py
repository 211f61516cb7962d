"""Great Britain's carbon intensity, in half hours and two days ahead: the open API of the system operator
(https://carbonintensity.org.uk), which asks for no key."""

from datetime import UTC, datetime

from autocap.events.quote import CARBON
from autocap.plugins.grid.answers import amount, answers_of, field, items, series_of, time_of
from autocap.session.prices.https import get_json
from autocap.session.prices.series import Series

ZONED = False
SERVER = "https://api.carbonintensity.org.uk"
_HALF_AN_HOUR_S = 1800.0


def missing() -> str | None:
    """Nothing lacks: it asks for no key."""
    return None


def read(zone: str, wall_s: float, server: str = SERVER) -> Series:
    """What is expected from a time on, seconds since 1970. Raises SourceRefused."""
    start = datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
    answer = get_json(f"{server}/intensity/{start}/fw48h", {"Accept": "application/json"})
    with answers_of(server):
        known = items(field(answer, "data"))
        values = [(time_of(field(one, "from")), amount(field(field(one, "intensity"), "forecast"))) for one in known]
        return series_of(CARBON, None, values, _HALF_AN_HOUR_S)
