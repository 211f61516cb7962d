"""What to expect on one card, each number with two standard deviations, or why it is not known."""

import math
from dataclasses import dataclass

import numpy as np

from autocap.metrics import Metric
from autocap.plugins.predict import rule
from autocap.plugins.predict.cards import Card
from autocap.plugins.predict.rule import FITTED, LARGEST, LARGEST_SIGMA, Constants, Spread
from autocap.plugins.predict.source import Measured

_STEP_W = 5.0
_ASSUMED_ERROR = 0.03  # of what was run once, whose error nobody knows
_TOO_FAR = (
    f"two standard deviations are more than {100 * LARGEST:.0f} %, as the cards' arithmetic rates differ by more, or "
    "less, than their memory bandwidths"
)
_NARROW = "; --precision may narrow it"
METRICS = ("energy", "edp", "ed2p", "eds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An expected value, and the ends of its two standard deviations; all `None` where `unknown` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best cap among those to which the curve can be carried. energy, time: per iteration, over those at the
    default limit. is_edge: it is the lowest of them, so that a lower one may be better still."""

    cap_w: float
    energy: Value
    time: Value
    is_edge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The job on one card. min_w: the lowest limit that can be set, `None` where that is not known. cap_w: that the
    numbers are for. period_s, power_w, energy_j, cost: of an iteration, and of all cards that the job has; cost in
    money. best: `None` where no_best says why. lowest_w: down to which the curve can be carried."""

    model: str
    measured_here: bool
    default_w: float
    min_w: float | None
    cap_w: float
    period_s: Value
    power_w: Value
    energy_j: Value
    cost: Value = Value(unknown="no price was given")
    lowest_w: float | None
    best: Best | None
    no_best: str | None


def expect(
    found: Measured, target: Card | None, cap: float | None, metric: Metric, bits: int | None,
    constants: Constants = FITTED,
) -> Outlook:  # fmt: skip
    """target: `None` for the measured card itself. cap: watts above 1, else a share of the default limit; `None` for
    that limit. constants: those of the rule."""
    here = target is None or target == found.card
    default_w = found.default_w if target is None or here else target.default_w
    min_w = found.min_w if target is None or here else target.min_w
    share = 1.0 if cap is None else cap if cap <= 1 else cap / default_w
    error = found.error if math.isfinite(found.error) else _ASSUMED_ERROR
    time, why_time, draw, why_draw = _at_default(found, target, here, bits, constants)
    curve, low = found.curve, _lowest(found, target, here)
    lowest, why_low = low
    why_cap: str | None = None
    if share > 1 + 1e-6:
        why_cap = f"{share * default_w:.0f} W is above the default limit, {default_w:g} W, beyond which nothing is told"
    elif min_w is not None and share * default_w < min_w - 1e-6:
        why_cap = f"{share * default_w:.0f} W is below {min_w:g} W, the lowest limit that can be set"
    elif share < lowest - 1e-9:
        why_cap = f"{100 * share:.0f} % of the limit: {why_low}"
    log_power, log_time = (np.zeros(1), np.zeros(1)) if curve is None else rule.at(curve, np.array([share]))
    of_power, of_time, of_energy = _of_lines(curve, share)
    far = 0.0 if here else float(rule.reach(np.array([share]))[0])
    sums = {
        "time": (time.log + log_time[0], math.hypot(time.sigma, constants.time * far, of_time, error)),
        "power": (draw.log + log_power[0], math.hypot(draw.sigma, constants.power * far, of_power, error)),
        "energy": (
            time.log + draw.log + log_time[0] + log_power[0],
            math.hypot(time.sigma, draw.sigma, constants.energy * far, of_energy, error),
        ),
    }
    period_s, all_w = found.period_s, found.power_w * found.count
    best, no_best = _best(found, default_w, min_w, low, here, metric, error, constants)
    return Outlook(
        model=found.name if target is None else target.model,
        measured_here=here,
        default_w=default_w,
        min_w=min_w,
        cap_w=share * default_w,
        period_s=_value(period_s, *sums["time"], why_time or why_cap),
        power_w=_value(all_w, *sums["power"], why_draw or why_cap),
        energy_j=_value(
            None if period_s is None else all_w * period_s, *sums["energy"], why_time or why_draw or why_cap
        ),
        lowest_w=lowest * default_w if lowest < 1 else None,
        best=best,
        no_best=no_best,
    )


def _of_lines(curve: rule.Curve | None, share: float) -> tuple[float, float, float]:
    """What lines between measured caps leave out, standard deviations of power, time and energy."""
    if curve is None:
        return 0.0, 0.0, 0.0
    power, time, energy = (float(each[0]) for each in rule.between(curve, np.array([share])))
    return power, time, energy


def _lowest(found: Measured, target: Card | None, here: bool) -> tuple[float, str | None]:
    """The lowest share of the limit for which the curve speaks, and what hinders it below."""
    if found.curve is None:
        return 1.0, "no cap below the default limit was measured"
    if target is None or here:
        return float(found.curve.share[0]), "no lower cap was measured"
    unlike = _unlike(found, target)
    return rule.carried_from(found.curve) if unlike is None else (1.0, unlike)


def _unlike(found: Measured, target: Card) -> str | None:
    """Why draws and curves cannot be carried between these cards; `None` where they can."""
    if found.card is None:
        return f"nothing is known of the measured card {found.name}"
    if not rule.has_curves(found.card):
        return f"no published curves are of cards like the measured {found.card.model}"
    return None if rule.has_curves(target) else "no published curves are of cards like it"


def _at_default(
    found: Measured, target: Card | None, here: bool, bits: int | None, constants: Constants
) -> tuple[Spread, str | None, Spread, str | None]:
    """ln of time and of power at the default limit over the measured ones, each with why it is not known."""
    same = Spread(log=0.0, sigma=0.0)
    if target is None or here:
        return same, None, same, None
    draw = Spread(log=math.log(target.default_w / found.default_w), sigma=constants.draw)
    share = found.power_w / found.default_w
    waits = (
        f"the job draws {100 * share:.0f} % of the limit: something else than the card sets its time, such as reading "
        "its data"
        if rule.waits(share)
        else None
    )
    why_draw = waits or _unlike(found, target)
    if found.card is None:
        return same, why_draw, draw, why_draw
    time = rule.time_ratio(found.card, target, bits, constants)
    if waits is not None:
        return time, waits, draw, waits
    if found.count > 1:
        return time, f"{found.count} cards also wait for each other, and their links are not known", draw, why_draw
    return time, None if time.is_known else _TOO_FAR + ("" if bits else _NARROW), draw, why_draw


def _value(base: float | None, log: float, sigma: float, unknown: str | None) -> Value:
    if unknown is None and base is None:
        unknown = "iterations were not counted"
    if unknown is None and sigma > LARGEST_SIGMA:
        unknown = f"two standard deviations are more than {100 * LARGEST:.0f} %"
    if unknown is not None or base is None:
        return Value(unknown=unknown)
    value = base * math.exp(log)
    return Value(value=value, low=value * math.exp(-2 * sigma), high=value * math.exp(2 * sigma))


def _best(
    found: Measured, default_w: float, min_w: float | None, low: tuple[float, str | None], here: bool, metric: Metric,
    error: float, constants: Constants,
) -> tuple[Best | None, str | None]:  # fmt: skip
    """The cap of the least cost on the curve, in steps of 5 W from the default limit."""
    curve, (lowest, why_low) = found.curve, low
    least_w = max(lowest * default_w, min_w or 0.0)
    if curve is None or lowest >= 1 or least_w > default_w - _STEP_W:
        return None, why_low or f"no cap between {least_w:.0f} and {default_w:.0f} W is left"
    caps_w = np.append(np.arange(default_w, least_w - 1e-6, -_STEP_W), least_w)
    log_power, log_time = rule.at(curve, caps_w / default_w)
    energy, time = np.exp(log_power + log_time), np.exp(log_time)
    place = int(np.argmin(cost(metric, energy, time)))
    error *= math.sqrt(2)  # of two measurements
    _, of_time, of_energy = _of_lines(curve, caps_w[place] / default_w)
    far = 0.0 if here else float(rule.reach(caps_w[place : place + 1] / default_w)[0])
    return Best(
        cap_w=float(caps_w[place]),
        energy=_value(1.0, math.log(energy[place]), math.hypot(constants.energy * far, of_energy, error), None),
        time=_value(1.0, math.log(time[place]), math.hypot(constants.time * far, of_time, error), None),
        is_edge=bool(caps_w[place] <= least_w + 1e-6 and least_w > (min_w or 0.0)),
    ), None


def cost(metric: Metric, energy: rule.Floats, time: rule.Floats) -> rule.Floats:
    """The metric, one of METRICS, at energies and times over the default limit's, shape (n,) each."""
    if metric.name == "eds":
        assert metric.k is not None
        return np.asarray((metric.k - 1) / metric.k * energy + time / metric.k)
    return np.asarray(energy * time ** METRICS.index(metric.name))
