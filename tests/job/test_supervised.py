"""A supervised program ends when its maker does, with whatever it started, and tells how it ended until then.

Attaching to real processes: followed by identity, left alone.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autocap.errors import TargetError
from autocap.job.attached import AttachedJob
from autocap.job.processes import ProcessId, identify
from autocap.job.supervised import Supervised
from tests.doubles.jobs import SLEEPING, job, state
from tests.doubles.waiting import eventually
from tests.job.test_shared_files import in_fork

IGNORES_TERM = "trap '' TERM; echo $$ >> pids; while :; do sleep 1; done"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for process in started():  # of a test that failed
        os.kill(process.pid, signal.SIGKILL)


def started() -> list[ProcessId]:
    """The processes that are still there of those that have written their numbers down."""
    text = Path("pids").read_text() if Path("pids").exists() else ""
    found = [identify(int(pid)) for pid in text.split() if text.endswith("\n")]
    return [process for process in found if process is not None and process.is_alive()]


def shell(script: str, grace_s: float = 0.1) -> Supervised:
    return Supervised(("/bin/sh", "-c", script), grace_s=grace_s)


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("echo $$ >> pids; while :; do echo 5; sleep 0.01; done", 1),
        (f"{IGNORES_TERM}", 1),
        (f"sh -c \"{IGNORES_TERM}\" | sh -c \"{IGNORES_TERM}\"", 2),
        (f"setsid sh -c \"{IGNORES_TERM}\" & {IGNORES_TERM}", 2),
        ("echo $$ >> pids; kill -STOP $$", 1),
        ("echo $$ >> pids; exec cat /dev/zero", 1),  # nobody reads
    ],
    ids=["at once", "ignores SIGTERM", "a pipeline", "in a session of its own", "is stopped", "writes on"],
)  # fmt: skip
def test_when_its_maker_is_killed_it_ends_with_all_that_it_started(script: str, count: int) -> None:
    def make() -> None:
        program = shell(script)  # bound, or it would be collected
        eventually(lambda: len(started()) == count)
        assert program.poll() is None

    in_fork(make)
    eventually(lambda: started() == [])


def test_closing_ends_it_with_all_that_it_started() -> None:
    program = shell(f"sh -c \"{IGNORES_TERM}\" | sh -c \"{IGNORES_TERM}\"")  # fmt: skip
    eventually(lambda: len(started()) == 2)
    program.close()
    assert started() == []
    program.close()


def test_it_is_asked_to_end_before_it_is_killed() -> None:
    program = shell("trap 'echo asked > asked; exit' TERM; echo $$ >> pids; while :; do sleep 0.01; done", grace_s=5.0)
    eventually(lambda: len(started()) == 1)
    program.close()
    assert Path("asked").exists()


def test_when_it_ends_by_itself_what_it_leaves_behind_goes_too() -> None:
    program = shell(f"sh -c \"{IGNORES_TERM}\" & while [ ! -e pids ]; do sleep 0.01; done; exit 3")  # fmt: skip
    eventually(lambda: program.poll() is not None)
    assert program.returncode == 3
    assert started() == []
    program.close()


@pytest.mark.slow
@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_its_exit_status_is_a_shell_s(script: str, status: int) -> None:
    program = shell(script)
    eventually(lambda: program.poll() == status)
    program.close()


def test_what_cannot_be_executed_says_so() -> None:
    program = Supervised(("/no/such/program",), grace_s=0.0)
    eventually(lambda: program.poll() == 127)
    assert program.errors() == b"/no/such/program: No such file or directory\n"
    program.close()


def test_it_hears_what_it_is_told_and_nothing_else_reaches_it() -> None:
    program = Supervised(("/bin/sh", "-c", "read x; echo $x; read y || echo end"), grace_s=0.0, talks=True)
    program.tell(b"word\n")
    heard = bytearray()
    eventually(lambda: heard.extend(program.output()) or heard == b"word\n")
    assert program.poll() is None
    program.close()


def test_its_supervisor_sleeps_and_takes_no_signal_that_is_meant_for_others() -> None:
    program = shell("echo $$ >> pids; exec sleep 60")
    eventually(lambda: len(started()) == 1)
    (supervisor,) = (
        each for each in psutil.Process().children() if "autocap.job.supervisor" in " ".join(each.cmdline())
    )
    before = supervisor.cpu_times()
    for name in ("INT", "HUP", "TERM", "QUIT", "TSTP", "TTIN", "TTOU", "USR1", "USR2", "PIPE", "ALRM"):
        supervisor.send_signal(getattr(signal, f"SIG{name}"))
    time.sleep(0.1)
    after = supervisor.cpu_times()
    assert program.poll() is None
    assert after.user + after.system - before.user - before.system <= 0.02
    program.close()
    assert started() == []


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
