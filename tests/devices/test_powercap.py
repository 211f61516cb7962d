"""Zones and energy counters, on a tree in a folder.

Files of the kernel's that stay open: still the ones that their names stand for.
"""

import os
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.node.meters import RaplPower
from autocap.devices.powercap import EnergyCounter, KeptFiles, Sysfs, find_packages
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.packages import list_packages
from autocap.errors import DeviceUnavailable
from tests.doubles.jobs import no_descriptors
from tests.doubles.rapl_tree import RaplTree


def counter(tree: RaplTree, t_s: float = 0.0) -> EnergyCounter:
    (package,) = find_packages(Sysfs(tree.root))
    return EnergyCounter(package.zones[0], t_s)


def test_packages_stand_in_the_kernels_order_with_their_memory_and_without_the_platforms_zone(tree: RaplTree) -> None:
    for number in (10, 2):
        tree.package(number)
    tree.package(11, name="psys", memory=False)
    found = find_packages(Sysfs(tree.root))
    assert [(one.index, one.number, one.die) for one in found] == [(0, 2, None), (1, 10, None)]
    assert [zone.id for zone in found[1].energy_zones] == ["intel-rapl:10", "intel-rapl:10:1"]


def test_a_package_that_two_interfaces_show_is_one_and_its_energy_is_counted_once(tree: RaplTree) -> None:
    tree.package(interface="intel-rapl-mmio")
    tree.package(memory=False)
    (package,) = find_packages(Sysfs(tree.root))
    assert [zone.id for zone in package.zones] == ["intel-rapl:0", "intel-rapl-mmio:0"]
    assert [zone.id for zone in package.energy_zones] == ["intel-rapl:0", "intel-rapl-mmio:0:1"]


def test_dies_with_zones_of_their_own_are_apart(tree: RaplTree) -> None:
    for die in (1, 0):
        tree.package(die, name=f"package-0-die-{die}")
    assert [(one.number, one.die) for one in find_packages(Sysfs(tree.root))] == [(0, 0), (0, 1)]


def test_zones_are_found_inside_their_control_type_and_parents_as_well(tree: RaplTree) -> None:
    zone = tree.package()
    for inner in ("intel-rapl:0:0", "intel-rapl:0:1"):
        (tree.top / inner).rename(tree.top / zone / inner)
    (tree.top / "intel-rapl").mkdir()
    (tree.top / zone).rename(tree.top / "intel-rapl" / zone)
    (tree.top / "intel-rapl" / zone / "subsystem").symlink_to(tree.top)
    (package,) = find_packages(Sysfs(tree.root))
    assert package.memory.number("energy_uj") == 1_000_000


def test_without_a_package_it_says_what_to_load(tree: RaplTree) -> None:
    with pytest.raises(DeviceUnavailable, match=r"no CPU package with RAPL in .*modprobe intel_rapl_msr"):
        find_packages(Sysfs(tree.root))


def test_a_counter_that_was_reset_is_a_gap_and_counts_on_from_there(tree: RaplTree) -> None:
    zone = tree.package()
    energy = counter(tree)
    tree.use(zone, 5000.0)
    assert energy.read(60.0) == pytest.approx(5000.0)
    tree.put(zone, "energy_uj", 0)
    assert energy.read(60.1) is None
    assert energy.trouble == "went back from 5001 J to 0 J, as after a restart"
    tree.use(zone, 3.0)
    assert energy.read(60.2) == pytest.approx(5003.0)
    assert energy.trouble is None


def test_after_too_long_nobody_knows_how_often_it_wrapped(tree: RaplTree) -> None:
    zone = tree.package()
    energy = counter(tree)
    tree.use(zone, 50.0)
    assert energy.read(3600.0) is None
    assert energy.trouble == "was not read for 3600 s, in which it may have wrapped"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "energy_uj"
    path.write_text("12\n")
    return path


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_file_is_opened_once_and_read_and_written_from_its_beginning(file: Path) -> None:
    kept = KeptFiles()
    before = _descriptors()
    for value in (b"13\n", b"140000\n", b"9\n"):
        kept.write(file, value)
        assert kept.read(file) == value == file.read_bytes()
    assert _descriptors() == before + 2
    kept.close()
    assert _descriptors() == before
    assert kept.read(file) == b"9\n"
    del kept
    assert _descriptors() == before


def test_a_file_that_has_gone_is_missed_and_one_that_came_back_is_the_new_one(file: Path) -> None:
    kept = KeptFiles()
    kept.read(file)
    kept.write(file, b"12\n")
    file.rename(file.with_name("away"))
    for use in (lambda: kept.read(file), lambda: kept.write(file, b"13\n")):
        with pytest.raises(FileNotFoundError):
            use()
    file.write_text("99\n")
    assert kept.read(file) == b"99\n"
    kept.write(file, b"13\n")
    assert (file.read_text(), file.with_name("away").read_text()) == ("13\n", "12\n")


def test_packages_are_read_and_capped_and_put_back_without_a_descriptor(tmp_path: Path) -> None:
    tree, clock = RaplTree(tmp_path / "sys"), VirtualClock()
    for number in (0, 1):
        tree.package(number)
    found = tree.setting("intel-rapl:0")
    node = RaplPower(clock, Sysfs(tree.root))
    device = RaplDevice(list_packages(Sysfs(tree.root)), clock, observe=False)
    limits = device.limits()
    uuids = [gpu.uuid for gpu in device.gpus]
    settings = [limits.settings(uuid) for uuid in uuids]
    for uuid in uuids:  # as a rehearsal does
        limits.set_limit_w(uuid, 125.0)
    device.read()
    with no_descriptors():
        for cap_w in (80.0, 70.0):
            for uuid in uuids:
                limits.set_limit_w(uuid, cap_w)
            clock.wait_until(clock.now() + 1.0)
            assert [reading.requested_w for reading in device.read()] == [cap_w, cap_w]
            assert node.read().power_w is not None
        for uuid, one in zip(uuids, settings, strict=True):
            limits.put_back(uuid, 125.0, one)
    assert tree.setting("intel-rapl:0") == tree.setting("intel-rapl:1") == found
    device.close()
    node.close()
