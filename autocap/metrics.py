"""What is minimised: energy, EDP, ED²P, EDS(k), money and carbon, each 1 at the baseline and lower is better.

With e and τ the energy and time per iteration and e0, τ0 those of the baseline:

    energy  e/e0
    edp     e τ / (e0 τ0)
    ed2p    e τ² / (e0 τ0²)
    eds     ((k-1)/k) e/e0 + (1/k) τ/τ0, k > 1            Krzywaniak et al. 2022, eq. 4
    cost    (e · energy price + τ · devices · device price) over that of the baseline
    carbon  the same, with grams of CO₂ a kWh in place of its price, at the price of a tonne where there is one

Of a whole run, with its energy E and time T in place of e and τ and without a baseline: E, E T, E T² and money are as
above; eds is ((k-1)/k) E + (1/k) P T in joules, where P is the sum of the devices' largest limits, so that for
k = 1/(1-η) it is Zeus's cost ηE + (1-η)PT (You et al. 2023, section 3); carbon has none.

A price that moves may fall below 0, and what the baseline costs with it. Then what is saved counts over what the
baseline's energy and time come to without their signs: still 1 at the baseline, and lower is better.

Errors are carried to first order from the relative standard errors of e and τ and their correlation. All ratios and
their errors are made here: what is said of a cap has the baseline's error in it (`Metric.versus`, `ratios`), and only
where caps are compared with each other that one cancels (`Metric.cost`, `Cost.own`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autocap.records import Cost, Measurement, Prediction
from autocap.text import did_you_mean

DEFAULT_K = 2.0
_J_PER_KWH = 3.6e6
_S_PER_HOUR = 3600.0
_G_PER_TONNE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a kilowatt-hour costs and emits, for reports; `None` where nobody said so.

    energy_price: money per kWh. currency: its sign or code. carbon_g_per_kwh: grams of CO₂ per kWh.
    """

    energy_price: float | None = None
    currency: str | None = None
    carbon_g_per_kwh: float | None = None


