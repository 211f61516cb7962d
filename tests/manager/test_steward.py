"""A budget held on an emulated machine, in virtual time: who gets which caps, and what is lent to tuners."""

from pathlib import Path

import numpy as np
import pytest

from autocap import events
from autocap.budget.curves import JobCurve
from autocap.errors import DeviceLocked, GuardError, LimitRefused
from autocap.manager.finding import FoundJob
from autocap.records import NodeReading
from tests.manager.stage import Stage, stage

FOUND_W, LOW_W = 260.0, 100.0


def total_w(there: Stage) -> float:
    return sum(there.limits_w())


def test_devices_that_nobody_uses_are_held_at_their_lowest_cap(tmp_path: Path) -> None:
    with stage(tmp_path, 800.0) as there:
        there.run(1.0)
        assert there.limits_w() == [LOW_W] * 4
    assert there.limits_w() == [FOUND_W] * 4


def test_a_job_has_what_the_others_leave(tmp_path: Path) -> None:
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


def test_a_job_that_ends_leaves_its_watts_to_the_others(tmp_path: Path) -> None:
    with stage(tmp_path, 640.0) as there:
        there.come(1, 0)
        there.come(2, 1)
        there.run(4.0)
        before_w = there.limits_w()[0]
        there.jobs.pop()
        there.run(4.0)
        assert there.limits_w()[0] > before_w
        assert there.limits_w()[1:] == [LOW_W] * 3
    left = [event for event in there.said if isinstance(event, events.JobLeft)]
    assert [event.why for event in left] == ["it computes no more"]


def test_a_list_that_lacks_a_job_once_is_no_end_of_it(tmp_path: Path) -> None:
    with stage(tmp_path, 640.0) as there:
        job = there.come(1, 0)
        there.run(4.0)
        there.jobs.clear()
        there.run(0.2)
        there.jobs.append(job)
        there.run(2.0)
        assert not [event for event in there.said if isinstance(event, events.JobLeft)]


def test_a_budget_that_falls_is_kept_in_the_same_call(tmp_path: Path) -> None:
    with stage(tmp_path, 2000.0) as there:
        there.come(1, 0, 1)
        there.come(2, 2, 3)
        there.run(4.0)
        assert total_w(there) == 4 * FOUND_W
        there.steward.ledger.budget(there.now_s, 780.0)
        there.steward.act(there.now_s)
        assert 770.0 < total_w(there) <= 780.0


def test_no_cap_is_below_the_floor(tmp_path: Path) -> None:
    with stage(tmp_path, 500.0, floor_w=150.0) as there:
        there.run(1.0)
        assert there.limits_w() == [150.0] * 4
        assert there.steward.short_w == pytest.approx(102.0)
        assert len(there.steward.pause) == 1
    assert [event.short_w for event in there.said if isinstance(event, events.BudgetShort)] == [pytest.approx(102.0)]


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
        assert 670.0 < total_w(there) <= 680.0
        assert there.steward.power_w == pytest.approx(
            120.0 + sum(reading.power_w or 0.0 for reading in there.steward.readings)
        )


def test_a_job_that_draws_less_gives_the_rest_away(tmp_path: Path) -> None:
    with stage(tmp_path, 860.0, gpus=2) as there:
        there.come(1, 0)
        there.come(2, 1)
        there.run(3.0)
        # Said of what its devices draw at most, and that no cap binds them.
        there.steward.ledger.drew(there.tenant(0).name, 140.0)
        there.steward.ledger.budget(there.now_s, 400.0)
        there.steward.act(there.now_s)
        assert there.limits_w()[0] == pytest.approx(145.0, abs=1.0)
        assert there.limits_w()[1] == pytest.approx(254.0, abs=1.5)


# Tuners.


