from pathlib import Path

import pytest

from autocap.devices.powercap import SYSFS_VARIABLE
from tests.doubles.rapl_tree import RaplTree


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RaplTree:
    """Of CPU packages, for this test the machine's."""
    made = RaplTree(tmp_path / "sys")
    monkeypatch.setenv(SYSFS_VARIABLE, str(made.root))
    return made
