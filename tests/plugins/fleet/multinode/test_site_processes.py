"""A site, its nodes' managers and their guardians as processes, over a carrier that does what srun does."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.errors import AutocapError
from autocap.job.processes import import_path
from autocap.plugins.fleet.budget.connection import SITE_SOCKET, SOCKET, call
from autocap.plugins.fleet.budget.protocol import Ask, Change, Done, End, Standing
from autocap.testing.nvml import FileBoard, machine
from tests.plugins.fleet.nodes.hearing import MARK, marked, until

ARRIVALS_MW = {"east": (250_007, 233_333), "west": (260_000, 241_001)}
BUDGET_W, LESS_W, LOW_W = 900.0, 600.0, 100.0


class Ground:
    """Two nodes with two emulated GPUs each; a site that is told to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boards = {
            name: FileBoard.create(
                folder / f"{name}.json",
                replace(machine("quadro-rtx-6000/resnet50", gpus=2, arrivals_mw=found), start_s=None, sensor="v100"),
            )
            for name, found in ARRIVALS_MW.items()
        }
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOCAP_", "SLURM"))}
        path = os.pathsep.join(import_path())
        self.env = {**plain, MARK: str(folder), "AUTOCAP_STATE_DIR": str(folder / "state"), "PYTHONPATH": path}
        words = ("hold", str(folder), "east,west", f"{BUDGET_W:g}")
        with open(folder / "said", "wb") as said:
            self.site = subprocess.Popen(
                [sys.executable, "-m", "tests.plugins.fleet.multinode.hold_over", *words],
                env=self.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip

    def limits_mw(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(board.requested_mw(gpu) for gpu in range(2)) for name, board in self.boards.items()}

    def standing(self, node: str | None = None) -> Standing | None:
        path = self.folder / "state" / SITE_SOCKET if node is None else self.folder / f"state-{node}" / SOCKET
        with suppress(AutocapError), closing(call([path])) as there:
            return there.ask(Ask(), Standing)
        return None

    def are_held(self) -> bool:
        """Whether the site answers, and all nodes are heard."""
        now = self.standing()
        return now is not None and not now.failed and len(now.free) == 4

    def end(self) -> None:
        with closing(call([self.folder / "state" / SITE_SOCKET])) as there:
            there.ask(End(), Done)
        assert self.site.wait(60) == 0

    def pids(self, node: str) -> list[int]:
        """The processes of a node's end: its supervisor first, then its manager."""
        now = self.standing(node)
        stat = Path(f"/proc/{now.pid}/stat").read_text()
        return [int(stat.rpartition(")")[2].split()[1]), now.pid]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    one = Ground(tmp_path)
    try:
        until(one.are_held, (tmp_path / "said").read_text())
        yield one
        assert one.limits_mw() == ARRIVALS_MW
        until(lambda: not marked(str(tmp_path)), f"left behind: {marked(str(tmp_path))}")
    finally:
        one.site.send_signal(signal.SIGTERM)
        one.site.wait()


@pytest.mark.slow
def test_a_budget_over_two_nodes_is_held_and_every_limit_is_back(ground: Ground) -> None:
    assert sum(map(sum, ground.limits_mw().values())) == 1000 * 4 * LOW_W  # nobody computes
    with closing(call([ground.folder / "state" / SITE_SOCKET])) as there:
        there.ask(Change(watts=LESS_W), Done)
        with pytest.raises(
            AutocapError, match=r"^300 W are less than the 40\d W that the lowest caps of all nodes take"
        ):
            there.ask(Change(watts=300.0), Done)
    with closing(call([ground.folder / "state-east" / SOCKET])) as there:
        with pytest.raises(AutocapError, match="this is a node's part of a budget over several nodes"):
            there.ask(Change(watts=900.0), Done)
        with pytest.raises(AutocapError, match="this node's part is its site's to end"):
            there.ask(End(), Done)
    # A manager that is killed is followed by another; a whole node's end, by one of another line.
    for victim in (1, 0):
        killed = ground.pids("east")[victim]
        os.kill(killed, signal.SIGKILL)
        until(lambda killed=killed: not Path(f"/proc/{killed}").exists(), "it is gone")  # type: ignore[misc]
        until(lambda: ground.standing("east") is not None and ground.are_held(), "east is heard again")
    # A site that is killed is started again, and takes over from the managers that it finds.
    first = ground.standing()
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: ground.are_held() and ground.standing() != first, "another site answers")
    now = ground.standing()
    assert now.budget_w == LESS_W
    ground.end()