def test_a_tuner_sets_caps_below_its_ceiling_alone(tmp_path: Path) -> None:
    with stage(tmp_path, 620.0) as there:
        there.come(1, 0)
        job = there.come(2, 2, 3)
        tenant = there.steward.lend(there.now_s, job)
        there.run(3.0)
        assert tenant.ceiling_w < FOUND_W
        assert ("PID", tenant.ceiling_w)[1] == there.told[-1][1]
        there.steward.set_caps(there.now_s, tenant, (120.0, 110.0))
        there.run(3.0)
        assert there.limits_w()[2:] == [120.0, 110.0]
        there.steward.set_caps(there.now_s, tenant, (259.0, 110.0))
        assert there.limits_w()[2:] == [tenant.ceiling_w, 110.0]


def test_a_ceiling_that_falls_is_in_force_before_the_tuner_does_anything(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0, gpus=2) as there:
        tenant = there.steward.lend(there.now_s, there.come(1, 0, 1))
        there.run(3.0)
        there.steward.set_caps(there.now_s, tenant, (240.0, 120.0))
        there.steward.ledger.budget(there.now_s, 302.0)
        there.steward.act(there.now_s)
        assert there.limits_w() == [150.0, 120.0]


def test_a_silent_tuners_devices_get_what_the_budget_gives_them_until_it_is_heard(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0, gpus=2) as there:
        tenant = there.steward.lend(there.now_s, there.come(1, 0, 1))
        there.run(3.0)
        there.steward.set_caps(there.now_s, tenant, (130.0, 130.0))
        there.steward.silent(there.now_s, tenant)
        assert there.limits_w() == [FOUND_W, FOUND_W]
        assert tenant.put_back


def test_a_job_whose_tuner_has_gone_stays_with_what_is_known_of_it(tmp_path: Path) -> None:
    with stage(tmp_path, 420.0, gpus=2) as there:
        there.come(1, 0)
        tenant = there.steward.lend(there.now_s, there.come(2, 1))
        flat = JobCurve(caps_w=np.array([120.0, 150.0]), slowdown=np.array([0.01, 0.0]), energy=np.array([0.9, 1.0]))
        there.steward.learn(tenant, flat)
        there.run(8.0)
        there.steward.set_caps(there.now_s, tenant, (110.0,))
        there.steward.release(there.now_s, tenant)
        there.run(2.0)
        assert not tenant.tuned
        assert there.limits_w()[1] == tenant.ceiling_w
        assert 110.0 < tenant.ceiling_w <= 150.0


def test_a_device_has_one_tuner(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0) as there:
        there.steward.lend(there.now_s, there.come(1, 0, 1))
        with pytest.raises(DeviceLocked, match="a tuner has"):
            there.steward.lend(there.now_s, FoundJob(pid=2, uuids=there.uuids(1, 2)))


def test_a_device_that_the_budget_does_not_have_is_not_lent(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0) as there, pytest.raises(LimitRefused, match="the budget does not have GPU-x"):
        there.steward.lend(there.now_s, FoundJob(pid=2, uuids=("GPU-x",)))


@pytest.mark.parametrize(
    ("watts", "complaint"), [((120.0,), "1 caps for 2"), ((20.0, 150.0), "below the 100 W minimum")]
)
def test_caps_that_devices_do_not_take_are_refused(tmp_path: Path, watts: tuple[float, ...], complaint: str) -> None:
    with stage(tmp_path, 900.0) as there:
        tenant = there.steward.lend(there.now_s, there.come(1, 0, 1))
        with pytest.raises(LimitRefused, match=complaint):
            there.steward.require_caps(tenant, watts)


# What others do.


def test_a_limit_that_somebody_else_sets_ends_the_budget(tmp_path: Path) -> None:
    with stage(tmp_path, 900.0) as there:
        there.run(1.0)
        there.stand.request(205_000, gpu=1)
        with pytest.raises(GuardError, match="somebody else has changed it"):
            there.run(2.0)
    assert there.limits_w() == [FOUND_W, 205.0, FOUND_W, FOUND_W]


def test_a_job_that_begins_on_more_devices_is_the_same_job_on_all(tmp_path: Path) -> None:
    with stage(tmp_path, 5000.0) as there:
        there.come(1, 0)
        there.run(2.0)
        there.jobs.clear()
        there.come(1, 0, 1)
        there.run(3.0)
        assert there.limits_w() == [FOUND_W, FOUND_W, LOW_W, LOW_W]
        assert there.tenant(0, 1)
