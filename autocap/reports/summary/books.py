"""What a run has cost and emitted, and what its work would have under other caps.

What it spent is the sum, over the stretches between its running totals, of their energy times the value in force then.
Under another cap the same iterations are made one after the other, each with that cap's time and energy, and the
pauses in between are as they were; so the work moves to other hours, as it would have. After the run's end the last
value holds. Errors are those of the measured ratios and of the baseline, to first order; totals have none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap.events import Event, Followed, LastTotals, Quoted, Sourced, Tally
from autocap.events.quote import CARBON, PRICE
from autocap.metrics import Metric, Rates
from autocap.records import Cost, Measurement, Prediction
from autocap.reports.summary.gains import ENERGY, METRICS, TIME, CapCosts, Measured, costs_by_cap, costs_predicted
from autocap.reports.summary.record import MEASURED, PREDICTED, Account, Amount, CostAccounts

Floats = NDArray[np.float64]
_SHORTEST_S = 1e-9
_EVER_S = 1e9  # before the first value, and after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCourse:
    """at_s: seconds on the run's clock, shape (n,), ascending. values: per kWh from then on, shape (n,), NaN from where
    on none was known. The last one holds for whatever comes after the run."""

    at_s: Floats
    values: Floats

    def over(self, from_s: Floats, to_s: Floats) -> tuple[Floats, Floats]:
        """Of stretches of time, shape (m,) each: the mean of the values while they were known, and for which share of
        the stretch they were."""
        to_s = np.maximum(to_s, from_s + _SHORTEST_S)
        known = np.isfinite(self.values)
        edges_s = np.concatenate(([-_EVER_S], self.at_s, [_EVER_S]))
        value = np.concatenate(([0.0], np.where(known, self.values, 0.0)))
        there = np.concatenate(([0.0], known.astype(float)))

        def integral(of: Floats) -> Floats:
            sums = np.concatenate(([0.0], np.cumsum(of * np.diff(edges_s))))
            return np.interp(to_s, edges_s, sums) - np.interp(from_s, edges_s, sums)

        known_s = integral(there)
        mean = np.divide(integral(value), known_s, out=np.zeros_like(known_s), where=known_s > 0)
        return mean, known_s / (to_s - from_s)

    def amounts(self, kwh: Floats, from_s: Floats, to_s: Floats) -> Floats:
        """What energy comes to that is used evenly over each stretch of time; none where no value was known."""
        mean, share = self.over(from_s, to_s)
        return kwh * share * mean


def courses(events: Sequence[Event], rates: Rates) -> dict[str, ValueCourse]:
    """By kind, those that are known at all: a number that was given holds all the time."""
    found: dict[str, ValueCourse] = {}
    for kind, number in ((PRICE, rates.energy_price), (CARBON, rates.carbon_g_per_kwh)):
        quoted = [event for event in events if isinstance(event, Quoted) and event.kind == kind]
        if number is not None:
            found[kind] = ValueCourse(at_s=np.zeros(1), values=np.array([number]))
        elif any(event.value is not None for event in quoted):
            values = [np.nan if event.value is None else event.value for event in quoted]
            at_s = np.maximum.accumulate(np.array([event.from_s for event in quoted], dtype=float))
            found[kind] = ValueCourse(at_s=at_s, values=np.array(values))
    return found


_LEAST_COUNTED = 0.8  # share of the run; with less of it counted, the rest may have been different


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """All of shape (n,): when each stretch began, how long it was, its energy, and the iterations in it; active_*: of
    the time and energy, what was iterations. counted: whether enough was for the whole run to be spoken for."""

    from_s: Floats
    seconds: Floats
    joules: Floats
    iterations: Floats
    active_s: Floats
    active_j: Floats
    counted: bool

    @property
    def to_s(self) -> Floats:
        return self.from_s + self.seconds

    @property
    def paused_s(self) -> Floats:
        """Seconds of pauses, and of what was not counted."""
        return np.maximum(0.0, self.seconds - self.active_s)

    @property
    def paused_j(self) -> Floats:
        return np.maximum(0.0, self.joules - self.active_j)


def work_done(events: Sequence[Event]) -> WorkDone | None:
    """That of the last count of iterations, as a job that is counted anew begins anew; `None` where there is none.

    Of totals that follow each other the last counts (`LastTotals`), as a log is read.
    """
    tallies, last_totals = list[Tally](), LastTotals()
    for event in events:
        if last_totals.replaces(event):
            tallies.pop()
        if isinstance(event, Tally):
            tallies.append(event)
    if not tallies:
        return None
    rows = [_row(one) for one in tallies if one.since_s == tallies[-1].since_s]
    table = np.diff(np.array([(0.0,) * 5, *rows]), axis=0)
    elapsed_s = np.array([0.0, *(row[0] for row in rows)])
    longer = table[:, 0] > 0
    if not longer.any():
        return None
    last = tallies[-1]
    counted = last.iterations > last.paused_iterations and last.counted_s >= _LEAST_COUNTED * last.elapsed_s
    seconds, joules, iterations, active_s, active_j = table[longer].T
    return WorkDone(
        from_s=last.since_s + elapsed_s[:-1][longer],
        seconds=seconds,
        joules=joules,
        iterations=iterations,
        active_s=active_s,
        active_j=active_j,
        counted=counted and last.counted_s > last.paused_s,
    )


def _row(tally: Tally) -> tuple[float, ...]:
    return (
        tally.elapsed_s,
        tally.energy_j,
        tally.iterations - tally.paused_iterations,
        tally.counted_s - tally.paused_s,
        tally.counted_j - tally.paused_j,
    )


_J_PER_KWH = 3.6e6
_G_PER_TONNE = 1e6
_METRIC = "metric"
_THROUGHOUT = 0.99  # share of the energy; else other caps would have worked more, or less, while a value was known
VALUED = {"cost": PRICE, "carbon": CARBON}
"""Of the metrics in which a kWh has a value, the kind of that."""


def in_force(metric: Metric, events: Sequence[Event], rates: Rates) -> Metric:
    """A metric whose value moves, at the mean of that over the run's energy; others as they are."""
    course, work = courses(events, rates).get(VALUED.get(metric.name, "")), work_done(events)
    if not metric.moving or course is None or work is None:
        return metric
    mean, share = _mean(course, work)
    return metric.at(mean) if share > 0 else metric


