"""CPU packages on a tree in a folder: the device contract, and what is RAPL's own.

Which packages a real process tree computes on, on a machine that is a tree in a folder.
"""

import errno
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.powercap import Sysfs, ZoneError
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.packages import list_packages
from autocap.devices.rapl.source import CpuUse, RaplSource
from autocap.errors import DeviceError, DeviceUnavailable, LimitRefused
from autocap.metrics import Metric
from autocap.session.search_space import checker
from autocap.testing.devices import DeviceContract, DeviceUnderTest
from tests.doubles.jobs import BUSY, PARENT, has_a_working_child, job
from tests.doubles.rapl_tree import RaplTree
from tests.doubles.waiting import eventually

pytestmark = pytest.mark.slow


class Stand:
    """A device on a tree, whose packages draw a steady power while time passes."""

    def __init__(self, tree: RaplTree, sysfs: Sysfs | None = None, *, observe: bool = False) -> None:
        self.tree, self.clock = tree, VirtualClock()
        packages = list_packages(sysfs or Sysfs(tree.root))
        self.zones = [zone.id for package in packages for zone in package.package.energy_zones]
        self.device = RaplDevice(packages, self.clock, observe=observe)

    def pass_s(self, seconds: float, package_w: float = 80.0, memory_w: float = 10.0) -> None:
        for zone in self.zones:
            self.tree.use(zone, seconds * (memory_w if zone.count(":") > 1 else package_w))
        self.clock.wait_until(self.clock.now() + seconds)


class TestContract(DeviceContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tree: RaplTree) -> None:
        self.tree = tree

    @contextmanager
    def make(self) -> Iterator[DeviceUnderTest]:
        for number in (0, 1):
            self.tree.package(number)
        stand = Stand(self.tree)
        yield DeviceUnderTest(stand.device, stand.device.limits(), stand.clock.now, stand.pass_s)


class Broken(Sysfs):
    """A tree of which some energy counters cannot be read at the moment."""

    failing: int | None = None

    def read(self, path: Path) -> str:
        if self.failing is not None and path.name == "energy_uj":
            raise OSError(self.failing, os.strerror(self.failing))
        return super().read(path)


@pytest.mark.slow
def test_power_is_the_packages_and_the_memorys_energy_stands_beside_it(tree: RaplTree) -> None:
    tree.package()
    stand = Stand(tree)
    stand.pass_s(0.5)
    (reading,) = stand.device.read()
    assert reading.power_w == pytest.approx(80.0)
    assert (reading.energy_j, reading.beside_j) == (pytest.approx(40.0), pytest.approx(5.0))


@pytest.mark.slow
def test_counters_that_wrap_in_mid_window_tell_the_same_power_and_energy(tree: RaplTree) -> None:
    zone = tree.package(range_uj=200_000_000)
    stand = Stand(tree)
    for tick in range(1, 101):
        stand.pass_s(0.1)
        (reading,) = stand.device.read()
        assert (reading.power_w, reading.energy_j) == (pytest.approx(80.0), pytest.approx(8.0 * tick))
    assert tree.number(zone, "energy_uj") < 200_000_000
    assert stand.device.notes() == ()


@pytest.mark.slow
def test_a_zone_that_vanishes_is_a_lost_device(tree: RaplTree) -> None:
    zone = tree.package()
    stand = Stand(tree)
    shutil.rmtree(tree.top / zone)
    said = r"reading .*intel-rapl:0/energy_uj \(package-0\) failed: No such file.*modprobe intel_rapl_msr"
    with pytest.raises(ZoneError, match=said) as lost:
        stand.device.read()
    assert lost.value.lost


@pytest.mark.slow
def test_a_counter_that_fails_for_a_moment_is_a_gap_and_one_note(tree: RaplTree) -> None:
    tree.package()
    sysfs = Broken(tree.root)
    stand = Stand(tree, sysfs)
    sysfs.failing = errno.EIO
    for _ in range(3):
        stand.pass_s(0.1)
        assert stand.device.read()[0].power_w is None
    (note,) = stand.device.notes()
    assert "energy_uj (package-0) failed: Input/output error" in note
    sysfs.failing = None
    for _ in range(2):
        stand.pass_s(0.1)
        stand.device.read()
    stand.pass_s(0.1, package_w=90.0)
    assert stand.device.read()[0].power_w == pytest.approx(90.0)


@pytest.mark.slow
def test_a_counter_that_stands_still_is_a_gap(tree: RaplTree) -> None:
    tree.package()
    stand = Stand(tree)
    stand.pass_s(0.1)
    assert stand.device.read()[0].power_w == pytest.approx(80.0)
    stand.pass_s(0.5, package_w=0.0, memory_w=0.0)
    assert stand.device.read()[0].power_w == pytest.approx(80.0)
    stand.pass_s(0.6, package_w=0.0, memory_w=0.0)
    assert stand.device.read()[0].power_w is None
    assert stand.device.notes() == (
        "the energy counter of package 0 has not moved for 1 s; such readings are left out, as gaps",
    )


@pytest.mark.slow
def test_energy_that_only_root_may_read_is_refused_with_the_remedy(tree: RaplTree) -> None:
    tree.package()
    sysfs = Broken(tree.root)
    sysfs.failing = errno.EACCES
    with pytest.raises(
        DeviceUnavailable, match=r"no energy.*Permission denied; since CVE-2020-8694.*sudo.*chgrp.*udev rule"
    ):
        Stand(tree, sysfs)


