"""What a run has cost and emitted, in words and a table."""

from collections.abc import Iterator

from autocap.events import MetricInfo
from autocap.reports.document import Fact, Table
from autocap.reports.summary.record import PREDICTED, Account, Amount, CostAccounts, Summary
from autocap.reports.wording.numbers import change, common_caps, with_error

_J_PER_KWH = 3.6e6
ENERGY = ((0.1 * _J_PER_KWH, _J_PER_KWH, "kWh"), (0.1 * _J_PER_KWH / 1e3, _J_PER_KWH / 1e3, "Wh"), (0.0, 1.0, "J"))
CARBON = ((1e6, 1e6, "t CO₂"), (1e3, 1e3, "kg CO₂"), (0.0, 1.0, "g CO₂"))
_TIME = ((3 * 3600.0, 3600.0, "h"), (0.0, 1.0, "s"))
_ALL = 0.999  # share of the energy for which the value was known: more is all of it
Scale = tuple[float, str]


def table(summary: Summary) -> Table | None:
    """The run beside the same work at the baseline and at the best constant cap."""
    books = summary.books
    if books is None:
        return None
    spent = books.spent
    time, energy = scale_of(spent.time_s.value, _TIME), scale_of(spent.energy_j.value, ENERGY)
    carbon = None if spent.carbon_g is None else scale_of(spent.carbon_g.value, CARBON)
    money: Scale | None = None if spent.money is None else (1.0, money_name(books))
    cost = cost_scale(summary.metric, books)
    columns = (time, energy, money, carbon, cost)

    def row(account: Account, first: str, remark: str) -> tuple[str, ...]:
        amounts = (account.time_s, account.energy_j, account.money, account.carbon_g, account.cost)
        return first, *(_cell(one, scale) for one, scale in zip(amounts, columns, strict=True) if scale), remark

    rows = [row(spent, "–", "this run, the search included")]
    for account, what in ((books.baseline, "the limit found on arrival"), (books.constant, "the best constant cap")):
        if account is not None and account.setting is not None:
            predicted = ", predicted" if account.source == PREDICTED else ""
            rows.append(
                row(
                    account,
                    common_caps(account.setting, summary.knob),
                    summary.knob.said(f"{what}, all the time{predicted}"),
                )
            )
    names = tuple(scale[1] for scale in columns if scale)
    return Table(
        heading="What the work cost",
        note="emulated" if summary.modelled else "",
        titles=(summary.knob.title, *names[:-1], f"{summary.metric.name}, {names[-1]}" if cost else names[-1], ""),
        rows=tuple(rows),
        spare=(1, 2),
    )


def remarks(summary: Summary) -> list[str]:
    """Where values were read and what they were, for how much of the energy none was known, and what the run saved."""
    books = summary.books
    if books is None:
        return []
    out = []
    money = money_name(books)
    for source, mean, known, unit in (
        (books.price_source, books.price, books.price_known, f"{money} per kWh"),
        (books.carbon_source, books.carbon, books.carbon_known, "g CO₂ per kWh"),
    ):
        if source is None or mean is None or known is None:
            continue
        unknown = "" if known >= _ALL else f"; for {100 * (1 - known):.1f} % of it none was known, which is left out"
        out.append(f"{mean:.4g} {unit} in the mean of the energy used, read from {source}{unknown}")
    if books.moves:
        times = "once" if books.moves == 1 else f"{books.moves} times"
        out.append(summary.knob.said(f"caps were moved {times} to follow it"))
    out += [f"{name}: {', '.join(changed)}" for name, changed in _against(summary, books) if changed]
    return out


def facts(summary: Summary) -> Iterator[Fact]:
    """What was spent, and by how much that is less."""
    books = summary.books
    if books is None or (books.price_source is None and books.carbon_source is None):
        return
    cost = cost_scale(summary.metric, books)
    spent = books.spent
    shown = [("cost of the work", spent.cost, cost)] if cost else []
    shown += [("cost of the energy", spent.money, (1.0, money_name(books)))]
    if spent.carbon_g is not None:
        shown += [("emitted", spent.carbon_g, scale_of(spent.carbon_g.value, CARBON))]
    for name, amount, scale in shown:
        if amount is not None and scale is not None:
            note = "; ".join(
                summary.knob.said(f"{_change(amount, other)} against {what}")
                for other, what in _others(books, name)
                if other is not None and other.value > 0
            )
            yield Fact(name=name, value=f"{amount.value / scale[0]:.4g} {scale[1]}", note=note or "this run")


def _others(books: CostAccounts, name: str) -> list[tuple[Amount | None, str]]:
    field = {"cost of the work": "cost", "cost of the energy": "money", "emitted": "carbon_g"}[name]
    accounts = ((books.baseline, "the limit found"), (books.constant, "the best constant cap"))
    return [(getattr(account, field), what) for account, what in accounts if account is not None]


def _against(summary: Summary, books: CostAccounts) -> Iterator[tuple[str, list[str]]]:
    for account, what in (
        (books.baseline, "against the limit found on arrival"),
        (books.constant, "against the best constant cap"),
    ):
        if account is None:
            continue
        spent = books.spent
        counts = cost_scale(summary.metric, books) is not None
        pairs = [
            *([(summary.metric.name, spent.cost, account.cost)] if counts else []),
            ("money for energy", spent.money, account.money),
            ("CO₂", spent.carbon_g, account.carbon_g),
            ("time", spent.time_s, account.time_s),
        ]
        yield (
            summary.knob.said(what),
            [f"{name} {_change(one, other)}" for name, one, other in pairs if one and other and other.value > 0],
        )


def money_name(books: CostAccounts) -> str:
    """The currency, or what stands for one that nobody named."""
    return books.currency or "money"


def cost_scale(metric: MetricInfo, books: CostAccounts) -> Scale | None:
    """Of what the metric counts, where that is money or grams; `None` where it is nothing that adds up, or no more than
    what stands in a column of its own."""
    if books.spent.cost is None:
        return None
    if metric.name == "cost":
        return (1.0, money_name(books)) if metric.hour_price else None
    return (1.0, money_name(books)) if metric.carbon_price or metric.hour_price else None


def scale_of(value: float, units: tuple[tuple[float, float, str], ...]) -> Scale:
    """The largest of the units in which a value is not too small a number."""
    return next((size, name) for least, size, name in units if value >= least or least == 0.0)


def _cell(amount: Amount | None, scale: Scale) -> str:
    if amount is None:
        return "–"
    if amount.stderr <= 0:
        return f"{amount.value / scale[0]:.5g}"
    return with_error(amount.value / scale[0], amount.stderr / scale[0])


def _change(one: Amount, other: Amount) -> str:
    """By how much it is more than something above 0, the latter's error with it."""
    ratio = one.value / other.value
    return change(100 * (ratio - 1), 100 * abs(ratio) * other.stderr / other.value)
