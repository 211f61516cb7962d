"""Which jobs compute where, by the processes that the driver lists, and what outlives a manager that is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.finding import FoundJob, Weights, group_of, jobs_of
from autocap.plugins.fleet.manager.supervising import BudgetState, load, save
from autocap.plugins.fleet.openadr.events import Span

GROUPS = {10: 1, 11: 1, 20: 2, 21: 2, 30: 3}


def found(listings: dict[str, tuple[int, ...]]) -> list[tuple[int | None, tuple[str, ...]]]:
    return [(job.pid, job.uuids) for job in jobs_of(listings, GROUPS.get)]


def test_processes_of_one_group_are_one_job() -> None:
    assert found({"A": (11,), "B": (20,), "C": (10,), "D": ()}) == [(10, ("A", "C")), (20, ("B",))]


def test_two_jobs_on_one_gpu_are_one() -> None:
    assert found({"A": (10,), "B": (20,), "C": (11, 21)}) == [(10, ("A", "B", "C"))]
    assert found({"A": (10, 30), "B": (20,), "C": (30, 21)}) == [(10, ("A", "B", "C"))]


def test_hidden_processes_are_a_job_of_their_gpu() -> None:
    assert found({"A": (99,), "B": (98,), "C": (10,)}) == [(None, ("A",)), (None, ("B",)), (10, ("C",))]
    assert FoundJob(pid=None, uuids=("A",)).name == "hidden on A"


def asked(environ: dict[str, str]) -> tuple[int | None, int]:
    """The group of a process of its own session with that environment, and its PID."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environ}, start_new_session=True
    ) as process:
        process.stdout.readline()  # it has its environment by now
        return group_of(process.pid), process.pid


@pytest.mark.parametrize("environ", [{}, {"RANK": "0"}])
def test_who_leads_a_session_is_a_job_of_its_own(environ: dict[str, str]) -> None:
    group, pid = asked(environ)
    assert group == pid


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"])
def test_workers_are_their_launchers(variable: str) -> None:
    assert asked({variable: "3"})[0] == os.getpid()


def test_a_process_that_has_ended_is_hidden() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert group_of(process.pid) is None


def test_a_job_is_called_as_what_runs() -> None:
    name = FoundJob(pid=os.getpid(), uuids=("A",)).name
    assert name.endswith(str(os.getpid()))
    assert "/" not in name


def test_weights_outlive_a_manager_and_go_with_their_jobs(tmp_path: Path) -> None:
    ours, gone = os.getpgid(0), 2**22 + 1  # above the highest PID
    before = Weights(((ours, 2.5), (gone, 4.0)))
    assert before.of(os.getpid()) == 2.5
    state = BudgetState(
        asked_w=None, watts=900.0, policy=Policy.FAIR, began_wall_s=1.0, record="/r", weights=before.known,
        spans=(Span(label="event (a)", from_s=1.0, watts=500.0), Span(label="b", from_s=1.0, to_s=2.0, watts=1.0)),
    )  # fmt: skip
    save(tmp_path / "state", state)
    found = load(tmp_path / "state")
    assert found == state
    assert found.weights == ((ours, 2.5),)
    assert Weights(found.weights).of(os.getpid()) == 2.5