NO_RATES = Rates()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every metric is made of: energy · e/e0 · (τ/τ0)^power + time · τ/τ0 + constant."""

    energy: float
    power: int
    time: float
    constant: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with its parameters, and the limit on slowdown that a kept cap must respect.

    k: for eds, the slowdown that would be worth zero energy, > 1. energy_price: money per kWh, hour_price: money
    per device hour, for cost. max_slowdown: 0.05 allows 5 % more time per iteration than the baseline. carbon_price:
    for carbon, money per tonne of CO₂; energy_price is then what a kWh's carbon costs, and without it its grams.
    moving: the energy price is the one in force, as `at` has it, or not known yet: then energy and time count evenly,
    and energy alone where an hour has no price.
    Raises ValueError when a parameter is missing, out of range, or belongs to another metric.
    """

    name: str
    k: float | None = None
    energy_price: float | None = None
    hour_price: float | None = None
    max_slowdown: float | None = None
    carbon_price: float | None = None
    moving: bool = False

    def __post_init__(self) -> None:
        if not _is_known(self.name):
            meant = did_you_mean(self.name, _FORMS)
            raise ValueError(f"unknown metric '{self.name}'{meant}; choose one of {', '.join(_FORMS)}")
        if self.name == "eds":
            if self.k is None or not 1 < self.k < math.inf:
                raise ValueError(f"k is {self.k}; EDS needs a finite k above 1, such as 2")
        elif self.k is not None:
            raise ValueError(f"k belongs to the metric eds, not to {self.name}")
        self._check_prices()
        if self.max_slowdown is not None and not 0 < self.max_slowdown < math.inf:
            raise ValueError(f"the largest slowdown is {self.max_slowdown}; it must be above 0, such as 0.05")

    def _check_prices(self) -> None:
        prices = (self.energy_price, self.hour_price)
        if self.carbon_price is not None and self.name != "carbon":
            raise ValueError(f"a price of carbon belongs to the metric carbon, not to {self.name}")
        if self.name not in ("cost", "carbon"):
            if self.moving or any(price is not None for price in prices):
                raise ValueError(f"prices belong to the metric cost, not to {self.name}")
        elif self.moving:
            if not all(math.isfinite(price) for price in (*prices, self.carbon_price) if price is not None):
                raise ValueError(f"prices are {self.energy_price} per kWh and {self.hour_price} per hour; give numbers")
        elif self.name == "carbon":
            raise ValueError("the metric carbon needs the carbon of a kWh, in grams")
        else:
            if any(price is not None and not 0 <= price < math.inf for price in prices):
                raise ValueError(f"prices are {self.energy_price} per kWh and {self.hour_price} per hour; none < 0")
            if not any(prices):
                raise ValueError("the metric cost needs an energy price or an hour price above 0")

    def at(self, value: float) -> "Metric":
        """This metric, whose energy price moves, while a value is in force: money per kWh, of carbon grams per kWh."""
        if self.name == "carbon" and self.carbon_price is not None:
            value *= self.carbon_price / _G_PER_TONNE
        return replace(self, energy_price=value)

    @property
    def joule_price(self) -> float:
        """Money, or grams of CO₂, per joule."""
        return (self.energy_price or 0.0) / _J_PER_KWH

    def second_price(self, devices: int) -> float:
        """Money per second of all devices."""
        return (self.hour_price or 0.0) / _S_PER_HOUR * devices

    def with_second(self, second_price: float, devices: int) -> "Metric":
        """The same with another price of a second of all devices, money."""
        return replace(self, hour_price=second_price * _S_PER_HOUR / devices)

    def value(self, energy_ratio: float, time_ratio: float, baseline: Measurement) -> float:
        """The metric at e/e0 = energy_ratio and τ/τ0 = time_ratio."""
        joint, alone, _ = _slopes(self.terms(baseline), energy_ratio, time_ratio)
        return joint + alone + self.terms(baseline).constant

    def terms(self, baseline: Measurement) -> "Terms":
        """The numbers that make this metric of the form that all have."""
        return _FORMS[self.name].terms(self, baseline)

    @property
    def unit(self) -> str | None:
        """Of `total`; `None` where there is none."""
        return _FORMS[self.name].unit

    def total(self, energy_j: float, time_s: float, devices: int, most_w: float) -> float:
        """The metric of a whole run, in `unit`. most_w: the sum of the devices' largest limits. Raises ValueError where
        `unit` is `None`."""
        form = _FORMS[self.name]
        if form.total is None:
            raise ValueError(f"the metric {self.name} has no sum over a run")
        return form.total(self, energy_j, time_s, devices, most_w)

    def cost(self, measurement: Measurement, baseline: Measurement) -> Cost:
        """The metric of a measurement, to compare it with other caps': its error leaves out the baseline's, which all
        share."""
        found = self.versus(measurement, baseline)
        return replace(found, stderr=found.own, common=0.0)

    def predicted(self, prediction: Prediction, baseline: Measurement) -> Cost:
        """The metric of a cap that was not measured, with the error of what is believed."""
        return _with_error(self.terms(baseline), prediction.energy, prediction.time, prediction)

    def versus(self, measurement: Measurement, baseline: Measurement) -> Cost:
        """The metric of a measurement with the baseline's own error included, for all that is said of a cap."""
        return _versus(self.terms(baseline), measurement, baseline)

    def allows(self, measurement: Measurement, baseline: Measurement) -> bool:
        """Whether the upper end of the slowdown's two-sigma range, baseline's error included, is within the limit."""
        if self.max_slowdown is None:
            return True
        ratio, stderr = slowdown(measurement, baseline)
        return ratio + 2 * stderr <= 1 + self.max_slowdown

    def forbids(self, measurement: Measurement, baseline: Measurement, sigmas: float = 2.0) -> bool:
        """Whether even the lower end of the slowdown's range breaks the limit: no use in measuring on."""
        if self.max_slowdown is None:
            return False
        ratio, stderr = slowdown(measurement, baseline)
        return ratio - sigmas * stderr > 1 + self.max_slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A metric. terms: what it is made of, beside a baseline. total, unit: as `Metric` has them; `None` for one that
    has no sum over a run."""

    terms: Callable[[Metric, Measurement], Terms]
    unit: str | None = None
    total: Callable[[Metric, float, float, int, float], float] | None = None


def _eds(metric: Metric, baseline: Measurement) -> Terms:
    k = metric.k or DEFAULT_K
    return Terms(energy=(k - 1) / k, power=0, time=1 / k)


def _eds_total(metric: Metric, energy_j: float, time_s: float, devices: int, most_w: float) -> float:
    k = metric.k or DEFAULT_K
    return ((k - 1) * energy_j + most_w * time_s) / k


def _money_total(metric: Metric, energy_j: float, time_s: float, devices: int, most_w: float) -> float:
    return energy_j * metric.joule_price + time_s * metric.second_price(devices)


def _priced(metric: Metric, baseline: Measurement) -> Terms:
    if metric.moving and metric.energy_price is None:
        share = 0.5 if metric.hour_price else 1.0
        return Terms(energy=share, power=0, time=1 - share)
    money_e = baseline.energy_per_iteration_j / _J_PER_KWH * (metric.energy_price or 0.0)
    money_t = baseline.period_s / _S_PER_HOUR * len(baseline.setting) * (metric.hour_price or 0.0)
    if min(money_e, money_t) >= 0 and money_e + money_t > 0:
        share = money_e / (money_e + money_t)
        return Terms(energy=share, power=0, time=1 - share)
    unit = abs(money_e) + abs(money_t) or 1.0
    energy, time = money_e / unit, money_t / unit
    return Terms(energy=energy, power=0, time=time, constant=1 - energy - time)


_FORMS = {
    "energy": Form(
        terms=lambda metric, baseline: Terms(energy=1.0, power=0, time=0.0),
        unit="J",
        total=lambda metric, energy_j, *_: energy_j,
    ),
    "edp": Form(
        terms=lambda metric, baseline: Terms(energy=1.0, power=1, time=0.0),
        unit="J·s",
        total=lambda metric, energy_j, time_s, *_: energy_j * time_s,
    ),
    "ed2p": Form(
        terms=lambda metric, baseline: Terms(energy=1.0, power=2, time=0.0),
        unit="J·s²",
        total=lambda metric, energy_j, time_s, *_: energy_j * time_s**2,
    ),
    "eds": Form(terms=_eds, unit="J", total=_eds_total),
    "cost": Form(terms=_priced, unit="of money", total=_money_total),
    "carbon": Form(terms=_priced),
}
METRICS = tuple(_FORMS)
SUMMED = tuple(name for name, form in _FORMS.items() if form.total is not None)  # over a whole run
others: Callable[[], Mapping[str, Form]] = dict  # those of other packages: as autocap.job.registry finds them


def _is_known(name: str) -> bool:
    if name not in _FORMS:
        _FORMS.update(others())
    return name in _FORMS


_ENERGY, _TIME = Terms(energy=1.0, power=0, time=0.0), Terms(energy=0.0, power=0, time=1.0)


def ratios(measurement: Measurement, baseline: Measurement) -> dict[str, Cost]:
    """ "time" and "energy" per iteration over the baseline's, whose error is in those of both."""
    return {name: _versus(terms, measurement, baseline) for name, terms in (("time", _TIME), ("energy", _ENERGY))}


