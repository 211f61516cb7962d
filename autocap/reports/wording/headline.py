"""What a run came to in one sentence, for people; its errors stand in the table and the facts."""

import math

from autocap.metrics import Rates
from autocap.records import same_limits
from autocap.reports.summary.record import Account, CostAccounts, Summary
from autocap.reports.wording import run as wording
from autocap.reports.wording.books import CARBON, ENERGY, scale_of
from autocap.reports.wording.numbers import LOW_CONFIDENCE, Verdict, bound, change, verdict, with_unit

_SIGMAS = 2.0  # of what is said without its error
_J_PER_KWH = 3.6e6
_TINY = 1e-4  # whatever is smaller has an exponent


def headline(summary: Summary) -> str:
    """The kept cap and the one before, the changes per iteration, and what the whole run saved, the search included."""
    return summary.knob.said(_headline(summary))


def _headline(summary: Summary) -> str:
    if summary.device is None:
        return "Not tuned"
    if wording.undecided(summary):
        return "Nothing decided yet"
    if summary.books is not None and summary.books.moves and summary.books.baseline is not None:
        return f"{_followed(summary, summary.books, summary.books.baseline)}{_label(summary)}"
    if summary.chosen is None:
        return "No cap was kept"
    found = [gpu.cap_original_w for gpu in summary.device.gpus if gpu.cap_original_w is not None]
    if summary.baseline is not None and found and not same_limits(summary.baseline.setting, found):
        found = list(summary.baseline.setting)  # what a budget gave, with which all of it is compared
    instead = f" instead of {with_unit(found, summary.knob)}" if found else ""
    parts = [_changes(summary), _saved(summary)]
    label = _label(summary) if any(parts) else ""
    said = "; ".join(part for part in parts if part)
    unsure = f"{wording.UNCONFIRMED * (not summary.chosen.confirmed)}{wording.until(summary)}"
    return f"{with_unit(summary.chosen.setting, summary.knob)}{instead}{unsure}{': ' if said else ''}{said}{label}"


def _label(summary: Summary) -> str:
    marks = ["emulated"] * summary.modelled + [LOW_CONFIDENCE] * summary.is_relative
    return f" ({', '.join(marks)})" if marks else ""


def _followed(summary: Summary, books: CostAccounts, baseline: Account) -> str:
    """What a run saved whose caps followed a value: against the baseline, and against the best constant cap."""
    what = "carbon" if summary.metric.name == "carbon" else "price"
    said = []
    for account, other in ((baseline, "the limit found on arrival"), (books.constant, "the best constant cap")):
        if account is not None and account.cost is not None and books.spent.cost is not None and account.cost.value > 0:
            ratio, stderr = books.spent.cost.value / account.cost.value, account.cost.stderr / account.cost.value
            said.append(f"{_change(summary.metric.name, 100 * (ratio - 1), 100 * ratio * stderr)} against {other}")
    joules = books.spent.energy_j.value - baseline.energy_j.value
    sure = abs(joules) > _SIGMAS * baseline.energy_j.stderr
    return "; ".join(
        [
            f"{summary.knob.said('caps').capitalize()} followed the {what}: {', '.join(said)}",
            *([_amount(summary, joules)] if sure else []),
        ]
    )


def _changes(summary: Summary) -> str:
    versus = summary.versus_baseline
    if versus is None or versus.energy_pct is None or versus.time_pct is None:
        return ""
    changes = (
        ("energy", versus.energy_pct, versus.energy_stderr_pct),
        ("time", versus.time_pct, versus.time_stderr_pct),
    )
    if summary.is_relative and versus.time_stderr_pct is not None:
        most = versus.time_pct + _SIGMAS * versus.time_stderr_pct  # what is known of it is where it ends
        return f"{_change(*changes[0])}, up to {most:.0f} % more time"
    return ", ".join(_change(name, percent, stderr) for name, percent, stderr in changes)


