"""Watchdogs that a fork server starts do what those of an interpreter of their own do, whatever becomes of it."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autocap.errors import GuardError
from autocap.limits import fork_server
from autocap.limits.fork_server import ForkedWatchdogs
from autocap.records import GpuInfo
from bench.helper.served import fork_servers_of, watchdogs_of
from tests.doubles import file_device
from tests.doubles.waiting import eventually
from tests.limits.test_guardian import guard
from tests.limits.test_watchdog import LOADED_S, WITHIN_DEATH_S, WITHIN_SILENCE_S, at, controller, settled, wait_for


@pytest.fixture
def forked() -> Iterator[ForkedWatchdogs]:
    with ForkedWatchdogs(["file"]) as made:
        yield made


def own_watchdogs() -> tuple[int, ...]:
    return watchdogs_of(os.getpid())


def own_server() -> int:
    (server,) = fork_servers_of(os.getpid())
    return server


@pytest.mark.slow
@pytest.mark.parametrize("server", ["lives", "is killed", "is stopped"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_limit_is_back_in_time_whatever_becomes_of_the_fork_server(state_dir, gpu, server, how):
    with controller(state_dir, gpu, options=("--fork-server",)) as process:
        wait_for(process, "set 180")
        (watchdog,), (pid,) = watchdogs_of(process.pid), fork_servers_of(process.pid)
        if server != "lives":
            os.kill(pid, signal.SIGKILL if server == "is killed" else signal.SIGSTOP)
        process.send_signal(how)
        eventually(at(gpu, 260.0), (WITHIN_DEATH_S if how == signal.SIGKILL else WITHIN_SILENCE_S) + LOADED_S)
        process.kill()
        eventually(settled(state_dir), 5.0)
        if server == "is stopped":
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: not psutil.pid_exists(pid), 10.0)  # it ends with its controller
        eventually(lambda: not psutil.pid_exists(watchdog), 10.0)


def test_a_watchdog_that_dies_is_replaced_by_another_forked_one(state_dir, gpu, forked):
    with guard(state_dir, gpu, start_watch=forked.start) as guardian:
        guardian.set_caps([200.0])
        (first,), server = own_watchdogs(), own_server()
        os.kill(first, signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(first), 10.0)  # the server leaves no zombie
        assert guardian.beat()
        (second,) = own_watchdogs()
        assert (second != first, own_server()) == (True, server)
        assert guardian.notes == (f"the watchdog process (PID {first}) was lost; PID {second} watches instead",)
    assert own_watchdogs() == ()


@pytest.mark.slow
def test_a_killed_fork_server_is_replaced_and_a_stopped_one_given_up(tmp_path, state_dir, forked, monkeypatch):
    first, second, third = (file_device.make(tmp_path, 250.0, f"gpu{n}") for n in range(3))
    with guard(state_dir, first, start_watch=forked.start) as guardian:
        guardian.set_caps([200.0])
        killed = own_server()
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # one that is about to die may still take a request
        with guard(state_dir, second, start_watch=forked.start) as other:
            other.set_caps([190.0])
            assert own_server() != killed
        stopped = own_server()
        os.kill(stopped, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(fork_server, "ANSWER_WITHIN_S", 0.1)
            with pytest.raises(GuardError, match=r"cannot be started .*: the process that forks watchdogs does not"):
                guard(state_dir, third, start_watch=forked.start).__enter__()
        assert not psutil.pid_exists(stopped)
        with guard(state_dir, third, start_watch=forked.start) as other:
            other.set_caps([180.0])
        guardian.beat()
        assert guardian.notes == ()  # its watchdog is the first one still
    assert all(at(one, 250.0)() for one in (first, second, third))
    assert os.listdir(state_dir) == []


def test_many_are_started_at_once_and_each_holds_its_own_ends_alone(tmp_path, state_dir, forked):
    gpus = [file_device.make(tmp_path, 250.0, f"gpu{n}") for n in range(6)]
    all_set, end, left = threading.Barrier(len(gpus) + 1), threading.Event(), []

    def hold(gpu: GpuInfo) -> None:
        with guard(state_dir, gpu, start_watch=forked.start) as guardian:
            guardian.set_caps([200.0])
            all_set.wait(60.0)
            end.wait(60.0)
            left.append(gpu.uuid)

    threads = [threading.Thread(target=hold, args=(gpu,)) for gpu in gpus]
    for thread in threads:
        thread.start()
    try:
        all_set.wait(60.0)
        pids = own_watchdogs()
        open_files = {pid: {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()} for pid in pids}
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert len(pids) == len(left) == len(gpus)
    channels = [{name for name in names if name.startswith(("socket:", "pipe:"))} for names in open_files.values()]
    assert all(len(own) == 2 for own in channels)  # where it hears its controller, and where it answers
    assert len(set().union(*channels)) == 2 * len(gpus)
    assert not psutil.Process(own_server()).children()
    assert all(at(gpu, 250.0)() for gpu in gpus)
