"""What a run has cost and emitted, by numbers that can be worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.events import Event, Followed, Quoted, Sourced, Tally
from autocap.events.quote import CARBON, PRICE, Quote
from autocap.metrics import NO_RATES, Metric, Rates
from autocap.records import Measurement
from autocap.reports.figures import pictures
from autocap.reports.figures.model import Plot, Points
from autocap.reports.rendering import present_run, to_json_dict
from autocap.reports.summary.books import books, in_force
from autocap.reports.summary.gains import Measured
from autocap.reports.summary.record import Amount
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording.events import Wording
from autocap.runlog.columns import read_samples
from autocap.runlog.event_log import read_events
from tests.doubles.recorded import record

KWH = 3.6e6
HOUR = 3600.0
BASE = Measurement(
    setting=(300.0,), start_s=0.0, duration_s=100.0, iterations=100.0, period_s=1.0, period_rel_stderr=0.0,
    power_w=1000.0, power_rel_stderr=0.0, energy_per_iteration_j=1000.0, energy_rel_stderr=0.01, time_energy_corr=0.0,
)  # fmt: skip
SLOW = replace(BASE, setting=(200.0,), period_s=1.25, energy_per_iteration_j=800.0, energy_rel_stderr=0.02)
MEASURED = [Measured(measurement=SLOW, baseline=BASE)]
COST = Metric(name="cost", hour_price=0.0, moving=True)


def tally(hours: float, kwh: float, iterations: float, paused_s: float = 0.0, paused_j: float = 0.0) -> Tally:
    return Tally(
        t_s=100 + HOUR * hours, since_s=100.0, elapsed_s=HOUR * hours, energy_j=KWH * kwh, iterations=iterations,
        counted_s=HOUR * hours, counted_j=KWH * kwh, exploration_s=0.0, exploration_energy_j=0.0,
        exploration_iterations=0.0, paused_s=paused_s, paused_j=paused_j,
    )  # fmt: skip


def quoted(hours: float, value: float | None, kind: str = PRICE) -> Quoted:
    return Quoted(t_s=100 + HOUR * hours, kind=kind, value=value, until_s=None)


# An hour at 1000 W and the baseline's speed, dear, then an hour at 640 W (SLOW), cheap.
DEAR_THEN_CHEAP: Sequence[Event] = (
    Sourced(t_s=0.0, kind=PRICE, source="'file:p'", currency="EUR"),
    quoted(0, 0.4), tally(1, 1.0, 3600), quoted(1, 0.1), tally(1.5, 1.32, 3600 + 1440), tally(2, 1.64, 3600 + 2880),
)  # fmt: skip


def money(amount: Amount | None) -> float:
    return amount.value


def test_what_was_spent_is_each_hours_energy_at_its_own_price() -> None:
    found = books(DEAR_THEN_CHEAP, NO_RATES, COST, None, [], [])
    assert found.spent.money == Amount(value=pytest.approx(0.4 + 0.064), stderr=0.0)
    assert found.price == pytest.approx(0.464 / 1.64)
    assert (found.price_known, found.currency, found.price_source) == (1.0, "EUR", "'file:p'")
    assert (found.baseline, found.constant) == (None, None)


def test_under_another_cap_the_same_work_falls_into_other_hours() -> None:
    metric = in_force(COST, DEAR_THEN_CHEAP, NO_RATES)
    found = books(DEAR_THEN_CHEAP, NO_RATES, metric, BASE, MEASURED, [])
    # 6480 iterations of 1 s: an hour at 1 kW and 0.4, 2880 s of it at 0.1.
    assert money(found.baseline.money) == pytest.approx(0.4 + 0.1 * 2880 / HOUR)
    assert found.baseline.time_s.value == pytest.approx(6480.0)
    # Of 1.25 s: an hour at 640 W and 0.4, the other 4500 s at 0.1.
    assert found.constant.setting == (200.0,)
    assert money(found.constant.money) == pytest.approx(0.64 * 0.4 + 0.64 * 0.1 * 4500 / HOUR)
    assert found.constant.money.stderr == pytest.approx(found.constant.money.value * math.hypot(0.01, 0.02))


def test_the_best_constant_cap_depends_on_what_an_hour_is_worth() -> None:
    for hour_price, cap_w in ((0.0, 200.0), (10.0, 300.0)):
        metric = in_force(replace(COST, hour_price=hour_price), DEAR_THEN_CHEAP, NO_RATES)
        found = books(DEAR_THEN_CHEAP, NO_RATES, metric, BASE, MEASURED, [])
        assert found.constant.setting == (cap_w,)
        assert money(found.spent.cost) == pytest.approx(0.464 + 2 * hour_price)
        assert money(found.constant.cost) <= money(found.baseline.cost if found.baseline else None)


def test_at_prices_below_0_more_energy_costs_less() -> None:
    events = [quoted(0, -0.1), tally(2, 1.64, 6480)]
    found = books(events, NO_RATES, in_force(COST, events, NO_RATES), BASE, MEASURED, [])
    assert found.constant.setting == (300.0,)
    assert money(found.constant.money) == pytest.approx(-0.1 * 1.8)


def test_a_cap_beyond_the_limit_on_slowdown_is_no_constant_one() -> None:
    metric = replace(in_force(COST, DEAR_THEN_CHEAP, NO_RATES), max_slowdown=0.1)
    found = books(DEAR_THEN_CHEAP, NO_RATES, metric, BASE, MEASURED, [])
    assert found.constant.setting == (300.0,)


@pytest.mark.slow
def test_a_log_that_is_read_again_says_the_same_as_the_run_did_at_its_end(run: Path) -> None:
    events = read_events(run)
    more = [one for event in events for one in ((event, event) if isinstance(event, Tally) else (event,))]
    assert summarise(more).books == summarise(events).books


def test_pauses_cost_the_same_under_every_cap() -> None:
    events = [quoted(0, 0.2), tally(2, 1.64, 3240, paused_s=HOUR, paused_j=0.5 * KWH)]
    found = books(events, NO_RATES, in_force(COST, events, NO_RATES), BASE, [], [])
    assert found.baseline.time_s.value == pytest.approx(3240 + HOUR)
    assert money(found.baseline.money) == pytest.approx(0.2 * (3240 * 1000 / KWH + 0.5))


def test_what_was_not_known_throughout_is_not_compared() -> None:
    events = [*DEAR_THEN_CHEAP, quoted(0, 300.0, CARBON), quoted(1, None, CARBON)]
    found = books(events, NO_RATES, in_force(COST, events, NO_RATES), BASE, MEASURED, [])
    assert (found.carbon, found.carbon_known) == (300.0, pytest.approx(1 / 1.64))
    assert found.spent.carbon_g == Amount(value=pytest.approx(300.0), stderr=0.0)
    assert found.baseline.carbon_g is None
    assert found.baseline.money is not None


def test_a_number_goes_before_what_was_read_and_holds_all_the_time() -> None:
    found = books(DEAR_THEN_CHEAP, Rates(energy_price=1.0, currency="€", carbon_g_per_kwh=500.0), COST, None, [], [])
    assert (money(found.spent.money), money(found.spent.carbon_g)) == pytest.approx((1.64, 820.0))
    assert (found.currency, found.price_source) == ("€", None)


def test_where_nobody_said_what_energy_costs_there_are_no_books() -> None:
    assert books([tally(1, 1.0, 3600)], NO_RATES, COST, BASE, MEASURED, []) is None
    assert books([quoted(0, 0.1)], NO_RATES, COST, BASE, MEASURED, []) is None


def test_a_job_that_is_counted_anew_is_booked_from_then_on() -> None:
    anew = replace(tally(1, 1.0, 3600), since_s=100 + 2 * HOUR, t_s=100 + 3 * HOUR)
    found = books([*DEAR_THEN_CHEAP, anew], NO_RATES, COST, None, [], [])
    assert money(found.spent.money) == pytest.approx(0.1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of some 21 minutes in virtual time, whose price falls to a tenth in the middle."""
    quote = Quote(kind=PRICE, values=((0.0, 0.2), (400.0, 0.02)), until_s=1e5)
    return record(
        tmp_path_factory.mktemp("followed") / "run",
        metric=Metric(name="cost", hour_price=0.02, moving=True),
        quotes=[(0.0, PRICE, quote), (400.5, PRICE, quote)],
        iterations=2400,
    )