def _change(name: str, percent: float, stderr: float | None) -> str:
    match verdict(percent, stderr):
        case Verdict.UNKNOWN:
            return f"change in {name} not known ({change(percent, stderr)})"
        case Verdict.NONE:
            return f"no change in {name} beyond {_up(bound(percent, stderr or 0.0))} %"
        case Verdict.CHANGE:
            pass
    size = f"{abs(percent):.0f}" if abs(percent) >= 0.95 else f"{abs(percent):.1g}"
    return f"{size} % {'less' if percent < 0 else 'more'} {name}"


def _saved(summary: Summary) -> str:
    """In kWh, in money where energy has a price, and in CO₂ where it emits some; nothing where that is not known."""
    versus = summary.versus_baseline
    if versus is None or versus.net_energy_j is None or not summary.trials:
        return ""
    joules, stderr_j = versus.net_energy_j, versus.net_energy_stderr_j
    # What the baseline would have used is known no better than the baseline.
    of_all_j = _whole_j(summary, joules)
    percent, stderr = 100 * joules / of_all_j, None if stderr_j is None else 100 * stderr_j / of_all_j
    match verdict(percent, stderr):
        case Verdict.UNKNOWN:
            return f"whether anything was saved in this run, search included, is not known ({change(percent, stderr)})"
        case Verdict.NONE:
            most = _up(bound(percent, stderr or 0.0))
            return f"in this run, search included, nothing saved or lost beyond {most} % of its energy"
        case Verdict.CHANGE:
            return _amount(summary, joules)


def _whole_j(summary: Summary, beyond_j: float) -> float:
    """What the baseline would have used for all of the run, joules; the run used so many beyond that."""
    used_j = summary.totals.energy_j if summary.totals is not None else 0.0
    return max(used_j - beyond_j, abs(beyond_j)) or 1.0


def _up(percent: float) -> str:
    """A bound, rounded up to a whole percent, to a tenth below 1."""
    return f"{math.ceil(percent)}" if percent > 1 else f"{math.ceil(10 * percent) / 10:.1g}"


def _amount(summary: Summary, joules: float) -> str:
    """joules: beyond what the baseline would have used."""
    *amounts, last = [*_amounts(abs(joules), summary.rates), *_read(summary, saves=joules < 0)]
    amount = f"{', '.join(amounts)} and {last}" if amounts else last
    return f"{'saved' if joules < 0 else 'used'} {amount}{'' if joules < 0 else ' more'} in this run, search included"


def _amounts(joules: float, rates: Rates) -> list[str]:
    kwh, price, carbon_g = joules / _J_PER_KWH, rates.energy_price or 0.0, rates.carbon_g_per_kwh or 0.0
    found = [_scaled(joules, ENERGY)]
    if price > 0 and rates.currency is not None:
        found.append(f"{_rounded(kwh * price)} {rates.currency}")
    elif price > 0:
        found[0] += f" ({_rounded(kwh * price)} at {price:g} per kWh)"
    if carbon_g > 0:
        found.append(_scaled(kwh * carbon_g, CARBON))
    return found


def _read(summary: Summary, *, saves: bool) -> list[str]:
    """Money and CO₂ by what was read as the run went on, where they went the way of the energy and beyond their errors:
    at prices below 0 they need not."""
    books = summary.books
    if books is None or books.baseline is None:
        return []
    found = []
    in_money = ((0.0, 1.0, books.currency or "in money"),)
    for source, one, other, units in (
        (books.price_source, books.spent.money, books.baseline.money, in_money),
        (books.carbon_source, books.spent.carbon_g, books.baseline.carbon_g, CARBON),
    ):
        if source is None or one is None or other is None:
            continue
        saved = other.value - one.value
        if (saved > 0) is saves and abs(saved) > _SIGMAS * other.stderr:
            found.append(_scaled(abs(saved), units))
    return found


def _scaled(value: float, units: tuple[tuple[float, float, str], ...]) -> str:
    size, unit = scale_of(value, units)
    return f"{_rounded(value / size)} {unit}"


def _rounded(value: float) -> str:
    """To two digits, and to the whole where there are more before the point."""
    if value <= 0:
        return "0"
    if value < _TINY:
        return f"{value:.2g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"
