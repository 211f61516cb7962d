"""The long-term limit, its window and its flag: set for a cap, put back, refused; under the guardian."""

import errno
import os
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.powercap import Sysfs
from autocap.devices.rapl import limits_from_outside
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.limits import RaplLimits
from autocap.devices.rapl.packages import list_packages
from autocap.errors import DeviceError, LimitNotEnforced, LimitRefused
from autocap.job.processes import ProcessId, boot_id
from autocap.limits import Fate, ForeignLimit, Guardian, settle
from autocap.limits.journal import Entry, Journal
from autocap.limits.state_dir import StateDir
from bench.faults.virtual import Unwatched
from tests.doubles.rapl_tree import WINDOW_US, RaplTree

UUID = "intel-rapl-0"
FOUND = (125.0, WINDOW_US, 1)
CAPPED = (80.0, 1_000_000, 1)


class Refusing(Sysfs):
    """A tree of which a file cannot be written, or takes a write for nothing."""

    def __init__(self, root: Path, file: str, refusal: int | None) -> None:
        super().__init__(root)
        self.file, self.refusal = file, refusal

    def write(self, path: Path, text: str) -> None:
        if path.name != self.file:
            super().write(path, text)
        elif self.refusal is not None:
            raise OSError(self.refusal, os.strerror(self.refusal))


def guardian(state: Path, sysfs: Sysfs | None = None) -> Guardian:
    packages = list_packages(sysfs)
    return Guardian(
        kind="rapl", gpus=[package.info for package in packages], limits=RaplLimits(packages), job=None,
        state_dir=state, sync=lambda fd: None, start_watch=Unwatched,
    )  # fmt: skip


def test_a_cap_holds_over_a_second_and_everything_found_is_put_back(tree: RaplTree, tmp_path: Path) -> None:
    zones = [tree.package(number) for number in (0, 1)]
    tree.put(zones[1], "constraint_0_power_limit_uw", 110_000_000)
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0, 75.0])
        assert [tree.setting(zone) for zone in zones] == [CAPPED, (75.0, 1_000_000, 1)]
    assert [tree.setting(zone) for zone in zones] == [FOUND, (110.0, WINDOW_US, 1)]
    assert os.listdir(tmp_path / "state") == []


def test_a_window_that_was_shorter_stays(tree: RaplTree, tmp_path: Path) -> None:
    zone = tree.package()
    tree.put(zone, "constraint_0_time_window_us", 976)
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0])
        assert tree.setting(zone) == (80.0, 976, 1)


def test_a_limit_that_was_switched_off_is_on_for_caps_alone(tree: RaplTree, tmp_path: Path) -> None:
    zone = tree.package(enabled=0)
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0])
        assert tree.setting(zone) == CAPPED
        guarded.set_caps([125.0])
        assert tree.setting(zone) == (125.0, 1_000_000, 0)
    assert tree.setting(zone) == (125.0, WINDOW_US, 0)


def test_a_limit_found_outside_the_range_is_requested_again_and_put_back(tree: RaplTree, tmp_path: Path) -> None:
    zone = tree.package(limit_w=4095.875, max_power_w=125.0)
    assert list_packages()[0].cap_range.max_w == 500.0
    with guardian(tmp_path / "state") as guarded:
        guarded.rehearse()
        guarded.set_caps([100.0])
        guarded.set_caps([4095.875])
    assert tree.setting(zone) == (4095.875, WINDOW_US, 1)


def test_somebody_elses_limit_stays_and_our_window_goes(tree: RaplTree, tmp_path: Path) -> None:
    zone = tree.package()
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0])
        tree.put(zone, "constraint_0_power_limit_uw", 95_000_000)
        with pytest.raises(ForeignLimit, match="95 W, where 80 W is ours"):
            guarded.set_caps([70.0])
        (restored,) = guarded.restore()
        assert not restored.restored
    assert tree.setting(zone) == (95.0, WINDOW_US, 1)


