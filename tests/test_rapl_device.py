"""CPU packages on a tree in a folder: the device contract, and what is RAPL's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.powercap import Sysfs
from autocap.devices.rapl import RaplDevice, inventory
from tests.device_contract import DeviceContract, DeviceUnderTest
from tests.rapltree import RaplTree


@pytest.fixture
def tree(tmp_path: Path) -> RaplTree:
    return RaplTree(tmp_path / "sys")


class TestContract(DeviceContract):
    @pytest.fixture(autouse=True)
    def _tree(self, tree: RaplTree) -> None:
        self.tree = tree

    @contextmanager
    def make(self) -> Iterator[DeviceUnderTest]:
        zones = [self.tree.package(number) for number in (0, 1)]
        clock = VirtualClock()
        device = RaplDevice(inventory(Sysfs(self.tree.root)), clock, observe=False)

        def advance(seconds: float) -> None:
            for zone in zones:
                self.tree.use(zone, 80.0 * seconds)
                self.tree.use(f"{zone}:1", 10.0 * seconds)
            clock.wait_until(clock.now() + seconds)

        yield DeviceUnderTest(device, device.limits(), clock.now, advance)
