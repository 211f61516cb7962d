"""A budget held on an emulated machine, in virtual time: who gets which caps, and what is lent to tuners."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap import events
from autocap.errors import DeviceError, GuardError, LimitRefused
from autocap.limits.background_call import BackgroundCall
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.manager.finding import Claim, FoundJob, Weights
from autocap.plugins.fleet.manager.occupancy import Caps
from autocap.records import CapRange, GpuInfo, NodeReading
from autocap.testing.nvml.machine import LOST, UNKNOWN, Fault
from autocap.wire.who import Peer
from tests.doubles.waiting import eventually
from tests.plugins.fleet.manager.stage import Stage, stage

FOUND_W, LOW_W = 260.0, 100.0
GPUS = tuple(
    GpuInfo(index=n, uuid=f"GPU-{n}", name="none", cap_range=CapRange(min_w=100.0, max_w=300.0, default_w=250.0))
    for n in range(2)
)


def total_w(there: Stage) -> float:
    return sum(there.limits_w())


@pytest.mark.slow
def test_a_job_has_what_the_others_leave_also_once_they_have_ended(tmp_path: Path) -> None:
    with stage(tmp_path, 730.0) as there:
        there.come(1, 0, 1)
        there.run(4.0)
        assert there.limits_w() == [FOUND_W, FOUND_W, LOW_W, LOW_W]
        there.come(2, 2)
        there.run(4.0)
        caps_w = there.limits_w()
        assert caps_w[0] == caps_w[1] == pytest.approx(caps_w[2], abs=1.0)
        assert caps_w[2] < FOUND_W
        assert caps_w[3] == LOW_W
        assert 725.0 < total_w(there) <= 730.0
        job = there.jobs.pop()
        there.run(0.2)
        there.jobs.append(job)  # a list that lacks it once is no end of it
        there.run(2.0)
        assert not [event for event in there.said if isinstance(event, budget.JobLeft)]
        there.jobs.pop()
        there.run(4.0)
        assert there.limits_w() == [FOUND_W, FOUND_W, LOW_W, LOW_W]
    left = [event for event in there.said if isinstance(event, budget.JobLeft)]
    assert [event.why for event in left] == ["it computes no more"]
    assert there.limits_w() == [FOUND_W] * 4


def test_a_lower_cap_counts_in_time_where_the_sensor_reads_more_than_it(tmp_path: Path) -> None:
    with stage(tmp_path, 2000.0, gpus=2) as there:
        there.come(1, 0)
        there.come(2, 1)
        there.run(4.0)
        device = there.enforcer._device
        read_each = device.read_each
        device.read_each = lambda: tuple(  # type: ignore[method-assign]
            one if isinstance(one, DeviceError) or one.power_w is None else replace(one, power_w=1.2 * one.power_w)
            for one in read_each()
        )
        there.enforcer.ledger.budget(there.now_s, 400.0)
        there.run(3.0)
        assert all(one.order is None and one.standing_w == one.ordered_w < FOUND_W for one in there.enforcer.ledger)


def test_no_cap_is_below_the_floor(tmp_path: Path) -> None:
    with stage(tmp_path, 500.0, floor_w=150.0) as there:
        there.run(1.0)
        assert there.limits_w() == [150.0] * 4
        assert there.enforcer.short_w == pytest.approx(102.0)
        assert len(there.enforcer.pause) == 1
    assert [event.short_w for event in there.said if isinstance(event, budget.BudgetShort)] == [pytest.approx(102.0)]


def test_limits_found_are_the_most_that_is_given(tmp_path: Path) -> None:
    found_mw = (180_123, 260_000, 90_000 + 15_000, 200_000)
    with stage(tmp_path, 5000.0, arrivals_mw=found_mw) as there:
        there.come(1, 0, 1)
        there.run(3.0)
        assert there.limits_w() == [180.123, 260.0, LOW_W, LOW_W]
    assert [round(1000 * w) for w in there.limits_w()] == list(found_mw)


def test_watts_of_the_machine_itself_are_nobodys(tmp_path: Path) -> None:
    class Rest:
        name, whole, refresh_s = "120", False, None

        def read(self) -> NodeReading:
            return NodeReading(t_s=0.0, power_w=120.0, whole=False)

        def notes(self) -> tuple[str, ...]:
            return ()

        def close(self) -> None: ...

    with stage(tmp_path, 800.0, node=Rest()) as there:
        there.come(1, 0, 1)
        there.run(4.0)
        assert 670.0 < total_w(there) <= 680.0 - 2.0  # a guard band for the errors of four sensors
        assert there.enforcer.standing(policy="fair", record="").power_w == pytest.approx(
            120.0 + sum(reading.power_w or 0.0 for reading in there.enforcer.readings)
        )


def test_a_job_that_draws_less_gives_the_rest_away(tmp_path: Path) -> None:
    with stage(tmp_path, 860.0, gpus=2) as there:
        there.come(1, 0)
        there.come(2, 1)
        there.run(3.0)
        # Said of what its devices draw at most, and that no cap binds them.
        there.enforcer.ledger.drew(there.allocation(0).name, 140.0)
        there.enforcer.ledger.budget(there.now_s, 400.0)
        there.enforcer.act(there.now_s)
        assert there.limits_w()[0] == pytest.approx(145.0, abs=1.0)
        assert there.limits_w()[1] == pytest.approx(254.0, abs=1.5)


# Tuners.


@pytest.mark.slow
def test_a_tuner_sets_caps_below_its_ceiling_alone(tmp_path: Path) -> None:
    with stage(tmp_path, 620.0) as there:
        there.come(1, 0)
        job = there.come(2, 2, 3)
        allocation = there.enforcer.lend(there.now_s, job)
        there.run(3.0)
        assert allocation.ceiling_w < FOUND_W
        assert ("PID", allocation.ceiling_w)[1] == there.told[-1][1]
        there.enforcer.set_caps(there.now_s, allocation, (120.0, 110.0))
        there.run(3.0)
        assert there.limits_w()[2:] == [120.0, 110.0]
        there.enforcer.set_caps(there.now_s, allocation, (259.0, 110.0))
        assert there.limits_w()[2:] == [allocation.ceiling_w, 110.0]
        there.enforcer.ledger.budget(there.now_s, 500.0)
        there.enforcer.act(there.now_s)  # a ceiling that falls is in force before the tuner does anything
        assert there.limits_w()[2:] == [allocation.ceiling_w, 110.0]
        assert allocation.ceiling_w < 150.0


def test_a_job_whose_tuner_has_gone_stays_with_what_is_known_of_it(tmp_path: Path) -> None:
    with stage(tmp_path, 420.0, gpus=2) as there:
        there.come(1, 0)
        allocation = there.enforcer.lend(there.now_s, there.come(2, 1))
        flat = JobCurve(caps_w=np.array([120.0, 150.0]), slowdown=np.array([0.01, 0.0]), energy=np.array([0.9, 1.0]))
        there.enforcer.learn(there.now_s, allocation, flat)
        there.run(8.0)
        there.enforcer.set_caps(there.now_s, allocation, (110.0,))
        there.enforcer.release(there.now_s, allocation)
        there.run(2.0)
        assert not allocation.tuned
        assert there.limits_w()[1] == allocation.ceiling_w
        assert 110.0 < allocation.ceiling_w <= 150.0


# What others do.


def test_a_limit_that_somebody_else_sets_ends_the_budget(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0) as there:
        there.run(1.0)
        there.stand.request(205_000, gpu=1)
        with pytest.raises(GuardError, match="somebody else has changed it"):
            there.run(2.0)
    assert there.limits_w() == [FOUND_W, 205.0, FOUND_W, FOUND_W]


@pytest.mark.slow
def test_a_job_that_begins_on_more_devices_is_the_same_job_on_all(tmp_path: Path) -> None:
    with stage(tmp_path, 5000.0) as there:
        there.come(1, 0)
        there.run(2.0)
        there.jobs.clear()
        there.come(1, 0, 1)
        there.run(3.0)
        assert there.limits_w() == [FOUND_W, FOUND_W, LOW_W, LOW_W]
        assert there.allocation(0, 1)


@pytest.mark.slow
def test_a_gpu_that_is_lost_is_counted_in_full_and_the_others_go_on_within_the_rest(tmp_path: Path) -> None:
    with stage(tmp_path, 730.0) as there:
        there.come(1, 0)
        there.come(2, 1)
        there.run(4.0)
        assert there.limits_w() == [pytest.approx(260.0, abs=1.0)] * 2 + [LOW_W] * 2
        there.jobs.pop()  # the driver lists nobody there any more
        there.stand.fail(Fault(code=LOST, gpu=1, times=None))
        there.run(3.0)
        assert there.limits_w()[0] == pytest.approx(FOUND_W, abs=1.0)
        assert there.enforcer.ledger.room_w == pytest.approx(730.0 - 260.0 - 260.0 - 200.0 - 2.0, abs=1.5)
        said = [event.text for event in there.said if isinstance(event, events.Warned)]
        assert len(said) == 1
        assert said[0].startswith("GPU 1 is outside the budget now: ")
        assert said[0].endswith("; its limit could not be put back, and 260 W are counted for it")
        assert [event.why for event in there.said if isinstance(event, budget.JobLeft)] == ["GPU 1 has failed"]
        there.enforcer.ledger.budget(there.now_s, 600.0)
        there.run(3.0)
        assert there.limits_w()[0] == pytest.approx(600.0 - 260.0 - 200.0 - 2.0, abs=1.0)
        there.stand.board.update(lambda state: replace(state, machine=replace(state.machine, faults=())))
    assert there.limits_w() == [FOUND_W] * 4


@pytest.mark.slow
def test_a_gpu_that_takes_no_cap_any_more_has_its_limit_back_and_its_tuner_is_told(tmp_path: Path) -> None:
    with stage(tmp_path, 800.0) as there:
        there.come(1, 0)
        there.run(4.0)
        allocation = there.enforcer.lend(there.now_s, FoundJob(pid=1, uuids=there.uuids(0)))
        there.run(1.0)
        there.stand.fail(Fault(code=UNKNOWN, function="nvmlDeviceSetPowerManagementLimit", gpu=0, times=3))
        there.enforcer.set_caps(there.now_s, allocation, [150.0])
        there.run(1.0)
        assert there.limits_w() == [FOUND_W, LOW_W, LOW_W, LOW_W]
        assert not there.enforcer.is_here(allocation)
        said = [event.text for event in there.said if isinstance(event, events.Warned)]
        assert said == [one for one in said if "its limit of 260 W is back, and 260 W are counted for it" in one]
        with pytest.raises(LimitRefused, match="a GPU of this job has failed, and is outside the budget now"):
            there.enforcer.lend(there.now_s, FoundJob(pid=1, uuids=there.uuids(0)))
        there.come(2, 2)
        there.run(4.0)
        assert there.limits_w()[2] == pytest.approx(FOUND_W, abs=1.0)
        assert total_w(there) <= 800.0


@pytest.mark.slow
def test_a_job_of_more_weight_is_slowed_down_less_also_once_a_tuner_has_come(tmp_path: Path) -> None:
    with stage(tmp_path, 600.0, gpus=2) as there:
        there.enforcer.weights = Weights(group_of=lambda pid: pid % 10)  # 2 and 12 are one job's
        there.come(1, 0)
        there.come(2, 1)
        there.enforcer.ledger.budget(0.0, 340.0)
        there.run(4.0)
        one, other = there.allocation(0), there.allocation(1)
        assert there.enforcer.expected(one)[0] == pytest.approx(there.enforcer.expected(other)[0], abs=0.01)
        assert there.enforcer.weights.put(12, 3.0, (1, 2)) == [2]
        assert there.enforcer.weights.put(5, 3.0, (1, 2)) == []
        there.enforcer.lend(there.now_s, FoundJob(pid=2, uuids=there.uuids(1)))
        there.run(4.0)
        there.enforcer.set_caps(there.now_s, there.allocation(1), [there.allocation(1).ceiling_w])
        slow, fast = (there.enforcer.expected(there.allocation(gpu))[0] for gpu in (0, 1))
        assert slow / fast == pytest.approx(3.0, rel=0.1)
        assert total_w(there) <= 340.0


@pytest.mark.parametrize("trusted", [True, False])
def test_a_slowdown_that_a_tuner_allows_bounds_its_share_where_it_is_the_owners_and_is_said_where_it_cannot(
    trusted: bool, tmp_path: Path
) -> None:
    with stage(tmp_path, 520.0, gpus=2) as there:
        there.come(1, 0)
        allocation = there.enforcer.lend(there.now_s, there.come(2, 1))
        allocation.claim = Claim(peer=Peer(uid=1, pid=2, groups=()), trusted=trusted, root=None)
        caps_w = np.array([LOW_W, FOUND_W])
        said = JobCurve(caps_w=caps_w, slowdown=np.array([0.6, 0.0]), energy=np.ones(2), most_slowdown=0.05)
        there.enforcer.learn(there.now_s, allocation, said)
        there.enforcer.ledger.budget(there.now_s, 390.0)
        there.run(1.0)
        there.enforcer.set_caps(there.now_s, allocation, [allocation.ceiling_w])
        assert (there.enforcer.expected(allocation)[0] <= 0.055) is trusted
        assert there.allocation(0).ceiling_w + allocation.ceiling_w <= 390.0
        there.enforcer.ledger.budget(there.now_s, 300.0)
        there.run(2.0)
        warned = [event.text for event in there.said if isinstance(event, events.Warned)]
        assert len(warned) == 1  # once, whether it counts or is only shown
        assert "and its tuner allows 5 %: raise the budget" in warned[0]


def test_where_every_gpu_has_failed_there_is_no_budget_to_hold(tmp_path: Path) -> None:
    with stage(tmp_path, 400.0, gpus=1) as there:
        there.run(1.0)
        there.stand.fail(Fault(code=LOST, gpu=0, times=None))
        with pytest.raises(DeviceError):
            there.run(1.0)


class Guard:
    """answers: set once its driver does. put_back: what the next beat tells."""

    original_w = (250.0, 250.0)

    def __init__(self) -> None:
        self.answers, self.beats, self.put_back = threading.Event(), 0, False
        self.sets: list[tuple[float, ...]] = []

    def set_caps(self, caps_w: Sequence[float]) -> None:
        assert self.answers.wait(10.0)
        self.sets.append(tuple(caps_w))

    def beat(self) -> bool:
        self.beats += 1
        told, self.put_back = self.put_back, False
        return told


def test_while_a_set_takes_its_time_the_watchdog_hears_of_us_and_what_it_put_back_is_set_again() -> None:
    guard = Guard()
    caps = Caps(GPUS, guard)  # type: ignore[arg-type]
    setting = BackgroundCall[set[int]]()
    guard.put_back = True
    setting.begin(lambda: caps.set({0: 200.0, 1: 180.0}))
    eventually(lambda: guard.beats >= 2)
    assert not guard.sets
    guard.answers.set()
    assert setting.is_done(5.0)
    assert setting.take() == {0, 1}
    assert caps.beat()
    assert guard.sets == [(200.0, 180.0)] * 2
    assert not caps.beat()