@pytest.mark.slow
def test_a_run_that_followed_says_what_that_was_worth(run: Path) -> None:
    events = read_events(run)
    summary = summarise(events)
    moves = [event for event in events if isinstance(event, Followed)]
    assert summary.books.moves == len(moves) >= 1
    constant, spent = summary.books.constant, summary.books.spent
    assert money(spent.cost) < money(constant.cost)
    result = to_json_dict(summary)
    assert isinstance(result["books"], dict)
    assert list(result["books"]["spent"]) == ["cap_w", "source", "time_s", "energy_j", "money", "carbon_g", "cost"]  # type: ignore[call-overload,index,arg-type]
    shown = present_run(run, events).document
    (table,) = [table for table in shown.tables if table.heading == "What the work cost"]
    assert [row[-1] for row in table.rows] == [
        "this run, the search included",
        "the limit found on arrival, all the time",
        "the best constant cap, all the time",
    ]
    assert table.titles == ("cap W", "s", "Wh", "EUR", "cost, EUR", "")
    assert any(remark.startswith("against the best constant cap: cost -") for remark in shown.remarks)
    assert shown.headline.startswith("Caps followed the price: 11 % less cost against the limit found on arrival, ")
    assert shown.headline.endswith(" EUR in this run, search included (emulated)")


@pytest.mark.slow
def test_the_value_and_the_moves_stand_above_each_other_with_the_power(run: Path) -> None:
    events = read_events(run)
    timeline = pictures(summarise(events), events, read_samples(run))[0]
    labels = [panel.y.label for panel in timeline.panels if isinstance(panel, Plot)]
    assert labels == ["power, W", "EUR per kWh", "time per iteration, s"]
    value = next(panel for panel in timeline.panels if isinstance(panel, Plot) and panel.y.label == "EUR per kWh")
    line, moves = value.marks
    assert np.unique(line.y).tolist() == [0.02, 0.2]  # type: ignore[union-attr]
    assert isinstance(moves, Points)
    assert len(moves.x) == summarise(events).books.moves  # type: ignore[union-attr]


def test_values_are_told_as_they_change(run: Path) -> None:
    wording = Wording()
    lines = [line for event in read_events(run) if (line := wording.line(event)) is not None]
    told = [line for line in lines if "per kWh" in line]
    assert told[0] == "the energy price is 0.2 EUR per kWh"
    assert told[1].startswith("following to 125 W at 0.2 EUR per kWh: ")
    assert told[2] == "the energy price is 0.02 EUR per kWh"
    assert told[3].startswith("following to 260 W at 0.02 EUR per kWh: ")
    assert lines[1] == "the energy price is read from 'file:price.csv'"
    nearly = [quoted(0, 300.0, CARBON), quoted(1, 310.0, CARBON), quoted(2, None, CARBON), quoted(3, None, CARBON)]
    assert [wording.line(event) for event in nearly] == [
        "the carbon of electricity is 300 g CO₂ per kWh", None, "the carbon of electricity is not known any more", None,
    ]  # fmt: skip
