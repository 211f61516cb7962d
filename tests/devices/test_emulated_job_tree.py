import os
import signal
import time

import pytest

from autocap.devices.emulated.job_tree import JobTree, continue_tree, require_own
from autocap.errors import DeviceError
from autocap.job.processes import ProcessId, own_identity, tree
from tests.doubles.jobs import BUSY, PARENT, SLEEPING, has_a_working_child, job, no_descriptors, state, stops_seen
from tests.doubles.waiting import eventually


@pytest.fixture
def parent():
    with job(PARENT) as root:
        eventually(lambda: has_a_working_child(root))
        yield root


def test_every_process_of_the_tree_is_stopped_and_continued(parent):
    processes = JobTree(parent)
    processes.stop()
    eventually(lambda: all(state(process) == "T" for process in tree(parent)))
    processes.resume()
    eventually(lambda: all(state(process) != "T" for process in tree(parent)))
    processes.close()


@pytest.mark.slow
def test_a_process_that_appears_later_is_found_by_a_scan():
    with job(f"import time; time.sleep(0.5)\n{PARENT}") as root:
        processes = JobTree(root)
        eventually(lambda: has_a_working_child(root))
        eventually(processes.scan_if_due)
        processes.stop()
        eventually(lambda: all(state(process) == "T" for process in tree(root)))
        processes.close()
        eventually(lambda: all(state(process) != "T" for process in tree(root)))


@pytest.mark.slow
def test_cpu_time_is_counted_between_calls():
    with job(BUSY) as root:
        processes = JobTree(root)
        eventually(lambda: processes.spent_s() > 0.0)
        began_s = time.monotonic()
        eventually(lambda: time.monotonic() - began_s > 0.2)
        assert 0.02 < processes.spent_s() < 1.2 * (time.monotonic() - began_s)
        processes.stop()
        eventually(lambda: state(root) == "T")
        processes.spent_s()
        time.sleep(0.05)
        assert processes.spent_s() == 0.0
        processes.close()


@pytest.mark.slow
@pytest.mark.parametrize("theirs_first", [True, False])
def test_a_stop_of_somebody_else_is_left_alone(theirs_first):
    with job(BUSY) as root:
        processes = JobTree(root)
        if theirs_first:
            os.kill(root.pid, signal.SIGSTOP)
            eventually(lambda: state(root) == "T")
        processes.stop()
        eventually(lambda: state(root) == "T")
        if not theirs_first:
            os.kill(root.pid, signal.SIGSTOP)
        processes.resume()
        processes.close()
        assert stops_seen(root, 0.05) > 0
        assert state(root) == "T"
        os.kill(root.pid, signal.SIGCONT)
        eventually(lambda: state(root) != "T")
        assert stops_seen(root, 0.1) == 0


@pytest.mark.slow
def test_a_recycled_pid_is_never_signalled():
    with job(BUSY) as root:
        processes = JobTree(ProcessId(root.pid, root.start_ticks + 1))
        processes.stop()
        assert stops_seen(root, 0.1) == 0
        os.kill(root.pid, signal.SIGSTOP)
        eventually(lambda: state(root) == "T")
        continue_tree(ProcessId(root.pid, root.start_ticks + 1))
        assert stops_seen(root, 0.1) > 0
        assert state(root) == "T"


def test_continue_tree_continues_whatever_was_stopped(parent):
    for process in tree(parent):
        os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: all(state(process) == "T" for process in tree(parent)))
    continue_tree(parent)
    eventually(lambda: all(state(process) != "T" for process in tree(parent)))


def test_processes_that_ended_are_no_trouble():
    with job(SLEEPING) as root:
        processes = JobTree(root)
        os.kill(root.pid, signal.SIGKILL)
        eventually(lambda: not root.is_alive())
        processes.stop()
        processes.spent_s()
        processes.resume()
        processes.scan()
        continue_tree(root)
        processes.close()


def test_a_job_of_another_user_is_refused():
    with job(SLEEPING) as root:
        require_own(root)
        stranger = os.getuid() + 4711
        with pytest.raises(DeviceError, match=f"PID {root.pid} of the job belongs to user {os.getuid()}, autocap runs"):
            require_own(root, uid=stranger)


def test_a_job_that_contains_autocap_is_refused():
    with pytest.raises(DeviceError, match=r"belongs to the job of PID .* start it outside the job"):
        require_own(own_identity())


@pytest.mark.slow
@pytest.mark.parametrize("pidfd", [True, False], ids=["by pidfd", "by number"])
def test_where_no_file_can_be_opened_the_known_processes_are_neither_forgotten_nor_left_stopped(
    parent, monkeypatch, pidfd
):
    monkeypatch.setattr("autocap.devices.emulated.job_tree._SCAN_S", 0.0)
    if not pidfd:  # as before Linux 5.3
        monkeypatch.delattr(os, "pidfd_open")
    processes = JobTree(parent)
    before = tree(parent)
    processes.stop()
    with no_descriptors():
        assert not processes.scan_if_due()
        assert processes.spent_s() >= 0.0
        processes.stop()
        time.sleep(0.05)
        processes.resume()
    eventually(lambda: all(state(process) != "T" for process in before))
    assert tree(parent) == before
    eventually(processes.scan_if_due)
    processes.stop()
    eventually(lambda: all(state(process) == "T" for process in before))
    processes.close()


def test_that_no_file_can_be_opened_makes_nobody_dead():
    own = own_identity()
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        own.is_alive()
