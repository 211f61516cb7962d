"""The emulated device on real processes. Slowdowns are taken from CPU time, against the free run before and after.

A busy machine disturbs that, so the accuracy test may try again where the job had to wait for a CPU.

The duty cycle, in virtual time: a job is played, no process is involved.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from autocap.clock import MonotonicClock
from autocap.devices.emulated.device import (
    LEAST_RUN_S,
    UNREAD_S,
    Activity,
    DutyCycle,
    EmulatedDevice,
    limits_from_outside,
)
from autocap.devices.model.profiles import load
from autocap.errors import DeviceError, LimitRefused
from autocap.job.processes import ProcessId, own_identity, tree
from autocap.records import CapRange
from autocap.testing.devices import DeviceContract, DeviceUnderTest
from tests.doubles.jobs import BUSY, PARENT, SLEEPING, cpu_s, has_a_working_child, job, state, stops_seen, waited_s
from tests.doubles.waiting import eventually

RESNET = load("quadro-rtx-6000/resnet50")


class InverseProfile:
    """Time goes with 1/cap and power is the cap, so that a test can ask for any slowdown."""

    gpu_name = "Inverse"
    idle_w = 20.0
    cap_range = CapRange(min_w=20.0, max_w=220.0, default_w=200.0)

    def power_w(self, cap_w: float) -> float:
        return cap_w

    def slowdown(self, cap_w: float) -> float:
        return self.cap_range.default_w / cap_w


class ShiftingClock(MonotonicClock):
    """A clock that a test can put forward, or break."""

    shift_s = 0.0
    broken = False

    def now(self) -> float:
        if self.broken:
            raise RuntimeError("the clock stands still")
        return super().now() + self.shift_s


@contextmanager
def bound(code, profile=None, clock=None, observe=False):
    """A job with a device bound to it, and a function that sets a cap."""
    clock = clock or ShiftingClock()
    with job(code) as root:
        device = EmulatedDevice(profile or InverseProfile(), clock, np.random.default_rng(1), observe=observe)
        device.bind(root)
        try:
            yield device, root
        finally:
            device.close()


def set_cap(device, cap_w):
    device.limits().set_limit_w(device.gpus[0].uuid, cap_w)


def attended(device, seconds):
    """Let time pass while somebody reads the device; the means of its power and its load over the last half."""
    end_s, seen = time.monotonic() + seconds, []
    while time.monotonic() < end_s:
        time.sleep(0.02)
        reading = device.read()[0]
        seen.append((reading.power_w or 0.0, reading.utilisation))
    return np.mean(seen[len(seen) // 2 :], axis=0)


@pytest.fixture(scope="class")
def practised():
    """A device that has seen its busy job run freely for a while, and the job."""
    with bound(BUSY) as (device, root):
        eventually(lambda: cpu_s(root) > 0.05)
        attended(device, 1.1)
        yield device, root


@dataclass
class Slowed:
    """slowdown: in CPU time. runnable: share of the time under the cap in which the job ran or waited for a CPU.

    disturbed: whether something else kept the CPUs busy, so that the job or we had to wait for one.
    """

    slowdown: float
    runnable: float
    disturbed: bool


def slowed(device, root, wanted):
    windows = []
    for cap_w, seconds in ((200.0, 0.4), (200.0 / wanted, 1.4), (200.0, 0.4)):
        set_cap(device, cap_w)
        began = spent(root)
        attended(device, seconds)
        passed_s, *spent_s = spent(root) - began
        windows.append(np.array(spent_s) / passed_s)
    (free_1, *_), (ran, waited, _), (free_2, *_) = windows
    disturbed = any(waited > 0.1 * (ran + waited) or we_waited > 0.02 for ran, waited, we_waited in windows)
    return Slowed((free_1 + free_2) / 2 / ran, ran + waited, disturbed)


def spent(root):
    """Seconds: the clock, how long the job ran, how long it waited for a CPU, and how long we did."""
    return np.array([time.monotonic(), cpu_s(root), waited_s(root), waited_s(own_identity())])


class TestSlowdown:  # a class, so that the busy job lives no longer than the tests that need it
    @pytest.mark.slow
    @pytest.mark.parametrize(("wanted", "within"), [(1.05, 0.03), (2.0, 0.1)])
    def test_a_cap_slows_the_job_as_the_profile_says(self, practised, wanted, within):
        for _ in range(4):
            result = slowed(*practised, wanted)
            if abs(result.slowdown / wanted - 1) < within:
                return
            # Where others take the CPUs, only what the device itself did can be judged; its efficiency has its bounds.
            assert 1 / (1.25 * wanted) < result.runnable < 1 / (0.6 * wanted)
        assert result.disturbed


@pytest.mark.slow
def test_a_grandchild_is_slowed_too():
    with bound(PARENT) as (device, root):
        eventually(lambda: has_a_working_child(root))
        set_cap(device, 50.0)
        grandchild = tree(root)[1]
        eventually(lambda: device.read() and state(grandchild) == "T")


@pytest.mark.slow
def test_a_closed_device_leaves_the_job_running_whatever_the_cap():
    with bound(BUSY) as (device, root):
        set_cap(device, 40.0)
        eventually(lambda: state(root) == "T")
        device.close()
        assert stops_seen(root, 0.2) == 0
        assert root.is_alive()


@pytest.mark.slow
def test_a_fault_in_the_thread_leaves_the_job_running_and_is_told_to_the_reader():
    clock = ShiftingClock()
    with bound(BUSY, clock=clock) as (device, root):
        set_cap(device, 40.0)
        eventually(lambda: state(root) == "T")
        clock.broken = True
        eventually(lambda: stops_seen(root, 0.1) == 0)
        with pytest.raises(DeviceError, match="device failed, the job runs at full speed: the clock stands still"):
            device.read()
        with pytest.raises(LimitRefused, match=r"cap 50 W was not set: .*the clock stands still"):
            set_cap(device, 50.0)


@pytest.mark.slow
def test_a_cap_that_nobody_attends_to_is_lifted_until_somebody_reads_again():
    clock = ShiftingClock()
    with bound(BUSY, clock=clock) as (device, root):
        set_cap(device, 40.0)
        eventually(lambda: state(root) == "T")
        clock.shift_s += UNREAD_S
        eventually(lambda: stops_seen(root, 0.1) == 0)
        eventually(lambda: device.read()[0].requested_w == 40.0 and state(root) == "T")


CONTROLLER = """
import sys, time
import numpy as np
from autocap.clock import MonotonicClock
from autocap.devices.emulated.device import EmulatedDevice
from autocap.job.processes import identify
from tests.devices.test_emulated import InverseProfile
device = EmulatedDevice(InverseProfile(), MonotonicClock(), np.random.default_rng(1))
device.bind(identify(int(sys.argv[1])))
device.limits().set_limit_w(device.gpus[0].uuid, 20.0)
print("set", flush=True)
while sys.stdin.readable() and sys.argv[2] == "stay":
    device.read()
    time.sleep(0.05)
