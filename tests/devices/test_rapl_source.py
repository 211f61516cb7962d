"""Which packages a real process tree computes on, on a machine that is a tree in a folder."""

import math
import os
from dataclasses import replace

import pytest

from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.rapl.source import CpuUse, RaplSource
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.metrics import Metric
from autocap.session.search_space import checker
from tests.doubles.jobs import BUSY, PARENT, has_a_working_child, job
from tests.doubles.rapl_tree import RaplTree
from tests.doubles.waiting import eventually

CONFIG = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")), device="rapl")
FIRST = min(os.sched_getaffinity(0))
BOUND = f"import os; os.sched_setaffinity(0, {{{FIRST}}})\n{BUSY}"


@pytest.fixture
def tree(tree: RaplTree) -> RaplTree:
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


def test_a_job_has_the_packages_that_its_processes_may_run_on_once_they_stay_the_same(tree: RaplTree) -> None:
    with job(BOUND) as root, source() as packages:
        eventually(lambda: CpuUse(root).look() == {FIRST})
        assert packages.known is None
        assert packages.find(root, 0.0) is None
        eventually(lambda: indices(packages.find(root, math.inf)) == [0])


def test_a_launcher_that_only_waits_does_not_count(tree: RaplTree) -> None:
    with job(PARENT.replace(repr(BUSY), repr(BOUND))) as root:
        eventually(lambda: has_a_working_child(root))
        use = CpuUse(root)
        use.look()
        eventually(lambda: use.look() == {FIRST})


def test_indices_and_names_decide_where_they_are_given(tree: RaplTree) -> None:
    with job(BUSY) as root:
        for name in ("1", "intel-rapl-1"):
            with source(replace(CONFIG, gpus=(name,))) as packages:
                assert packages.known is not None
                assert indices(packages.find(root, 0.0)) == [1]
    with pytest.raises(DeviceUnavailable, match=r"--gpus 2 is not there; this machine has 0 \(intel-rapl-0\), 1"):
        source(replace(CONFIG, gpus=("2",)))


def test_where_the_kernel_does_not_tell_a_packages_cpus_all_are_taken(tree: RaplTree) -> None:
    for topology in (tree.root / "devices" / "system" / "cpu").glob("cpu*/topology/physical_package_id"):
        topology.unlink()
    with job(BUSY) as root, source() as packages:
        eventually(lambda: CpuUse(root).look())
        assert indices(packages.find(root, math.inf)) == [0, 1]


def test_caps_that_no_package_takes_are_refused_before_the_job_starts(tree: RaplTree) -> None:
    said = "--min-cap 20 W is below the 31 W minimum of package 0; pass --min-cap 31 or"
    with pytest.raises(DeviceError, match=said):
        source(replace(CONFIG, tune=replace(CONFIG.tune, min_cap_w=20.0)))


def test_what_a_dead_run_left_does_not_narrow_the_range(tree: RaplTree) -> None:
    limit = ("intel-rapl:0", "constraint_0_power_limit_uw")
    tree.put(*limit, 80_000_000)
    with job(BUSY) as root, source(replace(CONFIG, gpus=("0",))) as packages:
        tree.put(*limit, 253_000_000)
        assert packages.find(root, 0.0).gpus[0].cap_range.max_w == 253.0
