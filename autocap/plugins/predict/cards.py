"""What makers publish of cards: `cards.json` names the sources of each. What is not there is not known."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.text import did_you_mean
from autocap.wire.codec import decode

_REST = r"(-\d+GB)?( Generation)?( \(emulated\))?"  # what may stand behind a name
_DATA = Path(__file__).with_name("cards.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One model of card.

    names: how its driver calls it, without its maker. default_w, min_w: its default power limit and the lowest
    that can be set, watts, `None` where that is not known; boards of other makers may differ. bandwidth_gb_s: of its
    memory. matrix32_tflops, tensor16_tflops: dense rates of the fastest units that take 32-bit matrices (TF32 where
    there is such), and of 16-bit matrices summed up in 32 bits.
    """

    model: str
    names: tuple[str, ...]
    architecture: str
    default_w: float
    min_w: float | None
    bandwidth_gb_s: float
    matrix32_tflops: float
    tensor16_tflops: float
    sources: tuple[str, ...]


@cache
def cards() -> tuple[Card, ...]:
    """All that are known, the oldest first."""
    return tuple(decode(Card, row, strict=True) for row in json.loads(_DATA.read_text())["cards"])


def card_of(name: str) -> Card | None:
    """The card of which a driver says this name; `None` where none is known to be called so: an A10G is no A10, and a
    card for laptops, a slice of a card or an H200 NVL are other cards."""
    fits = [
        card for card in cards() if any(re.fullmatch(rf"(.* )?{re.escape(part)}{_REST}", name) for part in card.names)
    ]
    return fits[0] if len(fits) == 1 else None


def chosen(text: str) -> tuple[Card, ...]:
    """The cards that `--to` names: `all`, a model of the table, or a driver's name. Raises UsageError."""
    if text.lower() == "all":
        return cards()
    models = [card.model for card in cards()]
    found = next((card for card in cards() if card.model.lower() == text.lower()), card_of(text))
    several = [model for model in models if model.lower().startswith(f"{text.lower()} ")]
    if found is None and len(several) > 1:
        raise UsageError(f"--to {shown(text)} stands for several cards; give one of {', '.join(several)}")
    if found is None:
        raise UsageError(
            f"--to {shown(text)}: nothing can be said of such a card, as no published measurements of its like are at "
            f"hand{did_you_mean(text, models)}; choose all, {', '.join(models)}"
        )
    return (found,)
