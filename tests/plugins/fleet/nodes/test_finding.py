"""Which processes of a node are a job's: real ones, told apart by their environment."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from autocap.job.processes import environment, identify
from autocap.plugins.fleet.nodes.agent.finding import JobHere, RayJob, SlurmJob
from autocap.plugins.fleet.nodes.protocol import Target

SLEEP = (sys.executable, "-c", "import time; print(flush=True); time.sleep(600)")
Start = Callable[..., "subprocess.Popen[bytes]"]
JOB = f"9{os.getpid()}"  # nobody else's who runs these tests now
OURS = {b"SLURM_JOB_ID": JOB.encode(), b"SLURMD_NODENAME": b"n1", b"SLURM_STEP_ID": b"3"}


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def begin(**variables: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(SLEEP, env=variables, stdout=subprocess.PIPE)
        started.append(process)
        process.stdout.readline()  # by then it is the program with that environment
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def slurm(node: str, step: str | None, job: str = JOB) -> dict[str, str]:
    given = {"SLURM_JOB_ID": job, "SLURMD_NODENAME": node}
    return given if step is None else {**given, "SLURM_STEP_ID": step}


def roots(here: JobHere) -> set[int]:
    return {root.pid for root in here.roots()}


def slurm_job() -> JobHere:
    return SlurmJob(Target(engine="slurm", job=JOB), environ=OURS)


def test_the_steps_of_the_job_on_this_node_but_for_our_own(start: Start) -> None:
    ours = [start(**slurm("n1", "0")), start(**slurm("n1", "1"))]
    for other in (slurm("n2", "0"), slurm("n1", "3"), slurm("n1", None), slurm("n1", "0", f"{JOB}2")):
        start(**other)
    assert roots(slurm_job()) == {each.pid for each in ours}


def test_the_batch_script_where_there_is_no_step(start: Start) -> None:
    batch = start(**slurm("n1", None))
    start(**slurm("n1", "3"))
    assert roots(slurm_job()) == {batch.pid}


def test_a_job_that_is_not_here(start: Start) -> None:
    here = slurm_job()
    assert here.roots() == ()
    assert not here.is_there()


def test_it_is_there_until_its_last_process_has_ended(start: Start) -> None:
    first, here = start(**slurm("n1", "0")), slurm_job()
    assert here.is_there()
    second = start(**slurm("n1", "1"))
    first.kill()
    first.wait()
    assert here.is_there()
    second.kill()
    second.wait()
    assert not here.is_there()


def test_a_process_belongs_to_the_job_or_not(start: Start) -> None:
    here = slurm_job()
    ours, theirs = start(**slurm("n1", "0")), start(**slurm("n2", "0"))
    for process, belongs in ((ours, True), (theirs, False), (ours, True)):
        identity = identify(process.pid)
        assert identity is not None
        assert here.has(identity) is belongs


def test_of_ray_the_jobs_workers_that_the_raylet_has_started(start: Start) -> None:
    other = start()  # what we start are our children, so that we stand for the raylet
    me = str(os.getpid())
    worker = start(RAY_RAYLET_PID=me, RAY_JOB_ID="02000000")
    taken_over = start(RAY_RAYLET_PID=me, RAY_JOB_ID="ffffffff")
    start(RAY_RAYLET_PID=me, RAY_JOB_ID="01000000")
    start(RAY_RAYLET_PID=str(other.pid), RAY_JOB_ID="02000000")
    start(RAY_RAYLET_PID=me, RAY_JOB_ID="ffffffff")  # another job's by now, or nobody's
    told = identify(taken_over.pid)
    assert told is not None
    here = RayJob(Target(engine="ray", job="02000000"), [told], {b"RAY_RAYLET_PID": me.encode()})
    assert roots(here) == {worker.pid, taken_over.pid}


def test_an_environment_by_name(start: Start) -> None:
    assert environment(start(A="1", B="x=y", C="").pid) == {b"A": b"1", b"B": b"x=y", b"C": b""}
