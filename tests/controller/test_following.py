"""Caps that follow a price: whole jobs with the real controller, in virtual time; intervals are short.

What an iteration is worth, and a second, while prices move.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from autocap import events
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.controller.context import Announce
from autocap.controller.controller import Controller
from autocap.controller.following import Choices, Spans, worth
from autocap.devices.model import profiles
from autocap.events import State
from autocap.events.quote import CARBON, PRICE, Quote
from autocap.metrics import NO_RATES, Metric
from autocap.records import StepReading
from autocap.reports.summary.books import books
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from bench.prices.command import Job, TwoValleys, reference, swinging
from bench.simulation.jobs import Outcome, tune
from tests.controller.test_controller import deaf
from tests.doubles.feeds import samples
from tests.doubles.logs import announced, held_at, states, warnings

VGG19 = profiles.load("tesla-v100/vgg19")
FOUND_W = 300.0
INTERVAL_S = 200.0
LATE_S = 0.7  # in which a change of the value is noticed
JITTER = 0.002  # so little that what is held is soon known closely
COST = Metric(name="cost", hour_price=0.1, moving=True)
Told = Sequence[tuple[float, str, Quote | None]]


def prices(*values: float, kind: str = PRICE) -> list[tuple[float, str, Quote | None]]:
    """Each is told as its interval begins, and those to come are known."""
    pairs = [(INTERVAL_S * index, value) for index, value in enumerate(values)]
    end_s = INTERVAL_S * len(values)
    return [
        (from_s, kind, Quote(kind=kind, values=tuple(pairs[index:]), until_s=end_s))
        for index, (from_s, _) in enumerate(pairs)
    ]


def steady(quotes: Told, metric: Metric) -> list[tuple[State, bool]]:
    """At each sample the state, and whether nothing would be missed without samples for some seconds."""
    found = []

    def counter(device: SimulatedDevice, clock: Clock, controller: Controller) -> Callable[[], StepReading | None]:
        def read() -> StepReading | None:
            found.append((controller.state, controller.is_steady))
            return device.steps(clock.now())

        return read

    job, config = SimulatedJob(profile=VGG19, jitter=JITTER), TuneConfig(metric=metric)
    tune(job, config, "model", quotes=quotes, end_s=0.9 * INTERVAL_S, seed=1, counter=counter)
    return found


def followed(quotes: Told, metric: Metric = COST, *, intervals: float) -> Outcome:
    job, config = SimulatedJob(profile=VGG19, jitter=JITTER), TuneConfig(metric=metric)
    return tune(job, config, "model", quotes=quotes, end_s=intervals * INTERVAL_S, seed=1)


def ends_w(outcome: Outcome, intervals: int) -> list[float]:
    """The cap at the end of each interval, watts."""
    return [held_at(outcome, INTERVAL_S * (index + 1) - 1, FOUND_W) for index in range(intervals)]


VALUES = (0.3, 0.45, 0.15, 0.45, 0.15, -0.05, 0.3)


@pytest.fixture(scope="module")
def day() -> Outcome:
    unknown = [(INTERVAL_S * (len(VALUES) + more), PRICE, None) for more in (0, 1)]
    return followed([*prices(*VALUES), *unknown], intervals=len(VALUES) + 2)


@pytest.mark.slow
def test_the_cap_is_lower_where_energy_is_dearer_and_the_limit_found_where_it_costs_less_than_nothing(day) -> None:
    caps_w = ends_w(day, len(VALUES))
    assert max(caps_w[1], caps_w[3]) < min(caps_w[2], caps_w[4])
    assert caps_w[5] == FOUND_W
    assert caps_w[3] <= caps_w[6] <= caps_w[4]


def test_caps_change_for_a_value_once_in_an_interval_at_most_and_say_what_that_saves(day: Outcome) -> None:
    moves = announced(day, events.Followed)
    assert [int(one.t_s // INTERVAL_S) for one in moves] == sorted({int(one.t_s // INTERVAL_S) for one in moves})
    assert all(one.gain > one.gain_stderr for one in moves)
    known = [one for one in moves if one.t_s < INTERVAL_S * len(VALUES)]
    assert all(one.value == VALUES[int(one.t_s // INTERVAL_S)] for one in known)


def test_no_new_search_is_made_and_whatever_holds_below_the_limit_found_was_confirmed(day: Outcome) -> None:
    assert states(day).count(State.BASELINE) == 1
    confirmed = {one.setting for one in announced(day, events.Decided) if one.confirmed} | {FOUND_W}
    assert set(ends_w(day, len(VALUES))) <= confirmed


def test_each_value_is_told_when_it_comes_into_force(day: Outcome) -> None:
    told = announced(day, events.Quoted)
    assert [one.value for one in told] == [*VALUES, None]
    assert all(0 <= then.t_s - one.until_s < 10 for one, then in pairwise(told))


def test_where_no_value_is_known_any_more_the_caps_go_by_the_mean_of_what_was_and_it_is_said_once(day: Outcome) -> None:
    expected = "the price of electricity is not known any more; until it is, caps go by the mean of what it was"
    assert [text for text in warnings(day) if "price" in text] == [expected]
    caps_w = ends_w(day, len(VALUES) + 2)
    assert caps_w[1] < caps_w[-2] == caps_w[-1] < caps_w[4]


@pytest.mark.slow
def test_samples_may_be_left_out_for_some_seconds_at_a_held_cap_unless_a_value_is_followed() -> None:
    plain = steady([], Metric(name="energy"))
    assert [state for state, is_steady in plain if is_steady][-100:] == [State.HOLDING] * 100
    assert not any(is_steady for state, is_steady in plain if state is not State.HOLDING)
    there = steady(prices(0.3, 0.45), COST)
    assert there[-1][0] is State.HOLDING
    assert not any(is_steady for _, is_steady in there)


@pytest.mark.slow
def test_a_metric_without_a_source_only_tells_the_values() -> None:
    outcome = followed(prices(0.45, 0.15), Metric(name="energy"), intervals=1.1)
    plain = followed([], Metric(name="energy"), intervals=1.1)
    said = events.Quoted | events.Tally  # totals are announced where a value changes
    told = [event for event in outcome.log.events if not isinstance(event, said)]
    assert told == [event for event in plain.log.events if not isinstance(event, said)]


@pytest.mark.slow
def test_a_slowdown_that_is_allowed_over_the_whole_job_is_saved_up_before_it_is_spent() -> None:
    metric = Metric(name="carbon", moving=True, max_slowdown=0.03)
    outcome = followed(prices(300, 100, 450, 100, 450, 450, kind=CARBON), metric, intervals=6)
    ends_s = outcome.device.true_ends_s()
    done = len(ends_s)
    assert outcome.wall_s / done <= 1.03 * VGG19.time_s(FOUND_W) * 1.003
    caps_w = ends_w(outcome, 6)
    assert caps_w[4] < min(caps_w[1], caps_w[3])


@pytest.mark.slow
def test_a_job_is_done_in_time_and_uses_the_time_where_energy_is_cheap() -> None:
    values = (0.3, 0.45, 0.15, 0.45, 0.15, 0.15)
    iterations = round(5.4 * INTERVAL_S / VGG19.time_s(FOUND_W))
    metric = Metric(name="cost", moving=True)
    job = SimulatedJob(profile=VGG19, jitter=JITTER, iterations=iterations)
    config = TuneConfig(metric=metric, iterations=iterations)
    outcome = tune(job, config, "model", quotes=prices(*values), seed=1, finish_s=6 * INTERVAL_S)
    assert outcome.device.job_ended
    assert 5.5 * INTERVAL_S < outcome.wall_s <= 6 * INTERVAL_S
    caps_w = ends_w(outcome, 5)
    assert caps_w[3] < caps_w[2]


@pytest.fixture(scope="module", params=[10.0, 25.0])
def fickle(request: pytest.FixtureRequest) -> tuple[float, Outcome]:
    """A price that is high or low in turn, for less time than any confirmation takes; it is noticed late."""
    step_s: float = request.param
    pairs = [(step_s * index, 0.45 if index % 2 else 0.05) for index in range(round(600 / step_s))]
    told: Told = [
        (from_s + LATE_S, PRICE, Quote(kind=PRICE, values=tuple(pairs[index:]), until_s=600.0))
        for index, (from_s, _) in enumerate(pairs)
    ]
    return step_s, followed(told, intervals=600 / INTERVAL_S)


@pytest.mark.slow
def test_what_was_spent_is_exact_however_often_the_value_changes(fickle: tuple[float, Outcome]) -> None:
    step_s, outcome = fickle
    found = books(outcome.log.events, NO_RATES, COST, None, [], [])
    tallies = announced(outcome, events.Tally)
    end_s = tallies[-1].since_s + tallies[-1].elapsed_s
    edges_s = [tallies[0].since_s, *np.arange(step_s, 600, step_s).tolist(), end_s]
    spent = [
        sum(outcome.device.true_energy_j(from_s, to_s)) * (0.45 if from_s // step_s % 2 else 0.05) / 3.6e6
        for from_s, to_s in pairwise(edges_s)
    ]
    assert found.spent.money.value == pytest.approx(sum(spent), rel=0.005)


def test_no_cap_is_announced_but_by_the_value_that_holds_and_none_is_left_again_at_once(fickle) -> None:
    step_s, outcome = fickle
    moves = announced(outcome, events.Followed)
    quoted = announced(outcome, events.Quoted)
    for move in moves:
        holds = [one for one in quoted if one.t_s <= move.t_s][-1]
        assert move.value == holds.value
        assert move.gain > 0
    assert len({(one.t_s - LATE_S) // step_s for one in moves}) == len(moves)


@pytest.mark.slow
def test_a_confirmation_stops_where_the_value_wants_another_cap_and_goes_on_with_what_it_has() -> None:
    day = followed(prices(0.3, 0.3, 0.45, -0.2, 0.45, 0.45), intervals=6)
    at_s = 3 * INTERVAL_S
    confirming = [one for one in announced(day, events.StateEntered) if one.state is State.CONFIRMING]
    assert held_at(day, at_s + 1.0, FOUND_W) == FOUND_W, "energy that is paid for is not saved"
    assert all(not at_s < one.t_s < at_s + INTERVAL_S for one in confirming)


@pytest.mark.slow
def test_a_second_valley_of_the_curve_is_found_by_a_look_at_what_nobody_has_tried() -> None:
    values = swinging(4, 0.5)
    job = Job(TwoValleys(profiles.load("tesla-v100/resnet152"), 210.0), 0.1, 30)
    could, spent = reference(job, values), job.follow(values).per_iteration
    assert could.constant - spent > 0.8 * (could.constant - could.perfect)


def test_quotes_are_taken_in_any_state() -> None:
    quote = prices(0.3)[0][2]
    under_test = deaf()
    assert under_test.quote(0.0, PRICE, None) == [
        Announce(event=events.Quoted(t_s=0.0, kind=PRICE, value=None, until_s=None))
    ]
    for sample in samples(seconds=2.0, period_s=0.25):
        under_test.feed(sample)
    under_test.stop(2.0, "a signal asked for the end")
    told = under_test.quote(3.0, PRICE, quote)[-1]
    assert told == Announce(event=events.Quoted(t_s=3.0, kind=PRICE, value=0.3, until_s=INTERVAL_S))
    assert under_test.quote(4.0, PRICE, quote) == []
    with pytest.raises(ValueError, match="a quote is of price or of carbon, not of 'wind'"):
        under_test.quote(5.0, "wind", None)


RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
CAPS_W = np.arange(100.0, 261.0, 5.0)
CHOICES = Choices.of(RESNET50.time_s(CAPS_W).tolist(), RESNET50.energy_j(CAPS_W).tolist())
SECOND = 0.1 / 3600  # money
KWH = 3.6e6
DAY: Spans = [(3600.0, 0.3 * (1 + 0.5 * np.sin(2 * np.pi * hour / 24)) / KWH) for hour in range(24)]
NEGATIVE: Spans = [(3600.0, price / KWH) for price in (0.3, 0.2, -0.1, 0.25)]


def per_iteration(spans: Spans, caps: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> float:
    """What one costs with a cap in each span, money."""
    money = sum(span_s * (price * CHOICES.powers_w[cap] + SECOND) for (span_s, price), cap in zip(spans, caps))  # noqa: B905
    return money / sum(span_s * CHOICES.rates[cap] for (span_s, _), cap in zip(spans, caps))  # noqa: B905


def chosen(spans: Spans, value: float) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    return CHOICES.chosen(np.array([price for _, price in spans]), value)


def test_where_the_price_does_not_move_a_second_is_worth_what_it_costs() -> None:
    value = worth(CHOICES, [(3600.0, 0.3 / KWH)], SECOND)
    assert CHOICES.time_value(0.3 / KWH, value) == pytest.approx(SECOND)
    costs = (0.3 / KWH * CHOICES.powers_w + SECOND) / CHOICES.rates
    assert value == pytest.approx(costs.min())


@pytest.mark.parametrize("spans", [DAY, NEGATIVE])
def test_no_schedule_of_caps_that_is_found_by_hand_is_cheaper(spans: Spans) -> None:
    best = per_iteration(spans, chosen(spans, worth(CHOICES, spans, SECOND)))
    rng = np.random.default_rng(1)
    constant = [per_iteration(spans, np.full(len(spans), cap)) for cap in range(len(CAPS_W))]
    nearby = [
        per_iteration(spans, np.clip(chosen(spans, best) + rng.integers(-2, 3, len(spans)), 0, len(CAPS_W) - 1))
        for _ in range(200)
    ]
    assert best < min(constant)
    assert best <= min(nearby) * (1 + 1e-9)


def test_caps_fall_as_the_price_rises_and_below_0_the_highest_holds() -> None:
    caps = chosen(NEGATIVE, worth(CHOICES, NEGATIVE, SECOND))
    assert caps[0] < caps[3] < caps[1] < caps[2]
    assert CAPS_W[caps[2]] == 260


def test_iterations_that_must_be_done_are_at_the_least_cost() -> None:
    free = worth(CHOICES, DAY, 0.0)
    done = sum(span_s * CHOICES.rates[cap] for (span_s, _), cap in zip(DAY, chosen(DAY, free), strict=True))
    pressed = worth(CHOICES, DAY, 0.0, iterations=1.05 * done)
    caps = chosen(DAY, pressed)
    assert pressed > free
    assert 1.05 * done <= sum(3600 * CHOICES.rates[caps]) < 1.06 * done
    assert np.ptp(caps) > 3  # more of them where they are cheap


def test_where_not_all_can_be_done_the_fastest_cap_holds() -> None:
    assert set(CAPS_W[chosen(DAY, worth(CHOICES, DAY, 0.0, iterations=1e12))]) == {260.0}
