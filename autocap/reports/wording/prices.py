"""Prices and carbon in words, as they change."""

from autocap.events import Followed, Quoted, Sourced
from autocap.events.quote import CARBON
from autocap.reports.wording.numbers import common_caps, with_error

_WORTH = 0.1  # of the value that was said last: a smaller change is no news by itself


class ValueWording:
    """Puts what is announced of values into words, and remembers what the words need."""

    def __init__(self, followed: str | None = None) -> None:
        """followed: the kind that caps follow, of whose loss who decides has more to say."""
        self._followed, self._money = followed, "money"
        self._said: dict[str, float] = {}

    def sentence(self, event: Sourced | Quoted | Followed) -> str | None:
        """The sentence for an event; `None` for one that is not worth a line."""
        match event:
            case Sourced(kind=kind, source=source, currency=currency):
                self._money = currency or self._money
                return f"{_name(kind)} is read from {source}"
            case Quoted(kind=kind, value=None):
                had = self._said.pop(kind, None) is not None
                return f"{_name(kind)} is not known any more" if had and kind != self._followed else None
            case Quoted(kind=kind, value=float() | int() as value):
                before = self._said.get(kind)
                if before is not None and abs(value - before) <= _WORTH * abs(before):
                    return None
                self._said[kind] = value
                return f"{_name(kind)} is {self._amount(kind, value)}"
            case Followed(caps_w=caps_w, kind=kind, value=value, gain=gain, gain_stderr=gain_stderr):
                gained = f"{with_error(100 * gain, 100 * gain_stderr)} %"
                what = f"{common_caps(caps_w)} W at {self._amount(kind, value)}"
                return f"following to {what}: {gained} of the baseline's cost less, as far as is known"
        return None

    def _amount(self, kind: str, value: float) -> str:
        return f"{value:.4g} {'g CO₂' if kind == CARBON else self._money} per kWh"


def _name(kind: str) -> str:
    return "the carbon of electricity" if kind == CARBON else "the energy price"