def test_a_window_of_somebody_elses_stays_with_their_limit(tree: RaplTree, tmp_path: Path) -> None:
    zone = tree.package()
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0])
        tree.put(zone, "constraint_0_power_limit_uw", 95_000_000)
        tree.put(zone, "constraint_0_time_window_us", 10_000_000)
    assert tree.setting(zone) == (95.0, 10_000_000, 1)


def left_behind(state: Path, zone: str) -> None:
    """The entry of a controller that was killed in the middle of its first cap."""
    dead = ProcessId(2**22 - 2, 1)
    entry = Entry(
        kind="rapl", uuid=zone.replace(":", "-"), original_w=125.0, boot_id=boot_id(), owner=dead,
        settings=list_packages()[0].limit.settings(),
    )  # fmt: skip
    with StateDir(state) as opened:
        Journal(opened).save(entry.before_set(80.0, 125.0))


@pytest.mark.parametrize("came_to", range(4))
def test_whatever_a_killed_run_came_to_is_put_back(tree: RaplTree, tmp_path: Path, came_to: int) -> None:
    zone = tree.package(enabled=0)
    left_behind(tmp_path / "state", zone)
    steps = {"constraint_0_power_limit_uw": 80_000_000, "constraint_0_time_window_us": 1_000_000, "enabled": 1}
    for file, value in list(steps.items())[:came_to]:
        tree.put(zone, file, value)
    (settled,) = settle(tmp_path / "state")
    assert settled.outcome is (Fate.RESTORED if came_to else Fate.UNCHANGED)
    assert tree.setting(zone) == (125.0, WINDOW_US, 0)


@pytest.mark.parametrize(
    ("file", "refusal", "message"),
    [
        (
            "constraint_0_power_limit_uw",
            errno.EACCES,
            r"cap 125 W was not set on package 0: .*(root|firmware).*--observe",
        ),
        ("constraint_0_power_limit_uw", errno.EROFS, r"sysfs is mounted read-only, as in a container"),
        ("constraint_0_time_window_us", errno.EINVAL, r"time_window_us 1000000 was not set on package 0: .*Invalid"),
        ("constraint_0_time_window_us", None, r"was ignored by package 0, which keeps 27983872; the firmware has lock"),
    ],
)
def test_a_write_that_is_refused_shows_before_any_cap(tree, tmp_path, file, refusal, message) -> None:
    zone = tree.package()
    refusing = Refusing(tree.root, file, refusal)
    with guardian(tmp_path / "state", refusing) as guarded, pytest.raises(LimitRefused, match=message):
        guarded.rehearse()
    assert tree.setting(zone) == FOUND
    assert os.listdir(tmp_path / "state") == []


def test_a_limit_that_is_ignored_is_refused(tree: RaplTree) -> None:
    tree.package()
    limits = RaplLimits(list_packages(Refusing(tree.root, "constraint_0_power_limit_uw", None)))
    with pytest.raises(LimitRefused, match="cap 80 W was ignored by package 0, which is at 125 W; another tool may"):
        limits.set_limit_w(UUID, 80.0)


def test_a_zone_that_vanishes_keeps_no_other_package_from_its_limit(tree: RaplTree, tmp_path: Path) -> None:
    zones = [tree.package(number) for number in (0, 1)]
    with guardian(tmp_path / "state") as guarded:
        guarded.set_caps([80.0, 80.0])
        (tree.top / zones[0]).rename(tmp_path / "gone")
        lost, kept = guarded.restore()
        assert "125 W could not be put back" in lost.note
        assert kept.restored
        assert tree.setting(zones[1]) == FOUND
        (tmp_path / "gone").rename(tree.top / zones[0])
    assert tree.setting(zones[0]) == FOUND


def test_what_another_interface_of_the_package_holds_is_the_top_of_the_range(tree: RaplTree) -> None:
    tree.package()
    twin = tree.package(interface="intel-rapl-mmio", limit_w=90.0)
    (package,) = list_packages()
    assert package.uuid == UUID
    assert package.cap_range.max_w == 90.0
    tree.put(twin, "constraint_0_power_limit_uw", 60_000_000)  # as thermald does, meanwhile
    with pytest.raises(LimitNotEnforced, match="but 60 W holds on its other interface; pass --max-cap 60 or less"):
        RaplLimits([package]).set_limit_w(UUID, 80.0)


