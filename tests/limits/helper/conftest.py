"""What most tests of the helper begin with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.limits.helper import policy
from autocap.wire.admission import Bounds
from tests.doubles.lending import HelperRig


@pytest.fixture
def new_helper_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HelperRig]]:
    """Makes one with bounds of its own."""
    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "policy.toml")  # not the machine's own
    made: list[HelperRig] = []

    def new(bounds: Bounds | None = None) -> HelperRig:
        made.append(HelperRig(tmp_path, bounds))
        return made[-1]

    yield new
    for helper_rig in made:
        helper_rig.close()


@pytest.fixture
def helper_rig(new_helper_rig: Callable[..., HelperRig]) -> HelperRig:
    """A helper with two cards, and without a policy."""
    return new_helper_rig()
