"""Attaching to real processes: followed by identity, left alone."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from autocap.errors import TargetError
from autocap.job.attached import AttachedJob
from autocap.job.processes import identify
from tests.doubles.jobs import SLEEPING, job, state
from tests.doubles.waiting import eventually


def command(pid: int) -> tuple[str, ...]:
    with AttachedJob(pid) as attached:
        return attached.command


def test_a_process_is_followed_until_it_ends() -> None:
    with job(SLEEPING) as root, AttachedJob(root.pid) as attached:
        assert attached.identity == root
        eventually(lambda: command(root.pid)[-1] == SLEEPING)  # once it is past its exec
        assert attached.poll() is None
        os.kill(root.pid, signal.SIGKILL)
        eventually(lambda: attached.poll() == 0)


def test_a_stopped_process_has_not_ended() -> None:
    with job(SLEEPING) as root, AttachedJob(root.pid) as attached:
        os.kill(root.pid, signal.SIGSTOP)
        eventually(lambda: state(root) == "T")
        assert attached.poll() is None


def test_a_process_that_is_left_goes_on() -> None:
    with job(SLEEPING) as root, AttachedJob(root.pid) as attached:
        attached.end(signal.SIGTERM)
        assert attached.poll() == 0
        assert root.is_alive()


def test_without_a_pidfd_identity_tells_a_recycled_number_apart() -> None:
    with job(SLEEPING) as root, AttachedJob(root.pid) as attached:
        attached.close()  # as on a kernel without pidfds
        assert attached.poll() is None
        os.kill(root.pid, signal.SIGKILL)
        eventually(lambda: attached.poll() == 0)


def test_no_such_process_is_said() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    child.wait()
    with pytest.raises(TargetError, match=f"there is no process {child.pid}; look the job's PID up with: ps -ef"):
        AttachedJob(child.pid)


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", ""])
    eventually(lambda: (found := identify(child.pid)) is not None and not found.is_alive())
    with pytest.raises(TargetError, match=f"process {child.pid} has ended already; only its parent"):
        AttachedJob(child.pid)
    child.wait()


def test_a_thread_is_no_job_but_its_process_may_be() -> None:
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (ready.set(), done.wait()))
    thread.start()
    try:
        ready.wait()
        with pytest.raises(TargetError, match=f"{thread.native_id} is a thread of process {os.getpid()}; pass --pid"):
            AttachedJob(thread.native_id or 0)
    finally:
        done.set()
        thread.join()


def test_we_are_not_our_own_job() -> None:
    with pytest.raises(TargetError, match="is this autocap itself; pass the PID of the training job"):
        AttachedJob(os.getpid())
