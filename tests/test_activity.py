import os

import pytest

from autocap.devices.activity import Activity, usable_cpus


def test_activity_is_the_share_of_the_usable_cpus():
    activity = Activity()

    for _ in range(50):
        activity.spend(0.02, 0.03)

    assert activity.share(2.0) == pytest.approx(0.75)
    assert activity.share(1.0) == 1.0


def test_activity_is_zero_before_anything_ran_and_unchanged_by_a_stop():
    activity = Activity()
    assert activity.share(2.0) == 0.0

    activity.spend(1.0, 1.0)
    activity.spend(0.0, 0.001)

    assert activity.share(2.0) == pytest.approx(0.5)


def test_activity_follows_a_change_within_a_few_ticks():
    activity = Activity()
    activity.spend(1.0, 1.0)

    for _ in range(10):
        activity.spend(0.02, 0.0)

    assert activity.share(1.0) < 0.05


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
    ("lines", "quotas"),
    [
        ("0::/job/part\n", {"job/cpu.max": "50000 100000\n", "job/part/cpu.max": "max 100000\n"}),
        ("0::/\n", {"cpu.max": "50000 100000\n"}),
        ("3:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "50000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}),
    ],
)
def test_a_quota_of_any_group_on_the_way_up_counts(tmp_path, lines, quotas):
    assert usable_cpus(os.getpid(), *groups(tmp_path, lines, quotas)) == 0.5


@pytest.mark.parametrize(
    ("lines", "quotas"),
    [
        ("0::/job\n", {"job/cpu.max": "max 100000\n"}),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}),
        ("5:memory:/job\n", {"memory/job/cpu.max": "1 100000\n"}),
        ("0::/hidden/from/us\n", {}),
    ],
)
def test_without_a_quota_the_affinity_counts(tmp_path, lines, quotas):
    assert usable_cpus(os.getpid(), *groups(tmp_path, lines, quotas)) == len(os.sched_getaffinity(0))
