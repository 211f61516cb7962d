"""Files of the kernel's that stay open: still the ones that their names stand for."""

import os
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.node.rapl import RaplPower
from autocap.devices.powercap import KeptFiles, Sysfs
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.packages import list_packages
from tests.doubles.no_descriptors import no_descriptors
from tests.doubles.rapl_tree import RaplTree


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
