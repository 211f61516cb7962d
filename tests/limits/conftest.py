"""What most tests of the guardian begin with."""

import pytest

from tests.doubles import file_device


@pytest.fixture
def state_dir(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def gpu(tmp_path):
    return file_device.make(tmp_path)
