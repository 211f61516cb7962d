"""The rule for a cap per GPU, on cards whose response is known exactly."""

from dataclasses import replace

import numpy as np
import pytest

from autocap.controller.per_gpu import Caps, Lowering, Response, Shown, response
from autocap.records import Cost
from autocap.strategies.grid import CapGrid
from tests.doubles.feeds import measurement

GRID = CapGrid.stepped(100.0, 260.0, 5.0)
NEAR = Response(draw=0.9, time=0.35)
COMMON_W = 180.0
CARDS = (1.0, 0.95, 1.05, 1.02)  # what a watt is worth on each
BEST_W = (175.0, 180.0, 165.0, 170.0)  # 180 · 0.95 / (1.0, 0.95, 1.05, 1.02), on the grid


class Node:
    """Cards that follow the response to the letter. waiting: what a waiting card draws of its draw while it computes;
    gains: of the cards' sensors."""

    def __init__(self, cards: Caps, *, waiting: float = 0.4, gains: Caps = (1.0, 1.0, 1.0, 1.0)) -> None:
        self._cards, self._waiting, self._gains = cards, waiting, gains

    def time(self, caps_w: Caps) -> float:
        """Over that at the common cap."""
        return max(self._times(caps_w)) / max(self._times((COMMON_W,) * len(caps_w)))

    def shows(self, caps_w: Caps) -> Shown:
        times, time = self._times(caps_w), self.time(caps_w)
        busy = [one / max(times) for one in times]
        draws_w = tuple(
            gain * cap_w**NEAR.draw * (share + self._waiting * (1 - share))
            for gain, cap_w, share in zip(self._gains, caps_w, busy, strict=True)
        )
        return Shown(settings=caps_w, draws_w=draws_w, time=Cost(value=time, stderr=1e-4), accepted=time < 1.001)

    def _times(self, caps_w: Caps) -> list[float]:
        return [(cap_w * card) ** -NEAR.time for cap_w, card in zip(caps_w, self._cards, strict=True)]


def play(node: Node) -> tuple[Lowering, list[Caps]]:
    """All trials on a node, and the plan afterwards."""
    plan, tried = Lowering(COMMON_W, len(CARDS), GRID, NEAR), list[Caps]()
    plan.learn(node.shows(plan.common_w))
    while (caps_w := plan.ask()) is not None:
        tried.append(caps_w)
        plan.learn(node.shows(caps_w))
    return plan, tried


@pytest.mark.parametrize("waiting", [0.3, 0.45, 0.6])
def test_every_card_but_the_slowest_goes_to_where_it_would_be_the_slowest(waiting: float) -> None:
    plan, tried = play(Node(CARDS, waiting=waiting))
    assert plan.best == BEST_W
    assert len(tried) <= 4


def test_nothing_is_tried_on_cards_that_are_alike() -> None:
    plan, tried = play(Node((1.0, 1.0, 1.0, 1.0)))
    assert tried == []
    assert not plan.lowered


def test_cards_that_wait_without_drawing_less_are_left_alone() -> None:
    plan, tried = play(Node(CARDS, waiting=1.0))
    assert tried == []
    assert plan.best == plan.common_w


@pytest.mark.parametrize("seed", range(6))
def test_sensors_that_mislead_cost_savings_but_never_time(seed: int) -> None:
    gains = tuple((1 + 0.02 * np.random.default_rng(seed).standard_normal(4)).tolist())
    node = Node(CARDS, gains=gains)
    plan, tried = play(node)
    assert node.time(plan.best) < 1.001
    assert len(tried) <= 8
    assert len(set(tried)) == len(tried)
    for caps_w in tried:
        assert set(caps_w) <= set(GRID)
        assert max(caps_w) <= COMMON_W


def test_after_a_refusal_the_slowest_card_is_raised_and_none_goes_lower() -> None:
    node, plan = Node(CARDS), Lowering(COMMON_W, len(CARDS), GRID, NEAR)
    plan.learn(node.shows(plan.common_w))
    too_low = (165.0, 180.0, 165.0, 170.0)  # the first card is the slowest now
    plan.learn(node.shows(too_low))
    again = plan.ask()
    assert again[0] > too_low[0]
    assert all(cap_w >= before_w for cap_w, before_w in zip(again, too_low, strict=True))


def test_no_caps_are_tried_beneath_any_that_were_refused() -> None:
    node = Node(CARDS, gains=(0.97, 1.0, 1.0, 1.03))
    plan, tried = play(node)
    refused = [caps_w for caps_w in tried if node.time(caps_w) >= 1.001]
    assert refused
    for number, caps_w in enumerate(tried):
        before = [other_w for other_w in tried[:number] if other_w in refused]
        assert not any(all(np.less_equal(caps_w, other_w)) for other_w in before)
    assert plan.best not in refused


def test_what_is_refused_when_it_is_looked_at_again_gives_way_to_what_was_accepted_before() -> None:
    plan = Lowering(COMMON_W, 2, GRID, NEAR)
    first, second = (180.0, 175.0), (180.0, 170.0)
    for caps_w in ((180.0, 180.0), first, second):
        plan.learn(Shown(settings=caps_w, draws_w=(100.0, 90.0), time=Cost(value=1.0, stderr=0.001), accepted=True))
    assert plan.best == second
    plan.learn(Shown(settings=second, draws_w=(100.0, 90.0), time=Cost(value=1.004, stderr=0.001), accepted=False))
    assert plan.best == first


def test_the_response_is_that_of_the_trials_near_the_common_cap() -> None:
    near = Response(draw=0.8, time=0.5)
    windows = []
    for cap_w in (140.0, 160.0, 200.0, 260.0):
        period_s = 0.5 * (cap_w / 180) ** -near.time
        window = measurement(energy_j=100 * period_s * (cap_w / 180) ** near.draw, period_s=period_s, cap_w=cap_w)
        windows.append(window)
    windows[-1] = replace(windows[-1], period_s=1.1 * windows[-1].period_s)  # far off, where the line need not hold
    found = response(180.0, windows)
    assert (found.draw, found.time) == (pytest.approx(near.draw, abs=0.01), pytest.approx(near.time, abs=0.05))


def test_one_cap_tells_no_response_and_noise_no_impossible_one() -> None:
    usual = response(180.0, [measurement(cap_w=180.0)])
    assert 0 < usual.time < usual.draw <= 1
    wild = response(180.0, [measurement(period_s=0.4, cap_w=175.0), measurement(period_s=0.6, cap_w=185.0)])
    assert (wild.time, wild.draw) == (0.1, 0.5)