@pytest.mark.slow
def test_a_package_without_a_limit_is_measured_and_not_tuned(tree: RaplTree) -> None:
    tree.package(limit_w=None)
    stand = Stand(tree, observe=True)
    stand.pass_s(0.2)
    (reading,) = stand.device.read()
    assert reading.power_w == pytest.approx(80.0)
    assert (reading.requested_w, reading.enforced_w, reading.cap_binding) == (None, None, None)
    assert stand.device.notes() == ("package 0 takes no power limit; 1000 W stands for none in what follows",)
    with pytest.raises(DeviceError, match="an observed device has no limits to set"):
        stand.device.limits()
    tuned = Stand(tree).device
    assert tuned.refusal is not None
    said = r"package 0 counts its energy but takes no power limit, as AMD's.*--observe"
    with pytest.raises(LimitRefused, match=said):
        tuned.limits()


@pytest.mark.slow
def test_whether_a_cap_binds_is_told_from_the_packages_own_mean_power(tree: RaplTree) -> None:
    zone = tree.package()
    stand = Stand(tree)

    def binding() -> bool | None:
        for _ in range(12):
            stand.pass_s(0.1)
            (reading,) = stand.device.read()
        return reading.cap_binding

    assert binding() is False
    tree.put(zone, "constraint_0_power_limit_uw", 81_000_000)
    assert binding() is True
    tree.put(zone, "constraint_0_power_limit_uw", 87_000_000)
    assert binding() is None


@pytest.mark.slow
def test_a_limit_that_does_not_hold_is_said_once(tree: RaplTree) -> None:
    tree.package(enabled=0)
    tree.package(1)
    stand = Stand(tree)
    (note,) = stand.device.notes()
    assert note.startswith("the limit of package 0, 125 W, is switched off")
    tree.package(1, interface="intel-rapl-mmio", limit_w=90.0)
    stand = Stand(tree)
    for _ in range(2):
        stand.device.read()
    first, second = stand.device.notes()
    assert first == note
    assert second == (
        "another interface of package 1 holds it at 90 W, although 125 W is requested; caps above that change nothing"
    )
    assert stand.device.read()[1].enforced_w == 90.0


CONFIG = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")), device="rapl")
FIRST = min(os.sched_getaffinity(0))
BOUND = f"import os; os.sched_setaffinity(0, {{{FIRST}}})\n{BUSY}"


@pytest.fixture
def packages(tree: RaplTree) -> RaplTree:
    """Two packages, the first of which has the first CPU that we may use, the second all others."""
    for number in (0, 1):
        tree.package(number)
    tree.cores(0, FIRST + 1)
    tree.cores(1, 512)
    return tree


def source(config: RunConfig = CONFIG) -> RaplSource:
    return RaplSource(config, VirtualClock(), checker(config.tune))


def indices(found: object) -> list[int]:
    return [gpu.index for gpu in found.gpus]


@pytest.mark.slow
def test_a_job_has_the_packages_that_its_processes_may_run_on_once_they_stay_the_same(packages: RaplTree) -> None:
    with job(BOUND) as root, source() as packages:
        eventually(lambda: CpuUse(root).look() == {FIRST})
        assert packages.known is None
        assert packages.find(root, 0.0) is None
        eventually(lambda: indices(packages.find(root, math.inf)) == [0])


@pytest.mark.slow
def test_a_launcher_that_only_waits_does_not_count(packages: RaplTree) -> None:
    with job(PARENT.replace(repr(BUSY), repr(BOUND))) as root:
        eventually(lambda: has_a_working_child(root))
        use = CpuUse(root)
        use.look()
        eventually(lambda: use.look() == {FIRST})


@pytest.mark.slow
def test_indices_and_names_decide_where_they_are_given(packages: RaplTree) -> None:
    with job(BUSY) as root:
        for name in ("1", "intel-rapl-1"):
            with source(replace(CONFIG, gpus=(name,))) as packages:
                assert packages.known is not None
                assert indices(packages.find(root, 0.0)) == [1]
    with pytest.raises(DeviceUnavailable, match=r"--gpus 2 is not there; this machine has 0 \(intel-rapl-0\), 1"):
        source(replace(CONFIG, gpus=("2",)))


@pytest.mark.slow
def test_where_the_kernel_does_not_tell_a_packages_cpus_all_are_taken(packages: RaplTree) -> None:
    for topology in (packages.root / "devices" / "system" / "cpu").glob("cpu*/topology/physical_package_id"):
        topology.unlink()
    with job(BUSY) as root, source() as packages:
        eventually(lambda: CpuUse(root).look())
        assert indices(packages.find(root, math.inf)) == [0, 1]


@pytest.mark.slow
def test_caps_that_no_package_takes_are_refused_before_the_job_starts(packages: RaplTree) -> None:
    said = "--min-cap 20 W is below the 31 W minimum of package 0; pass --min-cap 31 or"
    with pytest.raises(DeviceError, match=said):
        source(replace(CONFIG, tune=replace(CONFIG.tune, min_cap_w=20.0)))


@pytest.mark.slow
def test_what_a_dead_run_left_does_not_narrow_the_range(packages: RaplTree) -> None:
    limit = ("intel-rapl:0", "constraint_0_power_limit_uw")
    packages.put(*limit, 80_000_000)
    with job(BUSY) as root, source(replace(CONFIG, gpus=("0",))) as found:
        packages.put(*limit, 253_000_000)
        assert found.find(root, 0.0).gpus[0].cap_range.max_w == 253.0
