"""What a run has cost and emitted, as `result.json` has it: `books` works it out."""

from dataclasses import dataclass, field

from autocap.records import CAP_W


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number with its standard error, 0 where it is what the meters said."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the run's work took, or would have taken. time_s, energy_j: of all of it, pauses included. money: that its
    energy cost. carbon_g: grams of CO₂. cost: what the run's metric counts, money or grams, where that is `cost` or
    `carbon`. `None` where it is not known.

    setting: held all the time, watts; `None` for the run as it was. source: of such a cap, "measured" or "predicted".
    """

    setting: tuple[float, ...] | None = field(metadata=CAP_W)
    source: str | None
    time_s: Amount
    energy_j: Amount
    money: Amount | None
    carbon_g: Amount | None
    cost: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """A run's accounts, since its first counted iteration, the search included.

    price_source, carbon_source: where they were read, `None` of a number. currency: of the money. price, carbon: means
    over the run's energy, per kWh; price_known, carbon_known: the share of that energy for which there was a value.
    baseline, constant: as much work at the limits found on arrival, and at the one cap that would have been best;
    `None` where that cannot be told. moves: how often caps were changed to follow.
    """

    price_source: str | None
    carbon_source: str | None
    currency: str | None
    price: float | None
    carbon: float | None
    price_known: float | None
    carbon_known: float | None
    spent: Account
    baseline: Account | None
    constant: Account | None
    moves: int