def slowdown(measurement: Measurement, baseline: Measurement) -> tuple[float, float]:
    """τ/τ0 and its standard error, baseline's error included."""
    time = ratios(measurement, baseline)["time"]
    return time.value, time.stderr


def _versus(terms: Terms, measurement: Measurement, baseline: Measurement) -> Cost:
    e = measurement.energy_per_iteration_j / baseline.energy_per_iteration_j
    t = measurement.period_s / baseline.period_s
    found = _with_error(terms, e, t, measurement)
    common = _with_error(terms, e, t, baseline).stderr
    shared = max(found.shared, _shared(terms, e, t, baseline))
    return replace(found, stderr=math.hypot(found.stderr, common), shared=shared, common=common)


def _with_error(terms: Terms, e: float, t: float, uncertain: Measurement | Prediction) -> Cost:
    """The metric at e/e0 = e and τ/τ0 = t, with the errors of what is uncertain."""
    joint, alone, slope_t = _slopes(terms, e, t)
    stderr = math.sqrt(_variance(uncertain, joint, slope_t))
    return Cost(value=joint + alone + terms.constant, stderr=stderr, shared=_shared(terms, e, t, uncertain))


def _shared(terms: Terms, e: float, t: float, uncertain: Measurement | Prediction) -> float:
    """Where a proxy stands for the iterations time and energy err together."""
    proxy = (uncertain.proxy_rel_stderr or 0.0) if isinstance(uncertain, Measurement) else 0.0
    joint, _, slope_t = _slopes(terms, e, t)
    return abs(joint + slope_t) * proxy


def _slopes(terms: Terms, e: float, t: float) -> tuple[float, float, float]:
    """The parts of the metric with energy and without, and its derivative by ln τ."""
    joint, alone = terms.energy * e * t**terms.power, terms.time * t
    return joint, alone, terms.power * joint + alone


def _variance(measurement: Measurement | Prediction, slope_e: float, slope_t: float) -> float:
    """Variance of a metric with these derivatives by ln e and ln τ (first order); infinite where an error that counts
    is not known."""
    sigma_e = slope_e * measurement.energy_rel_stderr if slope_e else 0.0
    sigma_t = slope_t * measurement.period_rel_stderr if slope_t else 0.0
    if not math.isfinite(sigma_e + sigma_t):
        return math.inf
    return max(0.0, sigma_e**2 + sigma_t**2 + 2 * measurement.time_energy_corr * sigma_e * sigma_t)
