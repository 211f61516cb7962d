"""Backward passes of real PyTorch processes, counted by the kernel, against the processes' own count."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from autocap.job.processes import identify, tree
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.host import Host
from autocap.progress.calls.target import TORCH_BACKWARD, CallsUnavailable
from tests.frameworks.playing import require

require("torch")
try:
    Host(TORCH_BACKWARD).rehearse()
except CallsUnavailable as refusal:
    pytest.skip(f"no calls can be counted here: {refusal}", allow_module_level=True)

PLAY = str(Path(__file__).with_name("called_play.py"))
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
WITHIN_S = 120.0


class Training:
    """orders: how many steps to take, one after the other."""

    def __init__(self, folder: Path, launcher: Sequence[str], ranks: int, words: Sequence[str]) -> None:
        self.folder, self.ranks, self.orders = folder, ranks, 0
        (folder / "orders").touch()
        self.process = subprocess.Popen(
            [sys.executable, *launcher, PLAY, str(folder), *words], stderr=subprocess.DEVNULL
        )

    def take(self, steps: int) -> int:
        """The backward passes of each rank in all."""
        self.orders += 1
        with (self.folder / "orders").open("a") as file:
            file.write(f"{steps}\n")
        made = [self.folder / f"made-{self.orders}-by-{rank}" for rank in range(self.ranks)]
        until_s = time.monotonic() + WITHIN_S
        while not all(each.exists() for each in made):
            assert time.monotonic() < until_s
            time.sleep(0.02)
        (passes,) = {int(each.read_text()) for each in made}
        return passes

    def end(self) -> None:
        identity = identify(self.process.pid)
        for each in () if identity is None else tree(identity):
            os.kill(each.pid, 9)
        self.process.wait()


@pytest.mark.parametrize(
    ("launcher", "ranks", "words", "passes"),
    [
        ((), 1, ("1", "1", "0"), 1),
        ((), 1, ("2", "1", "0"), 1),
        ((), 1, ("1", "4", "0"), 4),
        ((), 1, ("1", "1", "4"), 1),
        (TORCHRUN, 2, ("1", "1", "0"), 1),
    ],
    ids=["one thread", "two threads", "gradient accumulation", "loader of four workers", "torchrun"],
)
def test_every_backward_pass_counts_once(tmp_path, launcher, ranks, words, passes) -> None:
    training = Training(tmp_path, launcher, ranks, words)
    try:
        before = training.take(1)  # so that all have loaded what they need
        identity = identify(training.process.pid)
        assert identity is not None
        with CallCounter(TORCH_BACKWARD) as counter:
            counter.watch(identity)
            assert counter.trouble is None
            for steps in (1, 40, 10):
                made = training.take(steps) - before
                begun_s = time.monotonic()
                while (reading := counter.read(0.0)) is None or reading.count < made:
                    assert time.monotonic() - begun_s < 5.0
                    time.sleep(0.1)
                assert reading.count == made
                assert reading.t_s <= begun_s
            assert made == 51 * passes
    finally:
        training.end()
