"""Jobs on GPUs as a user meets them: real processes, above an emulated NVML library that all of them share."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autocap.job.processes import identify
from autocap.testing.nvml import Fault, FileBoard, Limits, Machine, environment, machine
from tests.cli.test_cli import Cli, require_said, terminated
from tests.doubles import warm
from tests.doubles.waiting import eventually

PLAYER = (sys.executable, "-m", "autocap.testing.nvml.player")
QUICK = ("--strategy", "fixed", "--strategy-option", "cap=150", "--target-stderr", "20%", "--trial-seconds", "20")


class Node(Cli):
    """A machine with GPUs, on which jobs are played."""

    def __init__(self, folder: Path, made: Machine) -> None:
        super().__init__(folder)
        self.board = FileBoard.create(folder / "machine.json", replace(made, start_s=None))
        self.gpus = range(len(made.cards))
        self.arrival_mw = self.limits_mw()
        self.env = environment(folder / "machine.json", self.env)
        self.jobs: list[warm.WarmProcess] = []

    def limits_mw(self) -> list[int]:
        return [self.board.requested_mw(gpu) for gpu in self.gpus]

    def play(self, *words: str) -> warm.WarmProcess:
        """Start a job that autocap is to attach to, and wait until it computes."""
        self.jobs.append(warm.start([*PLAYER, *words], env=self.env, start_new_session=True))
        eventually(lambda: self.board.read().job_pid)
        return self.jobs[-1]

    def is_capped(self) -> bool:
        return all(limit_mw == 150_000 for limit_mw in self.limits_mw())

    def end(self) -> None:
        super().end()
        for job in self.jobs:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def alike(gpus: int, **first: object) -> Machine:
    """Of the profile with the shortest iterations: a baseline takes eight of them, and two seconds at least. first:
    what is different with the first card."""
    arrivals_mw = [250_123 - 1000 * gpu for gpu in range(gpus)]
    made = machine("quadro-rtx-6000/alexnet", gpus=gpus, arrivals_mw=arrivals_mw)
    return made.with_card(0, replace(made.cards[0], **first))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.end()


def stand(nodes: list[Node], tmp_path: Path, made: Machine) -> Node:
    nodes.append(Node(tmp_path, made))
    return nodes[-1]


@pytest.mark.slow
def test_eight_gpus_of_a_grandchild_get_one_cap_that_all_take_and_their_own_limits_back(nodes, tmp_path) -> None:
    made = alike(8)
    made = made.with_card(2, replace(made.cards[2], min_mw=140_000))
    made = made.with_card(5, replace(made.cards[5], max_mw=255_000))
    node = stand(nodes, tmp_path, made)
    job = node.play("--grandchild")
    run = node.start("attach", "--pid", str(job.pid), "--out", "run", *QUICK, "--progress", "speed")
    eventually(node.is_capped, 90.0)
    (found,) = node.events("device_found")
    assert len(found["gpus"]) == 8
    run.send_signal(signal.SIGINT)
    assert run.wait(120) == 0
    assert node.limits_mw() == node.arrival_mw
    assert job.poll() is None
    assert node.leftovers() == []
    gpus = json.loads((tmp_path / "run" / "result.json").read_text())["device"]["gpus"]
    assert [gpu["cap_final_w"] for gpu in gpus] == [limit_mw / 1000 for limit_mw in node.arrival_mw]


@pytest.mark.slow
def test_after_sigkill_of_a_run_every_limit_is_back_within_a_second_and_the_job_goes_on(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(2))
    run = node.start("run", "--out", "run", *QUICK, "--", *PLAYER, "--steps")
    eventually(node.is_capped, 90.0)
    run.kill()
    killed_s = time.monotonic()
    eventually(lambda: node.limits_mw() == node.arrival_mw, 5.0)
    assert time.monotonic() - killed_s < 1.0
    assert Path(f"/proc/{node.board.read().job_pid}").exists()


@pytest.mark.slow
def test_when_somebody_else_sets_a_limit_it_stays_and_the_others_are_put_back(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(2))
    run = node.start("run", "--out", "run", *QUICK, "--gpus", "0-1", "--", *PLAYER, "--steps")
    eventually(node.is_capped, 90.0)
    time.sleep(0.5)  # past our own set, which is tried again where it does not read back
    node.board.request(1, 210_500)
    eventually(lambda: node.limits_mw() == [node.arrival_mw[0], 210_500])
    assert run.poll() is None
    assert terminated(run) == 128 + signal.SIGTERM
    assert node.limits_mw() == [node.arrival_mw[0], 210_500]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["ended_because"].endswith("somebody else has changed it, and it stays")
    assert [gpu["restored"] for gpu in result["device"]["gpus"]] == [True, False]
    assert any("210.5 W was set by somebody else meanwhile, and stays" in text for text in result["warnings"])


@pytest.mark.slow
def test_a_shared_gpu_is_not_tuned_unless_that_is_allowed(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(1, pids=(os.getpid(),)))
    job = node.play()
    done = node("attach", "--pid", str(job.pid), "--out", "run")
    require_said(done, 1, f"autocap: GPU 0 is shared: PID {os.getpid()} computes on it as well")
    assert not (tmp_path / "run").exists()
    run = node.start("attach", "--pid", str(job.pid), "--out", "run", "--shared-gpu", "--observe")
    eventually(lambda: node.events("device_found"))
    assert terminated(run) == 0


@pytest.mark.slow
def test_a_run_on_a_shared_gpu_goes_on_untuned_and_keeps_its_status(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(1, pids=(os.getpid(),)))
    done = node("run", "--gpus", "0", "--out", "run", "--json", "--", "sh", "-c", "sleep 1; exit 5")
    assert done.returncode == 5
    assert done.stderr.count("warning: the job runs untuned for now: GPU 0 is shared: PID") == 1
    assert json.loads(done.stdout.splitlines()[-1])["device"] is None


@pytest.mark.slow
def test_a_child_that_uses_no_gpu_in_time_runs_untuned_and_keeps_its_status(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(2))
    done = node("run", "--wait", "0.5", "--", "sh", "-c", "sleep 2; exit 4")
    assert done.returncode == 4
    assert (
        "autocap: warning: the job runs untuned: the job used no GPU within 0.5 s; pass a larger --wait if it starts "
        "slowly, or --gpus"
    ) in done.stderr


@pytest.mark.slow
def test_a_signal_before_the_child_uses_a_gpu_is_passed_on(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(2))
    script = "trap 'sleep 0.5; exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    run = node.start("run", "--out", "run", "--", "sh", "-c", script)
    eventually(lambda: "ready" in (tmp_path / "out").read_text())
    time.sleep(0.2)
    assert terminated(run) == 7
    (ended,) = node.events("run_ended")
    assert ended["ended_because"] == "a signal was passed on to it before it was tuned"


@pytest.mark.slow
def test_no_signal_waits_for_a_driver_that_is_asked_who_computes(nodes, tmp_path) -> None:
    hangs = Fault(code=0, function="nvmlDeviceGetComputeRunningProcesses_v3", times=None, delay_s=4.0)
    node = stand(nodes, tmp_path, replace(alike(2), faults=(hangs,)))
    run = node.start(
        "run",
        "--out",
        "run",
        "--",
        "sh",
        "-c",
        "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.1; done",
    )
    eventually(lambda: "ready" in (tmp_path / "out").read_text())
    time.sleep(0.5)  # by now it is asked
    began_s = time.monotonic()
    run.terminate()
    eventually(lambda: "told" in (tmp_path / "out").read_text())
    assert time.monotonic() - began_s < 3.0
    assert run.wait() == 7


@pytest.mark.slow
def test_while_a_set_hangs_a_signal_is_passed_on_and_the_other_limit_is_back(nodes, tmp_path) -> None:
    hangs = Fault(code=0, function="nvmlDeviceSetPowerManagementLimit", gpu=1, after=1, times=None, delay_s=4.0)
    node = stand(nodes, tmp_path, replace(alike(2), faults=(hangs,)))
    run = node.start("run", "--out", "run", *QUICK, "--", *PLAYER, "--steps")
    eventually(lambda: node.limits_mw()[0] == 150_000)
    job = identify(node.board.read().job_pid)
    began_s = time.monotonic()
    run.terminate()
    eventually(lambda: node.limits_mw()[0] == node.arrival_mw[0] and not job.is_alive())
    assert time.monotonic() - began_s < 3.0
    assert run.wait() == 128 + signal.SIGTERM
    assert node.limits_mw() == node.arrival_mw
    assert [one["restored"] for one in node.events("limit_restored")] == [True, True]


@pytest.mark.slow
def test_a_driver_that_takes_seconds_to_load_is_waited_for(nodes, tmp_path) -> None:
    slow = Fault(code=0, function="nvmlInitWithFlags", times=None, delay_s=2.0)
    node = stand(nodes, tmp_path, replace(alike(1), faults=(slow,)))
    run = node.start("run", "--out", "run", *QUICK, "--gpus", "0", "--", *PLAYER, "--steps")
    eventually(node.is_capped, 90.0)
    assert terminated(run) == 128 + signal.SIGTERM
    assert node.limits_mw() == node.arrival_mw


def test_a_process_without_a_gpu_is_no_job_to_attach_to(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(1))
    done = node("attach", "--pid", str(os.getpid()))
    assert done.returncode == 1
    assert done.stderr == (
        f"autocap: process {os.getpid()} and its descendants use no GPU; attach once the job computes on one, or pass "
        "--gpus\n"
    )


@pytest.mark.slow
def test_without_permission_attach_names_the_ways_out_and_leaves_nothing(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(1, limits=Limits.REFUSED))
    job = node.play()
    done = node("attach", "--pid", str(job.pid))
    require_said(done, 1, "was not permitted")
    assert all(way in done.stderr for way in ("sudo", "--cap-add SYS_ADMIN", "--observe"))
    assert node.board.read().changes == ()
    assert node.leftovers() == []
    assert not (tmp_path / "autocap-runs").exists()


@pytest.mark.slow
def test_observing_never_calls_a_setter_not_even_to_settle_what_a_dead_run_left(nodes, tmp_path) -> None:
    node = stand(nodes, tmp_path, alike(1))
    run = node.start("run", "--out", "first", *QUICK, "--gpus", "0", "--", *PLAYER, "--steps")
    eventually(node.is_capped, 90.0)
    job_pid = node.board.read().job_pid
    assert job_pid is not None
    run.send_signal(signal.SIGSTOP)  # so that it does not start another watchdog
    (watchdog,) = [child.pid for child in psutil.Process(run.pid).children() if child.pid != job_pid]
    os.kill(watchdog, signal.SIGKILL)
    run.kill()
    run.wait()
    watching = node.start("attach", "--pid", str(job_pid), "--observe", "--out", "run")
    eventually(lambda: node.events("device_found"))
    watching.terminate()
    assert watching.wait(120) == 0
    assert node.is_capped()
    would = node("restore", AUTOCAP_OBSERVE="1")
    assert would.returncode == 1
    assert "250.123 W would be put back" in would.stdout
    assert node.is_capped()
    done = node("restore")
    assert done.returncode == 0
    assert node.limits_mw() == node.arrival_mw
    os.kill(job_pid, signal.SIGKILL)
