"""What most tests of the helper begin with."""

from pathlib import Path

import pytest

from autocap.helper import policy_file
from tests.doubles.lending import Parlour


@pytest.fixture
def parlour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parlour:
    """A helper with two cards, and without a policy."""
    monkeypatch.setattr(policy_file, "USUAL_POLICY", tmp_path / "policy.toml")  # not the machine's own
    return Parlour(tmp_path)
