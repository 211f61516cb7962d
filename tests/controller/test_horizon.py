"""What an iteration is worth, and a second, while prices move."""

import numpy as np
import pytest

from autocap.controller.following import Choices, Spans, worth
from autocap.devices.model import profiles

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
