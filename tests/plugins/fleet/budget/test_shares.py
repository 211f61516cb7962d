"""Caps for many jobs under one budget, against what the definitions of the policies say."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.devices.model import profile_names, profiles
from autocap.plugins.fleet.budget.shares import Curves, JobCurve, charged_w, in_steps, prior, settled, share, topped
from autocap.plugins.fleet.config import Policy


def of_profile(name: str) -> JobCurve:
    profile = profiles.load(name)
    caps_w = np.linspace(profile.cap_range.min_w, profile.cap_range.default_w, 200)
    return JobCurve(
        caps_w=caps_w,
        slowdown=profile.time_s(caps_w) / profile.default_time_s - 1,
        energy=profile.energy_j(caps_w) / profile.energy_j(profile.cap_range.default_w),
    )


def line(low_w: float, high_w: float, worst: float, *, devices: int = 1, weight: float = 1.0) -> JobCurve:
    caps_w = np.array([low_w, high_w])
    return JobCurve(
        caps_w=caps_w,
        slowdown=np.array([worst, 0.0]),
        energy=np.array([0.7, 1.0]),
        devices=devices,
        weight=weight,
    )


PUBLISHED = [of_profile(name) for name in profile_names()]
ASKED_W = charged_w(Curves.of(PUBLISHED), Curves.of(PUBLISHED).caps_w[:, -1])


@pytest.mark.parametrize("fraction", [0.6, 0.7, 0.8, 0.9])
def test_fair_slows_all_down_equally_and_spends_the_budget(fraction: float) -> None:
    curves = Curves.of(PUBLISHED)
    shares = share(curves, fraction * ASKED_W)
    assert np.ptp(shares.slowdown) < 1e-6
    assert charged_w(curves, shares.caps_w) == pytest.approx(fraction * ASKED_W, rel=1e-6)
    assert charged_w(curves, shares.caps_w) <= fraction * ASKED_W


def test_fair_leaves_a_job_at_its_lowest_cap_and_the_others_alike() -> None:
    curves = Curves.of([line(100, 200, 0.05), line(100, 200, 0.5), line(100, 200, 0.5)])
    shares = share(curves, 400.0)  # the first costs no more than 5 % wherever it is
    assert shares.caps_w[0] == pytest.approx(100)
    assert shares.slowdown == pytest.approx([0.05, 0.25, 0.25])


def test_a_job_of_twice_the_weight_is_slowed_down_half_as_much() -> None:
    curves = Curves.of([line(100, 200, 0.5), line(100, 200, 0.5, weight=2.0)])
    slowdown = share(curves, 320.0).slowdown
    assert slowdown[0] == pytest.approx(2 * slowdown[1])


def test_devices_are_charged_each() -> None:
    curves = Curves.of([line(100, 200, 0.5, devices=8), line(100, 200, 0.5)])
    shares = share(curves, 9 * 150.0)
    assert shares.caps_w == pytest.approx([150, 150])


def test_all_get_what_they_ask_for_where_it_fits() -> None:
    curves = Curves.of(PUBLISHED)
    for policy in (Policy.FAIR, Policy.THROUGHPUT):
        shares = share(curves, ASKED_W + 1, policy)
        assert np.array_equal(shares.caps_w, curves.caps_w[:, -1])
        assert shares.short_w == 0


def test_the_energy_policy_gives_each_what_it_needs_the_least_with() -> None:
    curves = Curves.of(PUBLISHED)
    shares = share(curves, ASKED_W + 1, Policy.ENERGY)
    assert np.array_equal(curves.energy_at(shares.caps_w), curves.energy.min(axis=1))


@pytest.mark.parametrize(("error", "cap_w"), [(0.1, 150.0), (0.2, 300.0)])
def test_no_job_is_put_where_it_is_not_known_to_need_fewer_joules(error: float, cap_w: float) -> None:
    said = replace(line(150.0, 300.0, 0.4), energy_stderr=np.array([error, 0.0]))
    assert share(Curves.of([said]), 1000.0, Policy.ENERGY).caps_w[0] == cap_w


@pytest.mark.parametrize("policy", Policy)
def test_no_policy_goes_beyond_what_a_tuner_allows_while_the_budget_holds_for_that(policy: Policy) -> None:
    jobs = [line(100.0, 300.0, 1.0), replace(line(100.0, 300.0, 1.0), most_slowdown=0.2)]
    shares = share(Curves.of(jobs), 400.0, policy)
    free, bound = shares.slowdown
    assert bound <= 0.2 + 1e-6
    assert shares.caps_w.sum() <= 400.0
    assert free > 0.5  # what the other does not give
    if policy is Policy.FAIR:
        assert share(Curves.of(jobs), 300.0, policy).slowdown == pytest.approx([0.75, 0.75])  # it holds for none


def test_what_not_even_the_lowest_caps_keep_is_said() -> None:
    curves = Curves.of(PUBLISHED)
    lowest_w = charged_w(curves, curves.caps_w[:, 0])
    shares = share(curves, lowest_w - 100)
    assert np.array_equal(shares.caps_w, curves.caps_w[:, 0])
    assert shares.short_w == pytest.approx(100)


@pytest.mark.parametrize(("policy", "sign"), [(Policy.THROUGHPUT, 1.0), (Policy.ENERGY, -1.0)])
@pytest.mark.parametrize("fraction", [0.55, 0.65, 0.75, 0.9])
def test_the_price_of_a_watt_finds_the_optimum(policy: Policy, sign: float, fraction: float) -> None:
    """Against every choice of caps on a coarse grid, which no rule can beat by more than a step of it."""
    jobs = [of_profile(name) for name in ("tesla-v100/alexnet", "tesla-v100/resnet152", "quadro-rtx-6000/vgg19")]
    curves = Curves.of(jobs, points=40)
    budget_w = fraction * charged_w(curves, curves.caps_w[:, -1])
    values = 1 / (1 + curves.slowdown) if policy is Policy.THROUGHPUT else curves.energy
    best = max(
        sign * sum(values[row, point] for row, point in enumerate(points))
        for points in product(range(40), repeat=3)
        if sum(curves.caps_w[row, point] for row, point in enumerate(points)) <= budget_w
    )
    shares = share(curves, budget_w, policy)
    at = 1 / (1 + shares.slowdown) if policy is Policy.THROUGHPUT else curves.energy_at(shares.caps_w)
    assert charged_w(curves, shares.caps_w) <= budget_w + 1e-6
    assert sign * at.sum() >= best - 1e-4 * abs(best)


def test_a_curve_with_a_knee_is_shared_without_a_gap() -> None:
    """Speed that is not concave: the price jumps over its middle."""
    caps_w = np.linspace(100, 300, 41)
    speed = np.where(caps_w < 250, 0.5, 0.5 + 0.5 * (caps_w - 250) / 50)
    knee = JobCurve(caps_w=caps_w, slowdown=1 / speed - 1, energy=caps_w / 300 / speed)
    curves = Curves.of([knee] * 10)
    shares = share(curves, 2000.0, Policy.THROUGHPUT)
    assert charged_w(curves, shares.caps_w) <= 2000.0 + 1e-6
    assert (1 / (1 + shares.slowdown)).sum() >= 5 * 1 + 5 * 0.5 - 0.5  # half of them run at full speed, but for one


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(50, 150), st.floats(10, 300), st.floats(0, 2), st.integers(1, 8), st.sampled_from([0.5, 1.0, 3.0])
        ),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.05, 1.2),
    st.sampled_from(list(Policy)),
)
def test_whatever_is_shared_the_budget_holds(
    jobs: list[tuple[float, float, float, int, float]], fraction: float, policy: Policy
) -> None:
    curves = Curves.of([line(low, low + wide, worst, devices=n, weight=w) for low, wide, worst, n, w in jobs])
    budget_w = fraction * charged_w(curves, curves.caps_w[:, -1])
    shares = share(curves, budget_w, policy)
    assert charged_w(curves, shares.caps_w) <= max(budget_w, charged_w(curves, curves.caps_w[:, 0])) * (1 + 1e-9)
    assert np.all(shares.caps_w >= curves.caps_w[:, 0] - 1e-9)
    assert np.all(shares.caps_w <= curves.caps_w[:, -1] + 1e-9)


def test_a_cap_that_changes_by_less_than_a_step_stays() -> None:
    curves = Curves.of([line(100, 200, 0.5)] * 3)
    held_w = np.array([150.0, 120.0, np.nan])
    caps_w = settled(curves, np.array([152.0, 158.0, 131.0]), held_w, 450.0, np.full(len(curves), 5.0))
    assert caps_w.tolist() == [150.0, 155.0, 130.0]


def test_off_a_cliff_steps_are_finer() -> None:
    flat, cliff = line(100, 200, 0.1), line(100, 200, 3.0)  # a quarter of a watt costs 0.025 and 0.75 points
    caps_w = in_steps(Curves.of([flat, cliff]), 330.13, Policy.FAIR, np.array([np.nan, np.nan]), 0.25)
    assert caps_w[0] % 0.25 == pytest.approx(0.0, abs=1e-9)
    assert (caps_w[1] / 0.0625) % 1 == pytest.approx(0.0, abs=1e-6)
    held_w = np.add(caps_w, 0.1)
    assert in_steps(Curves.of([flat, cliff]), 330.33, Policy.FAIR, held_w, 0.25)[0] == held_w[0]


def test_caps_that_stay_do_not_cost_the_budget() -> None:
    curves = Curves.of([line(100, 200, 0.5)] * 2)
    caps_w = settled(curves, np.array([146.0, 152.0]), np.array([150.0, 150.0]), 298.0, np.full(len(curves), 5.0))
    assert charged_w(curves, caps_w) <= 298.0


@pytest.mark.parametrize("name", ["tesla-v100/resnet50", "quadro-rtx-6000/vgg19", "tesla-v100/alexnet"])
def test_a_prior_is_near_published_curves_in_the_upper_half_of_their_range_but_not_below_them(name: str) -> None:
    true = of_profile(name)
    caps_w = np.linspace((true.caps_w[0] + true.caps_w[-1]) / 2, true.caps_w[-1], 8)[:-1]
    guess = prior(float(true.caps_w[0]), float(true.caps_w[-1]))
    late = np.interp(caps_w, guess.caps_w, guess.slowdown + np.asarray(guess.slowdown_stderr))
    truth = np.interp(caps_w, true.caps_w, true.slowdown)
    assert np.all(late >= truth)
    assert np.all(np.interp(caps_w, guess.caps_w, guess.slowdown) <= truth + 0.15)


@pytest.mark.parametrize("name", ["tesla-v100/resnet50", "quadro-rtx-6000/vgg19", "tesla-v100/alexnet"])
def test_below_what_is_known_a_curve_goes_on_as_it_came(name: str) -> None:
    true = of_profile(name)
    known = true.down_to(0.4 * float(true.caps_w[0]) + 0.6 * float(true.caps_w[-1]))
    down = known.down_to(float(true.caps_w[0]))
    below = down.caps_w < known.caps_w[0]
    off = down.slowdown[below] - np.interp(down.caps_w[below], true.caps_w, true.slowdown)
    assert np.all(np.abs(off) < 2 * np.asarray(down.slowdown_stderr)[below])
    assert np.all(np.diff(down.slowdown[below]) < 0)
    assert down.caps_w[below].size > 2  # a chord would be far above
    assert np.array_equal(down.slowdown[~below], known.slowdown)


def test_a_curve_ends_at_what_the_job_draws() -> None:
    whole = of_profile("tesla-v100/resnet50")
    cut = whole.up_to(203.0)
    assert cut.caps_w[-1] == 203.0
    assert cut.slowdown[-1] == pytest.approx(np.interp(203.0, whole.caps_w, whole.slowdown))
    assert whole.up_to(10.0).caps_w.tolist() == [whole.caps_w[0]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"caps_w": np.array([200.0, 100.0])},
        {"caps_w": np.array([100.0])},
        {"slowdown": np.array([np.nan, 0.0])},
        {"energy": np.array([0.0, 1.0])},
        {"devices": 0},
        {"weight": 0.0},
        {"most_slowdown": -0.1},
    ],
)
def test_what_is_no_curve_is_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {
        "caps_w": np.array([100.0, 200.0]),
        "slowdown": np.array([0.5, 0.0]),
        "energy": np.array([0.8, 1.0]),
    }
    with pytest.raises(ValueError, match=r"curve|job"):
        JobCurve(**(right | wrong))  # type: ignore[arg-type]  # that is the point


def test_what_whole_steps_leave_goes_to_those_who_lost_most() -> None:
    curves = Curves.of([line(100, 200, 0.5, devices=2), line(100, 200, 0.5), line(100, 152, 0.5)])
    ideal_w = np.array([154.0, 154.5, 152.0])
    caps_w = topped(curves, np.array([150.0, 150.0, 150.0]), ideal_w, 608.0, np.full(len(curves), 5.0))
    assert caps_w.tolist() == [150.0, 155.0, 152.0]
    assert topped(curves, ideal_w, ideal_w, 1000.0, np.full(len(curves), 5.0)).tolist() == ideal_w.tolist()
