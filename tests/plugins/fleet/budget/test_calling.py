"""Asking the budget of this machine."""

from pathlib import Path

import pytest

from autocap.plugins.fleet.budget import calling


def test_who_may_not_ask_is_told_so_and_not_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, within_s: float) -> None:
        raise PermissionError if path == Path("ours") else FileNotFoundError

    monkeypatch.setattr(calling, "Call", refuse)
    with pytest.raises(calling.NoBudget, match="ours is not open to you; have who runs it pass `--group`"):
        calling.call([Path("ours"), Path("none")])
    with pytest.raises(calling.NoBudget, match="no budget runs here"):
        calling.call([Path("none")])
