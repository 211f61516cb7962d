"""What `autocap predict` prints: a row a card, and below it what is not known, and why."""

from collections.abc import Sequence

from autocap.metrics import Metric
from autocap.plugins.predict.money import Prices
from autocap.plugins.predict.outlook import Outlook, Value
from autocap.plugins.predict.source import Measured
from autocap.reports.document import Document, Sentences, Table

_TITLES = ("card", "cap W", "time s", "power W", "energy J")
_BEST_TITLES = ("card", "best cap W", "energy there", "time there")
_UNKNOWN = "not known"
_NOTE = (
    "Ranges are two standard deviations, which held for nine of ten published values of cards and networks left out; "
    "a card unlike those may be further off."
)


def document(found: Measured, outlooks: Sequence[Outlook], metric: Metric, prices: Prices) -> Document:
    """What is expected of a job, a row a card."""
    money = (f"{prices.currency or 'cost'} per million",) if prices.are_known else ()
    cards = f"{found.count} × {found.name}" if found.count > 1 else found.name
    name = f"eds, k = {metric.k:g}" if metric.name == "eds" else metric.name
    table = Table(
        heading=f"measured on {cards}, expected per {found.per}",
        titles=(*_TITLES, *money),
        rows=tuple(_row(one)[: len(_TITLES) + len(money)] for one in outlooks),
        note="power is modelled" if found.emulated else "",
        left=(0,),
    )
    rows = tuple(
        (
            _name(one),
            f"{one.best.cap_w:.0f}{' or less' if one.best.is_edge else ''}",
            _change(one.best.energy),
            _change(one.best.time),
        )
        for one in outlooks
        if one.best is not None
    )
    best = Table(heading=f"best by {name}, against the default limit", titles=_BEST_TITLES, rows=rows, left=(0,))
    return Document(
        kicker="predict",
        headline="Expected on other cards",
        body=(table, *([best] if rows else []), Sentences(lines=("", _NOTE, *_reasons(outlooks, prices)))),
    )


def _name(one: Outlook) -> str:
    return f"{one.model} (measured)" if one.measured_here else one.model


def _row(one: Outlook) -> tuple[str, ...]:
    values = (_shown(one.period_s), _shown(one.power_w), _shown(one.energy_j), _shown(one.cost, 1e6))
    return (_name(one), f"{one.cap_w:.0f}", *values)


def _shown(one: Value, times: float = 1.0) -> str:
    if one.value is None or one.low is None or one.high is None:
        return _UNKNOWN
    value, low, high = (f"{float(f'{times * each:.3g}'):g}" for each in (one.value, one.low, one.high))
    return f"{value} ({low}–{high})"


def _change(one: Value) -> str:
    """A ratio as a change in percent."""
    if one.value is None or one.low is None or one.high is None:
        return _UNKNOWN
    value, low, high = (100 * (each - 1) for each in (one.value, one.low, one.high))
    return f"{value:+.0f} % ({low:+.0f} to {high:+.0f})"


def _reasons(outlooks: Sequence[Outlook], prices: Prices) -> list[str]:
    """Why something is not known, each reason once with what it is about."""
    of: dict[tuple[str, str], list[str]] = {}
    for one in outlooks:
        whys: dict[str, list[str]] = {}
        for what, why in (
            ("time", one.period_s.unknown),
            ("power", one.power_w.unknown),
            ("energy", one.energy_j.unknown),
            ("cost", one.cost.unknown if prices.are_known else None),
            ("best cap", one.no_best),
        ):
            if why is not None:
                whys.setdefault(why, []).append(what)
        for why, what_all in whys.items():
            of.setdefault((", ".join(what_all), why), []).append(one.model)
    every = len(outlooks)
    unset = [one.model for one in outlooks if one.best is not None and one.min_w is None]
    said = f"how low limits can be set is not known of {', '.join(unset)}: perhaps not as low as the best"
    return ([said] if unset else []) + [
        f"{what} not known of {', '.join(models) if len(models) < every else 'any card'}: {why}"
        for (what, why), models in of.items()
    ]
