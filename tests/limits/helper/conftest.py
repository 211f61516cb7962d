"""What most tests of the helper begin with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.limits.helper import policy
from autocap.wire.guests import Bounds
from tests.doubles.lending import Parlour


@pytest.fixture
def new_parlour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Parlour]]:
    """Makes one with bounds of its own."""
    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "policy.toml")  # not the machine's own
    made: list[Parlour] = []

    def new(bounds: Bounds | None = None) -> Parlour:
        made.append(Parlour(tmp_path, bounds))
        return made[-1]

    yield new
    for parlour in made:
        parlour.close()


@pytest.fixture
def parlour(new_parlour: Callable[..., Parlour]) -> Parlour:
    """A helper with two cards, and without a policy."""
    return new_parlour()
