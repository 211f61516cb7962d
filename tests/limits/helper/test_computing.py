"""Whose a process is, told by looking at that very process; and who is at the other end of a connection."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from autocap.errors import DeviceError
from autocap.job.processes import own_identity
from autocap.limits import vital_signs
from autocap.limits.helper.computing import computing, sees_all_processes, user_of
from autocap.limits.helper.conversation import PeerProcess
from autocap.wire.who import Peer, is_nobody_known, peer_of, pidfd_of, user_name

NOBODY_PID = 2**22 + 1  # above the largest
ME = os.getuid()


def others_than(uid: int, listed: Callable[[], Iterable[int] | None]) -> str | None:
    return computing(listed).other_than(Peer(uid=uid, pid=0, groups=()))


def test_the_user_of_a_process_is_its_real_one():
    assert user_of(os.getpid()).uid == ME


def test_who_has_ended_or_never_was_has_no_user():
    ended = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert user_of(ended.pid).uid is None  # a zombie
    ended.wait()
    assert [user_of(pid).uid for pid in (ended.pid, NOBODY_PID, 0, -1)] == [None] * 4


def test_a_number_that_was_given_away_meanwhile_is_nobodys(tmp_path):
    """/proc shows another process by then, or none: what it says does not count."""
    (tmp_path / str(os.getpid())).mkdir()
    assert user_of(os.getpid(), tmp_path).uid is None


def test_nobody_else_computes_where_all_are_ours():
    assert others_than(ME, lambda: (os.getpid(), os.getppid()) if os.getppid() else ()) is None
    assert others_than(ME, lambda: ()) is None


def test_somebody_else_is_named():
    assert others_than(ME + 1, lambda: (os.getpid(),)) == f"process {os.getpid()} of {user_name(ME)} computes on it"


def test_what_cannot_be_told_counts_as_somebody_else():
    def fails() -> tuple[int, ...]:
        raise DeviceError("more processes appeared than there was room for")

    assert others_than(ME, lambda: None) == "the driver does not list who computes on it"
    assert (
        others_than(ME, lambda: (NOBODY_PID,)) == f"process {NOBODY_PID} computes on it, and whose it is cannot be told"
    )
    assert others_than(ME, fails) == (
        "who computes on it cannot be told: more processes appeared than there was room for"
    )


def test_a_process_that_ends_while_it_is_looked_at_is_in_no_later_list():
    lists = [(NOBODY_PID,), ()]
    assert others_than(ME, lambda: lists.pop(0)) is None
    assert lists == []


def test_in_a_pid_namespace_of_our_own_not_all_processes_are_seen(tmp_path):
    for name, inode in (("first", 4026531836), ("another", 4026532500)):
        (tmp_path / name).symlink_to(f"pid:[{inode}]")
    seen = [sees_all_processes(tmp_path / name) for name in ("first", "another", "none")]
    assert seen == [True, False, True]


def test_a_peer_is_who_connected():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours)
        assert (peer.uid, peer.pid, peer.groups[0]) == (ME, os.getpid(), os.getgid())
        assert set(os.getgroups()) <= set(peer.groups)
        process = PeerProcess(pidfd_of(ours, peer.pid), peer.pid)
        assert not process.has_ended()
        assert process.look(threads=False) is not None
        process.close()


def test_of_a_client_with_very_many_threads_some_are_looked_at(monkeypatch):
    looks: list[object] = []
    monkeypatch.setattr(vital_signs, "_fields", lambda fd: [b"S", *[b"0"] * 18, own_start])
    monkeypatch.setattr(vital_signs, "_state", lambda path: looks.append(path))
    monkeypatch.setattr(vital_signs.time, "clock_gettime", lambda clock: 0.0)
    monkeypatch.setattr(vital_signs.os, "listdir", lambda path: [str(tid) for tid in range(30_000)])
    own_start = str(own_identity().start_ticks).encode()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = PeerProcess(pidfd_of(ours, os.getpid()), os.getpid())
        assert process.look(threads=True) == vital_signs.Look(cpu_s=0.0, runnable=False)
        process.close()
    assert len(looks) == 256


def test_the_number_of_a_peer_that_has_ended_stands_for_nobody():
    class Reaped(socket.socket):
        def getsockopt(self, *which: int) -> bytes:
            raise ProcessLookupError(errno.ESRCH, "No such process")  # as from Linux 6.5 to 6.15

    with Reaped(socket.AF_UNIX) as connection, pytest.raises(ProcessLookupError):
        pidfd_of(connection, os.getpid())


@pytest.mark.skipif(ME != 0, reason="only root can be in groups of its choice")
def test_a_peer_is_in_all_of_its_groups_however_many():
    before = os.getgroups()
    try:
        os.setgroups(range(30_000, 31_000))
        ours, theirs = socket.socketpair()
    finally:
        os.setgroups(before)
    with ours, theirs:
        assert peer_of(ours).groups == (os.getgid(), *range(30_000, 31_000))


def test_users_whom_a_namespace_has_no_number_for_cannot_be_told_apart(tmp_path):
    (tmp_path / "overflow").write_text("65534\n")
    (tmp_path / "whole").write_text("         0          0 4294967295\n")
    (tmp_path / "part").write_text("         0     100000      65536\n")
    known = [is_nobody_known(uid, tmp_path / part, tmp_path / "overflow") for uid, part in
             ((65534, "part"), (65534, "whole"), (1000, "part"))]  # fmt: skip
    assert known == [True, False, False]


@pytest.mark.skipif(ME != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_is_seen_as_theirs():
    with subprocess.Popen(["/bin/sleep", "60"], user=20_001, group=20_001) as process:
        try:
            assert user_of(process.pid).uid == 20_001
            assert others_than(0, lambda: (process.pid,)) == f"process {process.pid} of user 20001 computes on it"
            assert others_than(20_001, lambda: (process.pid,)) is None
        finally:
            process.kill()