def test_the_interface_that_is_switched_on_is_the_one_to_cap_by(tree: RaplTree) -> None:
    tree.package(enabled=0)
    tree.package(interface="intel-rapl-mmio", limit_w=28.0, max_power_w=15.0)
    (package,) = list_packages()
    assert package.uuid == "intel-rapl-mmio-0"
    assert (package.cap_range.min_w, package.cap_range.max_w) == (4.0, 28.0)


@pytest.mark.parametrize(
    ("found_w", "rated_w", "low_w", "high_w"),
    [(125.0, 125.0, 31.0, 125.0), (253.0, 125.0, 31.0, 253.0), (100.0, 150.0, 38.0, 150.0), (200.0, None, 50.0, 200.0)],
)
def test_the_range_goes_from_a_quarter_of_the_rated_power_up_to_it_or_to_the_limit_found(
    tree: RaplTree, found_w: float, rated_w: float | None, low_w: float, high_w: float
) -> None:
    tree.package(limit_w=found_w, max_power_w=rated_w)
    (package,) = list_packages()
    assert (package.cap_range.min_w, package.cap_range.max_w) == (low_w, high_w)


def test_from_outside_a_limit_is_put_back_whichever_interface_is_switched_on_by_then(tree: RaplTree) -> None:
    zone = tree.package()
    twin = tree.package(interface="intel-rapl-mmio", limit_w=90.0)
    found = limits_from_outside(None).settings(UUID)
    for file, value in (("constraint_0_power_limit_uw", 80_000_000), ("enabled", 0)):
        tree.put(zone, file, value)
    limits_from_outside(None).put_back(UUID, 125.0, found)
    assert tree.setting(zone) == FOUND
    assert tree.setting(twin) == (90.0, WINDOW_US, 1)


def test_a_setting_that_is_gone_keeps_no_limit_from_being_put_back(tree: RaplTree) -> None:
    zone = tree.package()
    found = limits_from_outside(None).settings(UUID)
    tree.put(zone, "constraint_0_power_limit_uw", 80_000_000)
    (tree.top / zone / "constraint_0_time_window_us").unlink()
    with pytest.raises(LimitRefused, match="time_window_us of package 0 was there and is gone"):
        limits_from_outside(None).put_back(UUID, 125.0, found)
    assert tree.number(zone, "constraint_0_power_limit_uw") == 125_000_000


def test_a_package_of_energy_alone_has_no_limit_to_put_a_cap_on(tree: RaplTree) -> None:
    tree.package(limit_w=None)
    limits = RaplLimits(list_packages())
    with pytest.raises(DeviceError, match="no CPU package intel-rapl-0 whose limit can be set; there is none"):
        limits.set_limit_w(UUID, 80.0)


def test_whether_a_cap_holds_that_somebody_else_requested_is_seen_by_reading_it(tree: RaplTree) -> None:
    zone = tree.package()
    limits = RaplLimits(list_packages())
    tree.put(zone, "constraint_0_power_limit_uw", 80_000_000)
    limits.verify(UUID, 80.0)
    with pytest.raises(LimitRefused, match=r"cap 90 W was changed by package 0, which is at 80 W"):
        limits.verify(UUID, 90.0)
    assert tree.setting(zone) == (80.0, WINDOW_US, 1)  # nothing was written


def test_who_may_not_write_the_files_of_a_package_is_told_so_before_trying(tree: RaplTree) -> None:
    class Denying(Sysfs):
        def may_write(self, path: Path) -> bool:
            return path.name != "enabled"

    tree.package()
    device, denied = (
        RaplDevice(list_packages(sysfs), VirtualClock(), observe=False) for sysfs in (None, Denying(tree.root))
    )
    assert denied.denial == "setting a limit needs root"
    assert device.denial is None
