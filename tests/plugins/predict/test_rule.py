"""What a curve and two cards say, and what they do not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.plugins.predict import rule
from autocap.plugins.predict.cards import card_of, cards, chosen
from autocap.plugins.predict.outlook import cost, expect
from autocap.plugins.predict.rule import Curve
from autocap.plugins.predict.source import Measured
from bench.transfer.cases import cap_cases
from bench.transfer.fit import curve_of

CARDS = {card.model: card for card in cards()}
RTX, V100, A100 = (CARDS[name] for name in ("Quadro RTX 6000", "V100 SXM2", "A100 40GB PCIe"))
ENERGY = Metric(name="energy")
CURVE = Curve(
    share=np.array([0.5, 0.6, 0.8, 1.0]),
    power=np.array([0.55, 0.65, 0.85, 1.0]),
    time=np.array([1.3, 1.2, 1.07, 1.0]),
    draw=0.9,
)
JOB = Measured(
    name="Quadro RTX 6000", card=RTX, count=1, default_w=260.0, min_w=100.0, period_s=0.5, power_w=234.0, error=0.01,
    curve=CURVE, metric=ENERGY, emulated=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 40GB SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10G", None),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("Intel package 0", None),
    ],
)
def test_a_card_is_known_by_its_drivers_name(name: str, model: str | None) -> None:
    found = card_of(name)
    assert (found and found.model) == model


def test_an_unknown_card_is_refused_with_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"--to 'H300': nothing can be said of such a card.*choose all, V100"):
        chosen("H300")
    with pytest.raises(UsageError, match=r"--to 'v100' stands for several cards; give one of V100 SXM2, V100 PCIe$"):
        chosen("v100")
    with pytest.raises(UsageError, match=r"--to 'x{60}…' \(3000 characters\): nothing"):
        chosen("x" * 3000)
    assert chosen("all") == cards()
    assert chosen("a40") == (CARDS["A40"],)


def test_the_same_card_takes_the_same_time_and_one_of_the_same_rates_nearly() -> None:
    assert rule.time_ratio(V100, V100, 32) == rule.Spread(log=pytest.approx(0), sigma=0)
    alike = rule.time_ratio(RTX, CARDS["Quadro RTX 8000"], 16)
    assert (alike.log, alike.sigma) == (pytest.approx(0), rule.FITTED.base)


def test_time_is_less_sure_the_more_the_two_rates_differ_and_the_precision_counts() -> None:
    near, far = rule.time_ratio(RTX, V100, 32), rule.time_ratio(RTX, A100, 32)
    assert near.sigma < far.sigma
    assert (near.is_known, far.is_known) == (True, False)
    assert rule.time_ratio(RTX, A100, 16).is_known
    assert not rule.time_ratio(RTX, A100, None).is_known


def test_watts_are_carried_as_shares_and_each_number_has_its_range() -> None:
    found = expect(JOB, V100, None, ENERGY, 32)
    assert found.power_w.value == pytest.approx(0.9 * 300)
    for one in (found.period_s, found.power_w, found.energy_j):
        assert (one.low or 0) < (one.value or 0) < (one.high or 0)
    capped = expect(JOB, V100, 0.6, ENERGY, 32)
    assert capped.cap_w == pytest.approx(180)
    assert capped.power_w.value == pytest.approx(0.9 * 0.65 * 300)
    assert expect(JOB, V100, 180.0, ENERGY, 32) == capped
    assert capped.best is not None
    assert (capped.best.cap_w, capped.best.is_edge) == (180, True)
    assert capped.best.energy.value == pytest.approx(0.65 * 1.2)


def test_at_the_measured_card_the_errors_are_the_measured_ones() -> None:
    found = expect(JOB, None, 0.8, ENERGY, None)
    assert found.period_s.high == pytest.approx(0.5 * 1.07 * math.exp(2 * 0.01))
    assert expect(replace(JOB, error=math.inf), None, 0.8, ENERGY, None).period_s.value == pytest.approx(0.5 * 1.07)


@pytest.mark.parametrize(
    ("job", "card", "time", "power", "best"),
    [
        (replace(JOB, card=None, name="X"), V100, "of the measured card X", "of the measured card X", "card X"),
        (replace(JOB, curve=None), V100, None, None, "no cap below the default limit was measured"),
        (replace(JOB, period_s=None), V100, "iterations were not counted", None, None),
        (replace(JOB, count=2), V100, "2 cards also wait for each other", None, None),
        (replace(JOB, power_w=120.0), V100, "draws 46 % of the limit", "draws 46 % of the limit", None),
        (JOB, CARDS["H100 PCIe"], "more than 50 %", "no published curves", "no published curves"),
        (JOB, CARDS["L4"], "more than 50 %", "no published curves", "no published curves"),
        (replace(JOB, card=CARDS["T4"]), V100, None, "like the measured T4", "measured T4"),
    ],
)
def test_what_is_not_known_is_said_with_its_reason(job, card, time, power, best) -> None:
    found = expect(job, card, None, ENERGY, None)
    for value, reason in ((found.period_s, time), (found.power_w, power)):
        assert (value.value is None) == (value.unknown is not None) == (reason is not None)
        assert reason is None or reason in (value.unknown or "")
    assert (found.no_best is None) == (best is None)
    assert best is None or best in (found.no_best or "")


def test_no_curve_is_carried_below_a_cliff_nor_of_a_job_that_is_bound_by_memory() -> None:
    cliff = replace(CURVE, time=np.array([2.5, 1.2, 1.07, 1.0]))
    assert rule.carried_from(cliff)[0] == pytest.approx(0.7)
    found = expect(replace(JOB, curve=cliff), V100, 0.6, ENERGY, 32)
    assert "cliff" in (found.power_w.unknown or "")
    assert found.best is not None
    assert found.best.is_edge
    flat = replace(CURVE, time=np.array([1.3, 1.1, 1.01, 1.0]))
    assert rule.carried_from(flat)[0] == 1
    assert "bound by memory" in (rule.carried_from(flat)[1] or "")
    short = replace(CURVE, power=np.array([0.9, 0.92, 0.95, 1.0]))
    assert "measure lower caps" in (rule.carried_from(short)[1] or "")


def test_what_lines_between_measured_caps_leave_out_is_in_the_error() -> None:
    """Of each published curve the limit and one other cap, and what all between have shown."""
    held, close = list[bool](), list[bool]()
    for case in cap_cases():
        whole = curve_of(case)
        for first in range(len(whole.share) - 2):
            some = np.array([first, -1])
            told = Curve(share=whole.share[some], power=whole.power[some], time=whole.time[some], draw=whole.draw)
            where = slice(first + 1, -1)
            lines = rule.at(told, whole.share[where])
            true = np.log(whole.power[where]), np.log(whole.time[where])
            misses = [seen - line for seen, line in zip(true, lines, strict=True)]
            for miss, sigma in zip((*misses, sum(misses)), rule.between(told, whole.share[where]), strict=True):
                held += list(np.abs(miss) <= 2 * np.hypot(sigma, 0.005))
                close += list(np.abs(miss) <= 0.01)
    assert np.mean(held) > 0.9 > np.mean(close)
    assert all(each == 0 for each in np.ravel(rule.between(CURVE, CURVE.share)))


@pytest.mark.parametrize(
    ("cap", "why"),
    [
        (0.3, "90 W is below 150 W, the lowest limit that can be set"),
        (400.0, "400 W is above the default limit, 300 W, beyond which nothing is told"),
        (0.55, "55 % of the limit: below 60 % cards differ"),
    ],
)
def test_a_cap_that_is_not_measured_or_cannot_be_set_has_no_numbers(cap: float, why: str) -> None:
    found = expect(JOB, V100, cap, ENERGY, 32)
    assert why in (found.power_w.unknown or "")


def test_errors_beyond_all_measure_are_not_known_and_a_hair_above_the_limit_is_the_limit() -> None:
    assert "more than 50 %" in (expect(replace(JOB, error=1e300), V100, None, ENERGY, 32).power_w.unknown or "")
    assert expect(JOB, V100, 300.0000001, ENERGY, 32).power_w.value is not None


def test_costs_are_those_of_the_metrics() -> None:
    energy, time = np.array([0.8]), np.array([1.1])
    assert cost(ENERGY, energy, time) == pytest.approx(0.8)
    assert cost(Metric(name="ed2p"), energy, time) == pytest.approx(0.8 * 1.21)
    assert cost(Metric(name="eds", k=4.0), energy, time) == pytest.approx(0.75 * 0.8 + 0.25 * 1.1)