def books(
    events: Sequence[Event],
    rates: Rates,
    metric: Metric,
    base: Measurement | None,
    measured: Sequence[Measured],
    predicted: Sequence[Prediction],
) -> CostAccounts | None:
    """The accounts of a run; `None` where nobody said what a kWh costs or emits, or nothing was counted.

    metric: as `in_force` has it. base: what the kept cap is compared with; `None` where the run cannot be compared.
    """
    known, work = courses(events, rates), work_done(events)
    if not known or work is None:
        return None
    sources = {event.kind: event for event in events if isinstance(event, Sourced)}
    price, carbon = (_mean(known[kind], work) if kind in known else (None, None) for kind in (PRICE, CARBON))
    accounts = _Accounts(known=known, work=work, metric=metric)
    shares = {PRICE: price[1], CARBON: carbon[1]}
    throughout = {kind: course for kind, course in known.items() if (shares[kind] or 0.0) >= _THROUGHOUT}
    others = replace(accounts, known=throughout)
    comparable = base is not None and not base.is_relative and work.counted
    return CostAccounts(
        price_source=sources[PRICE].source if PRICE in sources and rates.energy_price is None else None,
        carbon_source=sources[CARBON].source if CARBON in sources and rates.carbon_g_per_kwh is None else None,
        currency=rates.currency or (sources[PRICE].currency if PRICE in sources else None),
        price=price[0],
        carbon=carbon[0],
        price_known=price[1],
        carbon_known=carbon[1],
        spent=accounts.as_it_was(1 if base is None else len(base.setting)),
        baseline=others.at_baseline(base) if comparable and base else None,
        constant=others.best_constant(base, measured, predicted) if comparable and base else None,
        moves=sum(isinstance(event, Followed) for event in events),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accounts:
    """Of a run's work. known: values over time, by kind."""

    known: Mapping[str, ValueCourse]
    work: WorkDone
    metric: Metric

    def as_it_was(self, devices: int) -> Account:
        """The run itself."""
        work = self.work
        values = self._values(work.joules, work.from_s, work.to_s)
        return self._account(float(work.seconds.sum()), float(work.joules.sum()), values, devices)

    def at_baseline(self, base: Measurement) -> Account:
        """All of it at the limits of the baseline."""
        return self._under(base, _row_of(base), MEASURED)

    def best_constant(
        self, base: Measurement, measured: Sequence[Measured], predicted: Sequence[Prediction]
    ) -> Account:
        """All of it at the one cap that is best by the metric, the baseline's among them. One that was only predicted
        is, where it is better by more than both errors."""
        metrics = {ENERGY: METRICS[ENERGY], _METRIC: self.metric}
        shown = costs_by_cap(measured, base, metrics)
        settings = {row.setting for row in shown}
        likely = [row for row in costs_predicted(predicted, base, metrics) if row.setting not in settings]
        best, rank = self._best(base, shown)
        if any(map(self._allows, likely)):
            other, its_rank = self._best(base, likely)
            if its_rank.value + math.hypot(rank.stderr, its_rank.stderr) < rank.value:
                return self._under(base, other, PREDICTED)
        return self._under(base, best, MEASURED)

    def _best(self, base: Measurement, rows: Sequence[CapCosts]) -> tuple[CapCosts, Cost]:
        ranked = [(row, self._rank(base, row)) for row in rows if self._allows(row)]
        return min(ranked, key=lambda one: one[1].value)

    def _allows(self, row: CapCosts) -> bool:
        most = self.metric.max_slowdown
        return most is None or row.costs[TIME].value <= 1 + most

    def _rank(self, base: Measurement, row: CapCosts) -> Cost:
        """By what caps are compared, with the error in which the baseline has no part."""
        of = row.costs[_METRIC]
        found = self._under(base, row, MEASURED).cost
        return of if found is None else Cost(value=found.value, stderr=of.own * self._unit(base))

    def _under(self, base: Measurement, row: CapCosts, source: str) -> Account:
        """All of it under one cap, with which an iteration takes another energy and time."""
        energy, time, work = row.costs[ENERGY], row.costs[TIME], self.work
        joules, seconds = base.energy_per_iteration_j * energy.value, base.period_s * time.value
        active_s, active_j = work.iterations * seconds, work.iterations * joules
        ends_s = work.from_s[0] + np.cumsum(active_s + work.paused_s)
        pauses_s = ends_s - work.paused_s
        active = self._values(active_j, pauses_s - active_s, pauses_s)
        paused = self._values(work.paused_j, pauses_s, ends_s)
        bare = self._account(
            float((active_s + work.paused_s).sum()),
            float((active_j + work.paused_j).sum()),
            {kind: active[kind] + paused[kind] for kind in self.known},
            len(base.setting),
        )
        of_energy = math.hypot(energy.own / energy.value, base.energy_rel_stderr)
        of_time = math.hypot(time.own / time.value, base.period_rel_stderr)
        there = self.metric.cost(replace(base, energy_per_iteration_j=joules, period_s=seconds), base)
        return Account(
            setting=row.setting,
            source=source,
            time_s=replace(bare.time_s, stderr=float(active_s.sum()) * of_time),
            energy_j=replace(bare.energy_j, stderr=float(active_j.sum()) * of_energy),
            money=_unsure(bare.money, of_energy * active.get(PRICE, 0.0)),
            carbon_g=_unsure(bare.carbon_g, of_energy * active.get(CARBON, 0.0)),
            cost=_unsure(bare.cost, self._unit(base) * math.hypot(row.costs[_METRIC].own, there.stderr)),
        )

    def _values(self, joules: Floats, from_s: Floats, to_s: Floats) -> dict[str, float]:
        kwh = joules / _J_PER_KWH
        return {kind: float(course.amounts(kwh, from_s, to_s).sum()) for kind, course in self.known.items()}

    def _account(self, time_s: float, energy_j: float, values: Mapping[str, float], devices: int) -> Account:
        """Without errors. values: money or grams, by kind."""
        cost, kind = None, VALUED.get(self.metric.name)
        if kind is not None and (kind in self.known or not (self.metric.moving or self.metric.joule_price)):
            value = values.get(kind, 0.0)
            if self.metric.carbon_price is not None:
                value *= self.metric.carbon_price / _G_PER_TONNE
            cost = value + self.metric.second_price(devices) * time_s
        return Account(
            setting=None,
            source=None,
            time_s=Amount(value=time_s, stderr=0.0),
            energy_j=Amount(value=energy_j, stderr=0.0),
            money=_exact(values.get(PRICE)),
            carbon_g=_exact(values.get(CARBON)),
            cost=_exact(cost),
        )

    def _unit(self, base: Measurement) -> float:
        """What 1 of the metric stands for, over the whole run."""
        energy = abs(self.metric.joule_price) * base.energy_per_iteration_j
        time = self.metric.second_price(len(base.setting)) * base.period_s
        return float(self.work.iterations.sum()) * (energy + time)


def _row_of(base: Measurement) -> CapCosts:
    exact = dict.fromkeys((TIME, ENERGY, _METRIC), Cost(value=1.0, stderr=0.0))
    return CapCosts(setting=base.setting, costs=exact)


def _exact(value: float | None) -> Amount | None:
    return None if value is None else Amount(value=value, stderr=0.0)


def _unsure(amount: Amount | None, stderr: float) -> Amount | None:
    return None if amount is None else replace(amount, stderr=abs(stderr))


def _mean(course: ValueCourse, work: WorkDone) -> tuple[float, float]:
    """The mean of a value over the energy of a run, and for which share of that there was one."""
    mean, share = course.over(work.from_s, work.to_s)
    known_j, joules = float((work.joules * share).sum()), float(work.joules.sum())
    if known_j <= 0:
        return 0.0, 0.0
    return float((work.joules * share * mean).sum()) / known_j, known_j / joules
