"""The emulated machine between real processes: a job that plays, and whoever asks the driver about it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.testing.nvml import FileBoard, Machine, environment, machine
from tests.doubles.waiting import eventually

MACHINE = replace(machine("tesla-v100/alexnet", gpus=2, arrivals_mw=[287_123, 299_999]), start_s=None, jitter=0.0)

LISTING = """
from autocap.devices.nvml.library import open_library

with open_library() as library:
    for gpu in library.inventory():
        print(gpu.index, gpu.requested_w, *library.compute_pids(gpu.uuid))
"""


@contextmanager
def process(board_at: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that meets the emulated machine; killed at the end."""
    words = (sys.executable, *words)
    with subprocess.Popen(words, env=environment(board_at), stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def written(tmp_path: Path, made: Machine = MACHINE) -> tuple[Path, FileBoard]:
    path = tmp_path / "machine.json"
    return path, FileBoard.create(path, made)


def player(path: Path, *options: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return process(path, "-m", "autocap.testing.nvml.player", "--lines", *options)


@pytest.mark.slow
def test_a_job_does_its_iterations_at_the_pace_of_the_limit_in_force(tmp_path) -> None:
    path, _ = written(tmp_path, replace(MACHINE, iterations=12))
    with player(path) as job:
        stamps = [time.monotonic() for _ in job.stdout]
        assert job.wait() == 0
    assert len(stamps) == 12
    assert stamps[-1] - stamps[0] == pytest.approx(11 * 0.0508, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("grandchild", [False, True])
def test_the_driver_lists_the_process_that_plays_the_job(tmp_path, grandchild) -> None:
    path, board = written(tmp_path)
    with player(path, *(["--grandchild"] if grandchild else [])) as job:
        eventually(lambda: board.read().job_pid is not None)
        pid = board.read().job_pid
        assert (pid == job.pid) is not grandchild
        with process(path, "-c", LISTING) as listing:
            told, _ = listing.communicate()
        if grandchild and pid is not None:
            os.kill(pid, signal.SIGKILL)
    assert told.split("\n")[:2] == [f"0 287.123 {pid}", f"1 299.999 {pid}"]


@pytest.mark.slow
def test_the_driver_can_show_the_pid_of_another_namespace(tmp_path) -> None:
    path, board = written(tmp_path)
    with player(path, "--report-pid", "17"):
        eventually(lambda: board.read().job_pid is not None)
        with process(path, "-c", LISTING) as listing:
            assert listing.communicate()[0].split("\n")[0] == "0 287.123 17"


def test_a_machine_without_a_driver_never_loads_a_real_library(tmp_path) -> None:
    path, _ = written(tmp_path, replace(MACHINE, has_driver=False))
    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value)"
    with process(path, "-c", code) as started:
        assert started.communicate()[0] == "12\n"
