"""What a tuner says of its job, and what comes of it for the others; and what is known of jobs that nobody tunes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap import events
from autocap.devices.model import profiles
from autocap.plugins.fleet.budget.shares import Curves, JobCurve, prior, share
from autocap.plugins.fleet.manager.allocation import OFF_HZ, Clocks, Unbound, believed, doubt
from autocap.plugins.fleet.manager.finding import FoundJob
from autocap.records import Reading
from tests.plugins.fleet.manager.stage import TICK_S, Stage, stage

FOUND_W, LOW_W = 260.0, 100.0
WORST = prior(LOW_W, FOUND_W)


def curve(caps_w: list[float], slowdown: list[float], stderr: float = 0.0) -> JobCurve:
    return JobCurve(
        caps_w=np.array(caps_w), slowdown=np.array(slowdown), energy=np.ones(len(caps_w)), slowdown_stderr=stderr
    )


STEEP = curve([100.0, 880.0], [40.0, 0.0])
LIES = {
    "far above": STEEP,
    "steep": curve([100.0, 255.0, 260.0], [9.0, 8.0, 0.0]),
    "just below the worst": curve([100.0, 259.0, 260.0], [0.62, 0.62, 0.0]),
    "likely": curve([100.0, 180.0, 260.0], [0.6, 0.3, 0.0]),
    "faster than time": curve([100.0, 260.0], [0.5, -0.99]),
}


@st.composite
def curves(draw: st.DrawFn) -> JobCurve:
    """Any that a tuner may send."""
    caps_w = sorted(draw(st.sets(st.floats(1.0, 5000.0), min_size=1, max_size=6)))
    size = len(caps_w)
    slowdown = draw(st.lists(st.floats(-0.99, 1e6), min_size=size, max_size=size))
    energy = draw(st.lists(st.floats(1e-6, 1e6), min_size=size, max_size=size))
    return JobCurve(caps_w=np.array(caps_w), slowdown=np.array(slowdown), energy=np.array(energy))


@given(said=curves(), budget_w=st.floats(200.0, 520.0))
def test_no_curve_takes_a_watt_from_a_job_that_is_slowed_down_alike(said: JobCurve, budget_w: float) -> None:
    alike = share(Curves.of([WORST, WORST]), budget_w).caps_w
    found = share(Curves.of([WORST, believed(said, WORST)]), budget_w).caps_w
    assert found[0] >= alike[0] - 0.05  # what is lost between the points of a table, of a step of 0.25 W
    assert LOW_W - 1e-6 <= found[1] <= FOUND_W + 1e-6


def test_a_curve_that_can_be_is_believed_as_it_is() -> None:
    said = curve([100.0, 150.0, 200.0, 260.0], [0.5, 0.2, 0.05, 0.0])
    found = believed(said, WORST)
    assert np.interp(said.caps_w, found.caps_w, found.slowdown).tolist() == said.slowdown.tolist()
    assert doubt(said, WORST, None) is None
    assert doubt(said, WORST, 240.0) is None  # 245 W cost 1.3 %
    assert doubt(said, prior(180.0, FOUND_W), None) is None  # of what is below a floor nothing is asked
    sentence = doubt(said, WORST, 190.0)
    assert sentence.startswith(
        "its tuner says that 195 W slow it down by 6 % at least, and it draws 190 W where no cap"
    )


def against(there: Stage, said: JobCurve | None, *, twice: bool = False) -> tuple[float, str | None]:
    """What a job keeps beside one whose tuner says that, watts, and what is said of it. twice: it comes and goes."""
    there.come(1, 0)
    liar = there.come(2, 1, profile="quadro-rtx-6000/alexnet")
    there.run(20.0)
    there.enforcer.ledger.budget(there.now_s, 390.0)
    there.run(20.0)
    honest_w = there.allocation(0).ceiling_w
    least_w = honest_w
    allocation = there.enforcer.lend(there.now_s, liar)
    for _ in range(160):
        there.run(1.0)
        if said is not None:
            there.enforcer.learn(there.now_s, allocation, said)
        there.enforcer.set_caps(there.now_s, allocation, [allocation.ceiling_w])
        least_w = min(least_w, there.allocation(0).ceiling_w)
        if twice and round(there.now_s) % 25 == 0:
            there.enforcer.release(there.now_s, allocation)
            allocation = there.enforcer.lend(there.now_s, liar)
    return honest_w - least_w, allocation.doubt


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("name", LIES)
def test_a_tuner_that_lies_takes_no_watt_from_another_job_but_for_half_a_step_of_its_clock(
    name: str, twice: bool, tmp_path: Path
) -> None:
    with stage(tmp_path, 520.0, gpus=2) as there:
        taken_w, said = against(there, LIES[name], twice=twice)
        half_step = 0.0043 * 390.0  # of a job that computes all the time, whose watts go with its clock at least
        assert taken_w <= (half_step if name == "likely" else 0.0) + 0.25 + 1e-6, name  # a step of caps
        assert (said is not None) is (name not in ("faster than time", "likely"))


def test_a_lie_is_seen_by_everybody(tmp_path: Path) -> None:
    with stage(tmp_path, 520.0, gpus=2) as there:
        job = there.come(1, 0)
        allocation = there.enforcer.lend(there.now_s, job)
        there.enforcer.learn(there.now_s, allocation, STEEP)
        there.run(1.0)
        shown = there.enforcer.standing(policy="fair", record="")
        assert [one.doubt for one in shown.jobs] == [
            "its tuner asks for 880 W, above the limit found of 260 W; "
            "it is given what a job that nobody tunes would be"
        ]
        warned = [event.text for event in there.said if isinstance(event, events.Warned)]
        assert warned == [f"{allocation.name}: {allocation.doubt}"]
        there.enforcer.learn(there.now_s, allocation, believed(STEEP, WORST))
        there.run(1.0)
        assert allocation.doubt is None  # once it says what can be
        assert there.enforcer.ledger[allocation.name].measures


@pytest.mark.slow
def test_the_draw_that_is_read_goes_before_what_is_said(tmp_path: Path) -> None:
    with stage(tmp_path, 520.0, gpus=2) as there:
        there.come(1, 0)
        idle = FoundJob(pid=2, uuids=there.uuids(1))  # it has a context on its GPU, and does nothing there
        there.jobs.append(idle)
        allocation = there.enforcer.lend(there.now_s, idle)
        there.enforcer.learn(there.now_s, allocation, believed(STEEP, WORST))
        there.enforcer.set_caps(there.now_s, allocation, [260.0])
        there.run(29.0)
        assert allocation.doubt is None
        there.run(2.0)
        assert "and it draws" in allocation.doubt
        there.enforcer.ledger.budget(there.now_s, 390.0)
        there.run(10.0)
        assert (there.allocation(0).ceiling_w > 255.0, there.allocation(1).ceiling_w) == (True, LOW_W)
        there.enforcer.release(there.now_s, allocation)
        again = there.enforcer.lend(there.now_s, idle)  # what was read stays
        there.enforcer.learn(there.now_s, again, believed(STEEP, WORST))
        there.run(10.0)
        assert (there.allocation(0).ceiling_w > 255.0, there.allocation(1).ceiling_w) == (True, LOW_W)


def readings(*draws_w: float | None) -> list[Reading]:
    return [Reading(t_s=0.0, power_w=watts) for watts in draws_w]


def seen(unbound: Unbound, from_s: float, to_s: float, draw_w: float | None, cap_w: float) -> None:
    for at_s in np.arange(from_s, to_s, TICK_S):
        unbound.see(float(at_s), readings(draw_w), [cap_w])


def test_a_draw_is_known_once_no_cap_has_bound_for_a_while() -> None:
    unbound = Unbound(since_s=0.0)
    seen(unbound, 0.0, 29.0, 150.0, 200.0)
    assert unbound.most_w(29.0) is None
    seen(unbound, 29.0, 32.0, 150.0, 200.0)
    assert unbound.most_w(32.0) == 150.0
    seen(unbound, 32.0, 40.0, 100.0, 100.0)  # a cap that binds below it says nothing
    assert unbound.most_w(40.0) == 150.0
    seen(unbound, 40.0, 42.0, 199.0, 200.0)
    assert unbound.most_w(42.0) is None


def test_a_reading_that_is_missing_and_a_spike_say_nothing() -> None:
    unbound = Unbound(since_s=0.0)
    seen(unbound, 0.0, 35.0, 150.0, 200.0)
    seen(unbound, 35.0, 35.5, 199.0, 200.0)
    seen(unbound, 35.5, 40.0, None, 200.0)
    assert unbound.most_w(40.0) == 150.0
    seen(unbound, 100.0, 101.0, 150.0, 200.0)
    assert unbound.most_w(101.0) is None  # what is too old is forgotten


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


@pytest.mark.slow
def test_two_jobs_that_nobody_tunes_are_slowed_down_alike_by_what_their_clocks_show(tmp_path: Path) -> None:
    names = ("quadro-rtx-6000/alexnet", "quadro-rtx-6000/vgg19")
    with stage(tmp_path, 520.0, gpus=2) as there:
        for gpu, name in enumerate(names):
            there.come(gpu + 1, gpu, profile=name)
        there.run(4.0)
        there.enforcer.ledger.budget(there.now_s, 390.0)
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
