import pytest

from autocap.devices.emulated.device import Activity


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
