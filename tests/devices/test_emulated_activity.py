import os

import pytest

from autocap.devices.emulated.activity import Activity, usable_cpus


def busy(activity: Activity, seconds: float, cpus: float) -> Activity:
    for _ in range(round(seconds / 0.02)):
        activity.spend(0.02, 0.02 * cpus)
    return activity


def test_a_job_of_one_thread_is_fully_active_on_a_machine_of_any_size():
    assert busy(Activity(), 2.0, 1.0).share(64.0) == pytest.approx(1.0, abs=0.01)


def test_a_single_threaded_phase_of_a_job_that_uses_two_cpus_is_half_active():
    activity = busy(Activity(), 3.0, 1.95)
    assert activity.share(64.0) == pytest.approx(0.975, abs=0.01)
    assert busy(activity, 0.5, 1.0).share(64.0) == pytest.approx(0.5, abs=0.01)
    assert busy(activity, 30.0, 1.0).share(64.0) == pytest.approx(0.5, abs=0.01)  # once broad, always broad


def test_no_more_cpus_count_than_may_be_used():
    assert busy(Activity(), 3.0, 2.0).share(1.0) == 1.0
    assert busy(Activity(), 3.0, 0.5).share(0.5) == pytest.approx(1.0, abs=0.01)


def test_activity_is_zero_before_anything_ran_and_unchanged_by_a_stop():
    activity = Activity()
    assert activity.share(2.0) == 0.0
    activity.spend(1.0, 0.5)
    activity.spend(0.0, 0.001)
    assert activity.share(2.0) == pytest.approx(0.5)


def test_activity_follows_a_change_within_a_few_ticks():
    activity = Activity()
    activity.spend(1.0, 1.0)
    for _ in range(10):
        activity.spend(0.02, 0.0)
    assert activity.share(1.0) < 0.05


OURS = len(os.sched_getaffinity(0))


def groups(tmp_path, lines, quotas):
    """A made-up /proc and /sys/fs/cgroup for our own PID."""
    (tmp_path / "proc" / str(os.getpid())).mkdir(parents=True)
    (tmp_path / "proc" / str(os.getpid()) / "cgroup").write_text(lines)
    for name, text in quotas.items():
        file = tmp_path / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "proc", tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("lines", "quotas", "cpus"),
    [
        ("0::/job/part\n", {"job/cpu.max": "50000 100000\n", "job/part/cpu.max": "max 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("3:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "50000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("0::/job\n", {"job/cpu.max": "max 100000\n"}, OURS),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, OURS),
        ("5:memory:/job\n", {"memory/job/cpu.max": "1 100000\n"}, OURS),
        ("0::/hidden/from/us\n", {}, OURS),
    ],
)
def test_a_quota_of_any_group_on_the_way_up_counts_and_without_one_the_affinity(tmp_path, lines, quotas, cpus):
    assert usable_cpus(os.getpid(), *groups(tmp_path, lines, quotas)) == cpus
