"""What `autocap predict` prints: a row a card, and below it what is not known, and why."""

from collections.abc import Sequence

from autocap.metrics import Metric
from autocap.plugins.predict.outlook import Outlook, Value
from autocap.plugins.predict.source import Measured
from autocap.reports.document import Document, Sentences, Table

_TITLES = ("card", "limit W", "time s", "power W", "energy J", "best cap W", "energy there %", "time there %")
_UNKNOWN = "?"
_NOTE = (
    "Ranges are two standard deviations, which held for nine of ten published values of cards and networks left out; "
    "a card unlike those may be further off. Times and energies are per iteration; ? is not known."
)


def document(found: Measured, outlooks: Sequence[Outlook], metric: Metric) -> Document:
    """What is expected of a job, a row a card."""
    cards = f"{found.count} × {found.name}" if found.count > 1 else found.name
    name = f"eds, k = {metric.k:g}" if metric.name == "eds" else metric.name
    table = Table(
        heading=f"measured on {cards}; best by {name}",
        titles=_TITLES,
        rows=tuple(_row(one) for one in outlooks),
        note="power is modelled" if found.emulated else "",
        left=(0,),
    )
    return Document(
        kicker="predict",
        headline="Expected on other cards",
        body=(table, Sentences(lines=("", _NOTE, *_reasons(outlooks)))),
    )


def _row(one: Outlook) -> tuple[str, ...]:
    name = f"{one.model} (measured)" if one.measured_here else one.model
    best = (_UNKNOWN,) * 3
    if one.best is not None:
        cap = f"{one.best.cap_w:.0f}" + (" or less" if one.best.is_edge else "")
        best = (cap, _change(one.best.energy), _change(one.best.time))
    return (name, f"{one.cap_w:.0f}", _shown(one.period_s), _shown(one.power_w), _shown(one.energy_j), *best)


def _shown(one: Value) -> str:
    if one.value is None or one.low is None or one.high is None:
        return _UNKNOWN
    return f"{one.value:.3g} ({one.low:.3g}–{one.high:.3g})"


def _change(one: Value) -> str:
    """A ratio as a change in percent."""
    if one.value is None or one.low is None or one.high is None:
        return _UNKNOWN
    value, low, high = (100 * (each - 1) for each in (one.value, one.low, one.high))
    return f"{value:+.0f} ({low:+.0f} to {high:+.0f})"


def _reasons(outlooks: Sequence[Outlook]) -> list[str]:
    """Why something is not known, each reason once with the cards that it is about."""
    of: dict[str, list[str]] = {}
    for one in outlooks:
        for what, why in (
            ("time", one.period_s.unknown),
            ("power", one.power_w.unknown),
            ("energy", one.energy_j.unknown if one.energy_j.unknown != one.period_s.unknown else None),
            ("best cap", one.no_best),
        ):
            if why is not None:
                of.setdefault(f"{what} not known: {why}", []).append(one.model)
    return [f"{', '.join(models) if len(models) < len(outlooks) else 'all cards'}: {why}" for why, models in of.items()]
