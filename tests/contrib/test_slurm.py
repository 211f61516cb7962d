"""The scripts for Slurm, run as slurmd would run them, with made-up jobs."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autocap.limits.helper import policy
from autocap.limits.helper.policy import DROP_INS, Grant, PolicyFiles
from autocap.wire.who import Peer
from tests.doubles.waiting import eventually

SCRIPTS = Path(__file__).resolve().parents[2] / "contrib" / "slurm"
ALICE, BOB = Peer(uid=20_001, pid=1, groups=(100,)), Peer(uid=20_002, pid=2, groups=(100,))
ADDRESSES = {0: "0000:5e:00.0", 1: "0000:3b:00.0", 3: "0000:86:00.0"}  # by number, which is no order of theirs


class Node:
    """A compute node whose GPUs have these numbers and addresses."""

    def __init__(self, folder: Path) -> None:
        self.state, self.gpus = folder / "autocap", folder / "gpus"
        for number, address in ADDRESSES.items():
            (self.gpus / address).mkdir(parents=True)
            text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-????????\nDevice Minor: \t {number}\n"
            (self.gpus / address / "information").write_text(text)
        self.policy = PolicyFiles(None, self.state / DROP_INS, os.geteuid())

    def run(self, script: str, **job: str) -> subprocess.CompletedProcess[str]:
        env = {"AUTOCAP_STATE_DIR": str(self.state), "AUTOCAP_NVIDIA_GPUS": str(self.gpus), **job}  # and no PATH
        done = subprocess.run([SCRIPTS / script], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr  # anything else takes the node out of service
        return done

    def may(self, peer: Peer, number: int) -> bool:
        found = self.policy.current().grant(peer, (f"gpu-{number}", ADDRESSES[number]))
        return isinstance(found, Grant) and not found.alone


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "none.toml")
    return Node(tmp_path)


JOB = {"SLURM_JOB_ID": "4711", "SLURM_JOB_UID": "20001", "SLURM_JOB_GPUS": "1,3"}


def test_a_job_has_its_gpus_as_long_as_it_lasts(node):
    node.run("prolog.sh", **JOB)
    assert [node.may(ALICE, number) for number in ADDRESSES] == [False, True, True]
    assert "was given to user 20001 by slurm-4711.toml" in str(node.policy.current().grant(BOB, (ADDRESSES[1],)))
    node.run("prolog.sh", SLURM_JOB_ID="4712", SLURM_JOB_UID="20002", SLURM_JOB_GPUS="0")
    assert [node.may(BOB, number) for number in ADDRESSES] == [True, False, False]
    node.run("epilog.sh", SLURM_JOB_ID="4711", AUTOCAP="/no/such")
    assert not any(node.may(ALICE, number) for number in ADDRESSES)
    assert node.may(BOB, 0)
    assert os.listdir(node.state / DROP_INS) == ["slurm-4712.toml"]


def test_what_is_given_anew_was_taken_back_also_without_an_epilog(node):
    node.run("prolog.sh", **JOB)
    node.run("prolog.sh", SLURM_JOB_ID="4712", SLURM_JOB_UID="20002", SLURM_JOB_GPUS="0")
    node.run("prolog.sh", SLURM_JOB_ID="4713", SLURM_JOB_UID="20002", SLURM_JOB_GPUS="3")
    assert not any(node.may(ALICE, number) for number in ADDRESSES)
    assert [node.may(BOB, number) for number in ADDRESSES] == [True, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_GPUS": ""},
        {"SLURM_JOB_GPUS": "2"},  # which is not there
        {"SLURM_JOB_GPUS": "1,2"},
        {"SLURM_JOB_GPUS": "0:1"},
        {"SLURM_JOB_GPUS": "$(touch here)"},
        {"SLURM_JOB_UID": "0]\nusers = [1"},
        {"SLURM_JOB_UID": ""},
        {"SLURM_JOB_ID": "../../etc/passwd"},
        {"SLURM_JOB_ID": ""},
    ],
)
def test_what_is_no_job_with_whole_gpus_is_given_nothing_and_fails_nothing(node, changes):
    done = node.run("prolog.sh", **JOB | changes)
    assert not node.state.exists()
    assert changes == {"SLURM_JOB_GPUS": ""} or "is not given its GPUs" in done.stderr


def test_a_node_without_gpus_or_room_fails_nothing(node, tmp_path):
    node.gpus = tmp_path / "none"
    assert "has the number 1" in node.run("prolog.sh", **JOB).stderr
    node.state = tmp_path / "file"
    node.state.write_text("")
    node.gpus = tmp_path / "gpus"
    assert "cannot be made" in node.run("prolog.sh", **JOB).stderr
    node.run("epilog.sh", **JOB, AUTOCAP="/no/such")


def test_the_epilog_puts_back_what_a_killed_autocap_of_root_left(node, tmp_path):
    command = tmp_path / "autocap"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "print(\'$*\')"\n')
    command.chmod(0o755)
    assert node.run("epilog.sh", SLURM_JOB_ID="4711", AUTOCAP=str(command)).stderr == "restore\n"


def test_tasks_are_told_of_a_helper_that_they_may_ask(node):
    assert node.run("task_prolog.sh").stdout == ""
    node.state.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as helper:
        helper.bind(str(node.state / "helper.sock"))
        assert node.run("task_prolog.sh").stdout == f"export AUTOCAP_HELPER={node.state}/helper.sock\n"


# What the Prolog for every job calls. squeue shows the job as configuring once, then as running with its comment.
STUBS = {
    "scontrol": 'printf "node1\\nnode2\\n"',
    "setsid": 'touch "$STUBS/begun"; exec /usr/bin/setsid "$@"',
    "runuser": 'shift 3; "$@"; touch "$STUBS/ended"',
    "squeue": '[ -e "$STUBS/seen" ] && state=R; touch "$STUBS/seen"; echo "7|4_2|${state:-CF}|$COMMENT"',
    "autocap": 'echo "$@" >>"$STUBS/called"; [ -e "$STUBS/uses" ] || { touch "$STUBS/uses"; exit 69; }',
    "sleep": ":",
}


def tuned(folder: Path, **job: str) -> list[str] | None:
    """What autocap is called with for a job; `None` where nothing is begun."""
    for name, script in STUBS.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    env = {
        "TUNE_PROLOG_PATH": f"{folder}:{os.environ['PATH']}",
        "AUTOCAP": str(folder / "autocap"),
        "STUBS": str(folder),
    }
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.geteuid()), "SLURM_JOB_GPUS": "0", "SLURMD_NODENAME": "node1"}
    done = subprocess.run([SCRIPTS / "tune_prolog.sh"], env={**env, **given, **job}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    if not (folder / "begun").exists():
        return None
    eventually((folder / "ended").exists)
    called = folder / "called"
    return called.read_text().splitlines() if called.exists() else []


def test_every_job_is_tuned_from_its_first_node_again_until_it_uses_a_gpu(tmp_path: Path) -> None:
    called = tuned(tmp_path, COMMENT="mine")
    assert called == ["attach --nodes slurm --job 4_2 --quiet --max-slowdown 5%"] * 2


@pytest.mark.parametrize(
    "job", [{"SLURMD_NODENAME": "node2"}, {"SLURM_JOB_GPUS": ""}, {"SLURM_JOB_UID": "no"}, {"AUTOCAP": "/nowhere"}]
)
def test_what_has_no_gpus_or_is_not_the_first_node_is_left_alone(tmp_path: Path, job: dict[str, str]) -> None:
    assert tuned(tmp_path, **job) is None


def test_a_job_that_says_so_is_left_alone(tmp_path: Path) -> None:
    assert tuned(tmp_path, COMMENT="autocap=off") == []
