"""The emulated machine between real processes: a job that plays, a controller that is killed, a watchdog that acts."""

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

from bench.nvml_emulation import FileBoard, Limits, Machine, environment, machine
from tests.doubles.waiting import eventually

MACHINE = replace(machine("tesla-v100/alexnet", gpus=2, arrivals_mw=[287_123, 299_999]), start_s=None, jitter=0.0)

CONTROLLER = """
import sys, time
from autocap.devices.nvml import NvmlLimits, open_library
from autocap.limits import Guardian
from autocap.records import GpuInfo

with open_library() as library:
    gpus = [GpuInfo(index=g.index, uuid=g.uuid, name=g.name, cap_range=g.cap_range) for g in library.inventory()]
    with Guardian(kind="nvml", gpus=gpus, limits=NvmlLimits(library), job=None) as guardian:
        guardian.set_caps([180.0, 190.0])
        print("set", flush=True)
        while True:
            time.sleep(0.1)
            guardian.beat()
"""
LISTING = """
from autocap.devices.nvml import open_library

with open_library() as library:
    for gpu in library.inventory():
        print(gpu.index, gpu.requested_w, *library.compute_pids(gpu.uuid))
"""


@contextmanager
def process(board_at: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that meets the emulated machine; killed at the end."""
    env = environment(board_at) | {"AUTOCAP_STATE_DIR": str(board_at.parent / "state")}
    with subprocess.Popen([sys.executable, *words], env=env, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def written(tmp_path: Path, made: Machine = MACHINE) -> tuple[Path, FileBoard]:
    path = tmp_path / "machine.json"
    return path, FileBoard.create(path, made)


def player(path: Path, *options: str) -> AbstractContextManager["subprocess.Popen[str]"]:
    return process(path, "-m", "bench.nvml_emulation.player", "--lines", *options)


def test_a_job_does_its_iterations_at_the_pace_of_the_limit_in_force(tmp_path) -> None:
    path, _ = written(tmp_path, replace(MACHINE, iterations=12))
    with player(path) as job:
        stamps = [time.monotonic() for _ in job.stdout]
        assert job.wait() == 0
    assert len(stamps) == 12
    assert stamps[-1] - stamps[0] == pytest.approx(11 * 0.0508, abs=0.2)


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


def test_the_driver_can_show_the_pid_of_another_namespace(tmp_path) -> None:
    path, board = written(tmp_path)
    with player(path, "--report-pid", "17"):
        eventually(lambda: board.read().job_pid is not None)
        with process(path, "-c", LISTING) as listing:
            assert listing.communicate()[0].split("\n")[0] == "0 287.123 17"


def test_the_limits_are_back_within_a_second_when_the_controller_is_killed(tmp_path) -> None:
    path, board = written(tmp_path)
    with process(path, "-c", CONTROLLER) as controller:
        assert controller.stdout.readline() == "set\n"
        assert [board.requested_mw(gpu) for gpu in range(2)] == [180_000, 190_000]
        controller.kill()
        eventually(lambda: [board.requested_mw(gpu) for gpu in range(2)] == [287_123, 299_999], 2.0)
        eventually(lambda: os.listdir(path.parent / "state") == [])


def test_a_limit_that_somebody_else_set_meanwhile_stays(tmp_path) -> None:
    path, board = written(tmp_path)
    with process(path, "-c", CONTROLLER) as controller:
        assert controller.stdout.readline() == "set\n"
        board.request(1, 222_222)
        controller.kill()
        eventually(lambda: board.requested_mw(0) == 287_123)
        eventually(lambda: os.listdir(path.parent / "state") == [])
        assert board.requested_mw(1) == 222_222


def test_without_permission_nothing_is_set_and_nothing_is_left(tmp_path) -> None:
    cards = tuple(replace(card, limits=Limits.REFUSED) for card in MACHINE.cards)
    path, board = written(tmp_path, replace(MACHINE, cards=cards))
    with process(path, "-c", CONTROLLER) as controller:
        assert controller.wait() == 1
    assert board.read().changes == ()
    assert os.listdir(path.parent / "state") == []


def test_a_machine_without_a_driver_never_loads_a_real_library(tmp_path) -> None:
    path, _ = written(tmp_path, replace(MACHINE, has_driver=False))
    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value)"
    with process(path, "-c", code) as started:
        assert started.communicate()[0] == "12\n"
