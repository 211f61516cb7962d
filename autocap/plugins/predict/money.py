"""What an iteration costs on a card: its energy, and the card's hours where these have a price."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap.plugins.predict.outlook import Outlook, Value

_J_PER_KWH, _S_PER_HOUR = 3.6e6, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """energy: money per kWh, `None` where nobody said so. here, there: of an hour of the measured card and of the
    other. currency: its sign or code."""

    energy: float | None = None
    here: float | None = None
    there: float | None = None
    currency: str | None = None

    @property
    def are_known(self) -> bool:
        return any(price is not None for price in (self.energy, self.here, self.there))


def priced(outlooks: Sequence[Outlook], prices: Prices, count: int) -> list[Outlook]:
    """The outlooks with what an iteration costs. count: of the cards that the job has."""
    return [replace(one, cost=_cost(one, prices, count)) for one in outlooks]


def _cost(one: Outlook, prices: Prices, count: int) -> Value:
    hour = prices.here if one.measured_here else prices.there
    if hour is None and (prices.here, prices.there) != (None, None):
        what = "the run was not told what an hour of its card costs" if one.measured_here else "pass --hour-price"
        return Value(unknown=f"an hour costs, too, and what it costs on this card is not known; {what}")
    if prices.energy is None and hour is None:
        return Value(unknown="no price is known; pass --energy-price")
    parts = [(one.energy_j, (prices.energy or 0.0) / _J_PER_KWH), (one.period_s, (hour or 0.0) / _S_PER_HOUR * count)]
    value = low = high = 0.0
    for part, price in parts:
        if price:
            if part.value is None or part.low is None or part.high is None:
                return Value(unknown=part.unknown)
            value += part.value * price
            # Time is in both, so that their errors go together: at most they add up. A price may be below 0.
            least, most = sorted((part.low * price, part.high * price))
            low, high = low + least, high + most
    return Value(value=value, low=low, high=high)
