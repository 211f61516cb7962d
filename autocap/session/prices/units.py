"""Units of prices and carbon intensities, as the heads of columns name them."""

import argparse
import re
from dataclasses import dataclass

from autocap.config import values
from autocap.events.quote import CARBON, PRICE

_UNIT = re.compile(r"(?P<of>[^\s\[\](){},;:/]+(?: CO[2₂][\w-]*)?) ?/ ?(?P<per>[km]?wh)\b", re.IGNORECASE)
_MASS = re.compile(r"(?P<mass>kg|g|t|lbs?) ?(?:CO[2₂](?:e|eq|-eq)?)?", re.IGNORECASE)
_GRAMS = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": 453.59237, "lbs": 453.59237}
_KWH = {"wh": 1e-3, "kwh": 1.0, "mwh": 1e3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """name: as it was read. kind: "price" or "carbon". per_kwh: money or grams of CO₂ per kWh that one of it is.
    currency: the money's sign or code, `None` of carbon."""

    name: str
    kind: str
    per_kwh: float
    currency: str | None


def unit_in(heading: str) -> Unit | None:
    """The unit that a heading holds, as `EUR/MWh` or `intensity [gCO2eq/kWh]` do; `None` where there is none."""
    found = _UNIT.search(heading)
    if found is None:
        return None
    name, of, kwh = f"{found['of']}/{found['per']}", found["of"], _KWH[found["per"].lower()]
    mass = _MASS.fullmatch(of)
    if mass is not None:
        return Unit(name=name, kind=CARBON, per_kwh=_GRAMS[mass["mass"].lower()] / kwh, currency=None)
    try:
        return Unit(name=name, kind=PRICE, per_kwh=1 / kwh, currency=values.currency(of))
    except argparse.ArgumentTypeError:
        return None