time.sleep(0.3)
"""


@contextmanager
def controller(root: ProcessId, how: str) -> Iterator[subprocess.Popen]:
    """Another process that caps the job and then stays, or ends without closing the device."""
    command = [sys.executable, "-c", CONTROLLER, str(root.pid), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"set\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_the_interpreters_exit_continues_the_job():
    with job(BUSY) as root, controller(root, "leave") as process:
        eventually(lambda: state(root) == "T")
        assert process.wait(120) == 0
        assert stops_seen(root, 0.1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_limit_from_outside_continues_the_job_of_a_controller_that_was_killed_or_stopped(how):
    with job(BUSY) as root, controller(root, "stay") as process:
        eventually(lambda: state(root) == "T")
        process.send_signal(how)
        time.sleep(0.05)
        limits = limits_from_outside(root)
        assert limits.requested_w("emulated-1-2") is None
        limits.set_limit_w("emulated-1-2", 200.0)
        eventually(lambda: state(root) != "T")
        assert stops_seen(root, 0.2) == 0


@pytest.mark.slow
def test_the_limit_from_outside_needs_no_job_and_no_numpy():
    code = (
        "import sys\n"
        "from autocap.devices.emulated import limits_from_outside\n"
        "limits_from_outside(None).set_limit_w('emulated-1-2', 200.0)\n"
        "assert 'numpy' not in sys.modules and 'scipy' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_an_observed_device_stops_nothing_and_has_no_limits():
    with bound(BUSY, observe=True) as (device, root):
        assert stops_seen(root, 0.3) == 0
        assert device.read()[0].requested_w == 200.0
        with pytest.raises(DeviceError, match="an observed device has no limits to set; leave out --observe"):
            device.limits()


@pytest.mark.slow
def test_power_follows_the_load_and_the_cap():
    with bound(SLEEPING) as (device, _):
        power_w, load = attended(device, 0.6)
        assert power_w == pytest.approx(20.0, rel=0.05)
        assert load < 0.01
    with bound(BUSY) as (device, _):
        # One busy thread is a whole load, but others may keep it from its CPU: judged by the load that there was.
        power_w, load = attended(device, 1.0)
        assert load > 0.25 / len(os.sched_getaffinity(0))
        assert power_w == pytest.approx(20.0 + load * 180.0, rel=0.2)
        set_cap(device, 100.0)
        power_w, load = attended(device, 1.0)
        assert power_w == pytest.approx(20.0 + load * 80.0, rel=0.2)


def test_the_end_of_the_job_ends_the_throttling_and_leaves_idle_power():
    with bound(BUSY) as (device, root):
        set_cap(device, 50.0)
        eventually(lambda: state(root) == "T")
        os.kill(root.pid, signal.SIGKILL)
        eventually(lambda: device.read()[0].power_w == pytest.approx(20.0, rel=0.05))
        set_cap(device, 200.0)
        device.close()


def test_the_bounds_are_known_before_the_job_and_the_uuid_after():
    device = EmulatedDevice(RESNET, MonotonicClock(), np.random.default_rng(1))
    assert device.cap_range == RESNET.cap_range
    assert (device.gpus[0].uuid, device.gpus[0].name) == ("emulated", "Quadro RTX 6000 (emulated)")
    with job(SLEEPING) as root:
        device.bind(root)
        assert device.gpus[0].uuid == f"emulated-{root.pid}-{root.start_ticks}"
        device.close()


def test_a_cap_is_binding_where_it_slows_the_job():
    with bound(SLEEPING, profile=RESNET) as (device, _):
        assert device.read()[0].cap_binding is False
        set_cap(device, 150.0)
        assert device.read()[0].cap_binding is True


def test_a_cap_outside_the_range_is_refused():
    with bound(SLEEPING, profile=RESNET) as (device, _):
        with pytest.raises(LimitRefused) as refusal:
            set_cap(device, 90.0)
        assert str(refusal.value) == (
            "cap 90 W lies outside the 100 W to 260 W of GPU 0 (Quadro RTX 6000 (emulated)); choose a cap within them"
        )


NOW_AND_THEN = "import time\nwhile True: sum(range(20_000)), time.sleep(0.005)"  # at work, and most of the time not


class TestEmulated(DeviceContract):
    @contextmanager
    def make(self) -> Iterator[DeviceUnderTest]:
        clock = MonotonicClock()
        with bound(NOW_AND_THEN, profile=RESNET, clock=clock) as (device, _):
            yield DeviceUnderTest(device, device.limits(), clock.now, time.sleep)


def busy(activity: Activity, seconds: float, cpus: float) -> Activity:
    for _ in range(round(seconds / 0.02)):
        activity.spend(0.02, 0.02 * cpus)
    return activity


def test_a_job_of_one_thread_is_fully_active_on_a_machine_of_any_size():
    assert busy(Activity(), 2.0, 1.0).share() == pytest.approx(1.0, abs=0.01)


def test_a_single_threaded_phase_of_a_job_that_uses_two_cpus_is_half_active():
    activity = busy(Activity(), 3.0, 1.95)
    assert activity.share() == pytest.approx(0.975, abs=0.01)
    assert busy(activity, 0.5, 1.0).share() == pytest.approx(0.5, abs=0.01)
    assert busy(activity, 30.0, 1.0).share() == pytest.approx(0.5, abs=0.01)  # once broad, always broad


def test_activity_is_zero_before_anything_ran_and_unchanged_by_a_stop():
    activity = Activity()
    assert activity.share() == 0.0
    activity.spend(1.0, 0.5)
    activity.spend(0.0, 0.001)
    assert activity.share() == pytest.approx(0.5)


def test_activity_follows_a_change_within_a_few_ticks():
    activity = Activity()
    activity.spend(1.0, 1.0)
    for _ in range(10):
        activity.spend(0.02, 0.0)
    assert activity.share() < 0.05


TICK_S = 0.02


class Job:
    """Works at a CPU rate, or works and sleeps in turn; a stop halts the work but not a sleep."""

    def __init__(self, rate=1.0, wakeup_s=0.0, work_s=None, sleep_s=0.0):
        self.rate, self.wakeup_s, self.work_s, self.sleep_s = rate, wakeup_s, work_s, sleep_s
        self.cpu_s = 0.0
        self._waking_s = self._asleep_s = self._worked_s = 0.0

    def resume(self):
        self._waking_s = self.wakeup_s

    def pass_time(self, elapsed_s, stopped):
        """The CPU time used."""
        before_s = self.cpu_s
        while elapsed_s > 1e-12:
            step_s = min(elapsed_s, 0.0005)
            elapsed_s -= step_s
            if self._asleep_s > 0:
                self._asleep_s -= step_s
            elif not stopped and self._waking_s > 0:
                self._waking_s -= step_s
            elif not stopped:
                self._work(step_s)
        return self.cpu_s - before_s

    def _work(self, step_s):
        self.cpu_s += step_s * self.rate
        self._worked_s += step_s
        if self.work_s is not None and self._worked_s >= self.work_s:
            self._worked_s, self._asleep_s = 0.0, self.sleep_s


def play(duty, job, seconds, lateness_s=lambda: 0.0, slices=None):
    """Run the job under the duty cycle; the CPU time it got per second."""
    cpu_s = passed_s = slice_s = 0.0
    while passed_s < seconds:
        elapsed_s = min(TICK_S, max(0.0, duty.left_s())) + 1e-5 + lateness_s()
        used_s = job.pass_time(elapsed_s, duty.stopped)
        duty.spend(elapsed_s, used_s)
        cpu_s, passed_s, slice_s = cpu_s + used_s, passed_s + elapsed_s, slice_s + elapsed_s
        if duty.left_s() <= 0:
            if slices is not None:
                slices.append((duty.stopped, slice_s))
            duty.turn()
            slice_s = 0.0
            if not duty.stopped:
                job.resume()
    return cpu_s / passed_s


def slowdown_of(duty, job, wanted, seconds=6.0, learn_s=3.0, **how):
    """What a job is really slowed by, against its free run just before."""
    free = play(duty, job, learn_s, **how)
    duty.slowdown = wanted
    play(duty, job, 1.0, **how)
    return free / play(duty, job, seconds, **how)


def test_nothing_is_stopped_at_slowdown_one():
    duty = DutyCycle()
    assert play(duty, Job(), 2.0) == pytest.approx(1.0, abs=0.01)
    duty.slowdown = 0.97
    assert duty.slowdown == 1.0
    assert duty.left_s() > 1e9


@pytest.mark.parametrize("wanted", [1.05, 1.27, 1.6, 2.0, 3.0, 8.0])
def test_a_busy_job_is_slowed_as_asked(wanted):
    assert slowdown_of(DutyCycle(), Job(), wanted) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("wanted", [1.05, 1.27, 2.0])
@pytest.mark.parametrize(("late", "how"), [(0.002, {}), (0.0, {"rate": 1.7, "wakeup_s": 0.003})])
def test_late_timers_and_time_lost_in_waking_up_are_made_up_for(wanted, late, how):
    rng = random.Random(1)
    slowdown = slowdown_of(DutyCycle(), Job(**how), wanted, lateness_s=lambda: late and rng.expovariate(1 / late))
    assert slowdown == pytest.approx(wanted, rel=0.015)


def test_without_a_known_free_rate_running_time_counts_as_it_is():
    duty, job = DutyCycle(), Job(wakeup_s=0.003)
    duty.slowdown = 2.0
    play(duty, job, 5.0)
    assert duty.efficiency == 1.0


@pytest.mark.parametrize(("rate", "later"), [(1.0, 2.0), (2.0, 1.0)])
def test_a_job_that_gets_busier_or_idler_under_a_cap_is_slowed_as_before(rate, later):
    duty, job = DutyCycle(), Job(rate=rate)
    slowdown_of(duty, job, 2.0)
    job.rate = later
    play(duty, job, 6.0 / later)
    assert play(duty, job, 5.0) == pytest.approx(later / 2.0, rel=0.02)


@pytest.mark.parametrize(("work_s", "sleep_s"), [(0.03, 0.03), (0.02, 0.02), (0.2, 0.2), (0.05, 0.01)])
def test_a_job_that_sleeps_is_slowed_at_most_as_asked_and_at_least_while_it_works(work_s, sleep_s):
    wanted = 1.8
    only_the_work = (work_s * wanted + sleep_s) / (work_s + sleep_s)
    slowdown = slowdown_of(DutyCycle(), Job(work_s=work_s, sleep_s=sleep_s), wanted, seconds=12.0)
    assert 0.9 * only_the_work < slowdown < 1.03 * wanted


@pytest.mark.parametrize("wanted", [1.05, 2.0, 6.0, 30.0])
def test_stops_stay_short_and_runs_are_never_too_short_to_get_anywhere(wanted):
    duty, slices = DutyCycle(), []
    duty.slowdown = wanted
    play(duty, Job(), 5.0, slices=slices)
    stops_s = [slice_s for stopped, slice_s in slices if stopped]
    runs_s = [slice_s for stopped, slice_s in slices[1:] if not stopped]
    assert max(stops_s) <= 0.1
    assert min(runs_s) >= LEAST_RUN_S


def test_lifting_the_cap_ends_a_stop_at_once():
    duty = DutyCycle()
    duty.slowdown = 2.0
    assert duty.left_s() <= LEAST_RUN_S
    duty.turn()
    assert duty.left_s() > 0
    duty.slowdown = 1.0
    assert duty.left_s() < 0


def test_a_long_delay_is_not_made_up_for_without_end():
    duty, slices = DutyCycle(), []
    duty.slowdown = 2.0
    duty.turn()
    duty.spend(5.0, 0.0)  # we were kept from continuing the job for five seconds
    duty.turn()
    play(duty, Job(), 1.0, slices=slices)
    assert slices[0] == (False, pytest.approx(0.2, abs=0.01))
