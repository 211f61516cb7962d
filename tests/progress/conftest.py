from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.progress.steps.map import StepMap


@pytest.fixture
def step_map(tmp_path: Path) -> Iterator[StepMap]:
    with StepMap.create(tmp_path) as created:
        yield created
