"""What jobs have shown on each model of card, as a table."""

from collections.abc import Sequence

from autocap.reports.document import Document, Table
from autocap.runlog.memory.card import CardRecord, binds_at, least_energy_at, median_range, waits_for_memory

_EMULATED = " (emulated)"
CARD_TITLES = ("card", "jobs", "draw", "caps bind below", "least energy at", "wait for memory", "settling")


def known_cards(records: Sequence[CardRecord]) -> Document:
    """A row a model, in their order: medians over its jobs, and in parentheses the least and the largest; shares of the
    limit, percent."""
    table = Table(
        heading="what jobs have shown on cards; % of the power limit, median (least to largest)",
        titles=CARD_TITLES,
        rows=tuple(_row(record) for record in records),
        spare=tuple(CARD_TITLES.index(title) for title in ("settling", "wait for memory")),
        left=(0,),
    )
    return Document(headline="Cards", body=(table,))


def _row(record: CardRecord) -> tuple[str, ...]:
    curves = record.curves
    waiting = sum(waits_for_memory(one) for one in curves)
    return (
        record.model if record.model.endswith(_EMULATED) or not record.emulated else record.model + _EMULATED,
        str(len(curves)),
        _shares([one.draw for one in curves]),
        _shares([at for one in curves if (at := binds_at(one)) is not None]),
        _shares([least_energy_at(one) for one in curves]),
        f"{waiting} of {len(curves)}",
        f"{median_range([one.settle_s for one in curves])[0]:.1f} s",
    )


def _shares(values: Sequence[float]) -> str:
    if not values:
        return "–"
    median, least, largest = (f"{100 * one:.0f}" for one in median_range(values))
    return median if least == largest else f"{median} ({least} to {largest})"
