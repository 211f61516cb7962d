"""Zones and energy counters, on a tree in a folder."""

import pytest

from autocap.devices.powercap import EnergyCounter, Sysfs, find_packages
from autocap.errors import DeviceUnavailable
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
