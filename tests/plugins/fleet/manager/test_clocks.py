"""What is known of jobs that nobody tunes."""

from pathlib import Path

import numpy as np
import pytest

from autocap.devices.model import profiles
from autocap.plugins.fleet.budget.curves import prior
from autocap.plugins.fleet.manager.tenant import OFF_HZ, Clocks
from autocap.records import Reading
from tests.plugins.fleet.manager.stage import stage

WORST = prior(100.0, 260.0)


def shown(clocks: Clocks, cap_w: float, *ghz: float, times: int = 15, busy: float = 1.0) -> bool:
    readings = [Reading(t_s=0.0, power_w=cap_w, sm_clock_hz=1e9 * one, utilisation=busy) for one in ghz]
    return [clocks.see(cap_w, readings) for _ in range(times)][-1]


def test_between_caps_that_were_seen_it_goes_by_the_slowest_clock_and_below_by_the_worst() -> None:
    clocks = Clocks()
    assert not shown(clocks, 260.0, 1.7, 1.5, times=14)
    assert clocks.curve(WORST) is None
    assert shown(clocks, 260.0, 1.7, 1.5, times=1)
    shown(clocks, 180.0, 1.7, 1.4)
    curve = clocks.curve(WORST)
    at = np.interp([260.0, 180.0, 100.0], curve.caps_w, curve.slowdown)
    worst = np.interp([180.0, 100.0], WORST.caps_w, WORST.slowdown)
    assert at[:2] == pytest.approx([0.0, 1.5 / 1.4075 - 1], abs=2e-3)  # in the middle of a step of 15 MHz
    assert (1 + at[2]) / (1 + at[1]) == pytest.approx((1 + worst[1]) / (1 + worst[0]), rel=1e-3)
    assert np.all(curve.slowdown <= WORST.slowdown + 1e-12)


def test_a_clock_that_falls_without_end_buys_no_watts_and_one_at_rest_says_nothing() -> None:
    clocks = Clocks()
    shown(clocks, 260.0, 1.7)
    shown(clocks, 200.0, 0.1)
    assert not shown(clocks, 180.0, 0.2, busy=0.0)
    curve = clocks.curve(WORST)
    assert curve.slowdown == pytest.approx(WORST.slowdown)


def test_two_jobs_that_nobody_tunes_are_slowed_down_alike_by_what_their_clocks_show(tmp_path: Path) -> None:
    names = ("quadro-rtx-6000/alexnet", "quadro-rtx-6000/vgg19")
    with stage(tmp_path, 520.0, gpus=2) as there:
        for gpu, name in enumerate(names):
            there.come(gpu + 1, gpu, profile=name)
        there.run(4.0)
        there.steward.ledger.budget(there.now_s, 390.0)
        there.run(15.0)
        slowdowns = [profiles.load(name).slowdown(w) for name, w in zip(names, there.limits_w(), strict=True)]
        assert 377.0 < sum(there.limits_w()) <= 390.0
    assert np.ptp(slowdowns) < 0.015


def test_what_a_tuner_measures_is_not_cut_to_a_step_of_the_clock() -> None:
    clocks = Clocks()
    shown(clocks, 259.5, 1.755)  # of 1.769 that run
    shown(clocks, 220.4, 1.665)
    shown(clocks, 219.6, 1.665)  # as good as the same cap
    mean, most = clocks.curve(WORST, 1.77e9), clocks.curve(WORST, 1.77e9, off_hz=OFF_HZ)
    true = 1.769 / 1.669 - 1
    assert np.interp(220.0, mean.caps_w, mean.slowdown) == pytest.approx(true, abs=0.005)
    assert true <= np.interp(220.0, most.caps_w, most.slowdown) < true + 0.005
    assert np.all(most.slowdown <= WORST.slowdown + 1e-12)
