"""The duty cycle, in virtual time: a job is played, no process is involved."""

import random

import pytest

from autocap.devices.emulated.device import LEAST_RUN_S, DutyCycle

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
