"""Asking the budget of this machine."""

import socket
from contextlib import ExitStack, suppress
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


def test_a_queue_that_stays_full_is_said(tmp_path: Path) -> None:
    path = tmp_path / "full.sock"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):  # one more than its length is what the kernel takes
            crowd = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            crowd.setblocking(False)
            with suppress(BlockingIOError):
                crowd.connect(str(path))
        with pytest.raises(calling.NoBudget, match="that none of our tries got through"):
            calling.call([path], within_s=0.0)
