"""Users of other PID namespaces: of containers, whose numbers mean other people, and subordinate ones."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from autocap.limits.helper.computing import computing, user_of
from autocap.limits.helper.connection import error_of
from autocap.limits.helper.protocol import Code, Lent, Op
from autocap.wire.who import HERE, Peer, entered_from, namespace_of, peer_of
from tests.doubles.lending import Client, HelperRig
from tests.doubles.waiting import eventually

_UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc")


def _may_unshare() -> bool:
    try:
        return subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=20.0).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


pytestmark = pytest.mark.skipif(not _may_unshare(), reason="no PID namespace can be had here, as in most containers")


Start = Callable[..., int]


@pytest.fixture
def container() -> Iterator[Start]:
    """Starts a program in a PID namespace of its own; its process's number here."""
    with ExitStack() as stack:

        def start(*words: str) -> int:
            outer = subprocess.Popen([*_UNSHARE, *(words or ("sleep", "60"))])
            stack.callback(outer.wait)
            stack.callback(outer.kill)
            eventually(lambda: _children(outer.pid) != [])
            return _children(outer.pid)[0]

        yield start


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def elsewhere(pid: int) -> Peer:
    """A client in the namespace of a process, of the same user."""
    return Peer(uid=os.getuid(), pid=pid, groups=(), namespace=namespace_of(pid))


def test_each_namespace_has_a_name_and_ours_is_here(container: Start) -> None:
    one, other = container(), container()
    assert namespace_of(os.getpid()) == namespace_of(os.getppid()) == HERE
    assert len({HERE, None, namespace_of(one), namespace_of(other)}) == 4
    assert entered_from(one) == os.getuid()
    assert namespace_of(0) is namespace_of(2**22 + 1) is None  # hidden from us, and nobody


def test_what_the_kernel_does_not_show_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nPPid:\t0\nUid:\t5\t5\t5\t5\nNSpid:\t7\t1\n")
    assert namespace_of(7, tmp_path) is None  # without CAP_SYS_PTRACE its link cannot be read
    assert entered_from(7, tmp_path) is None


def test_who_connects_from_a_container_is_known_to(container: Start, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        talk = f"import socket, time; s = socket.socket(1); s.connect({str(path)!r}); time.sleep(60)"
        pid = container(sys.executable, "-c", talk)
        connection, _ = listener.accept()
        with connection:
            peer = peer_of(connection)
            assert peer.namespace == namespace_of(pid) != HERE
            assert not peer.is_user(peer.uid)
            assert peer.account == (os.getuid(), False)


def test_two_containers_of_one_uid_are_two_users(container: Start) -> None:
    one, other = container(), container()
    assert computing(lambda: (one,)).other_than(elsewhere(one)) is None
    for listed in ((other,), (one, other), (one, os.getpid())):
        said = computing(lambda listed=listed: listed).other_than(elsewhere(one))
        assert "of another container computes on it" in said


def test_a_container_is_lent_only_what_it_computes_on(container: Start) -> None:
    said = computing(lambda: ()).other_than(elsewhere(container()))
    assert "none of" in said
    nowhere = Peer(uid=0, pid=0, groups=(), namespace=None)
    said = computing(lambda: (os.getpid(),)).other_than(nowhere)
    assert "cannot be told" in said


def test_a_container_that_we_have_started_is_ours(container: Start) -> None:
    us = Peer(uid=os.getuid(), pid=os.getpid(), groups=())
    assert computing(lambda: (container(), os.getpid())).other_than(us) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_a_container_that_root_has_started_for_a_user_is_not_that_users(container: Start) -> None:
    pid = container("setpriv", "--reuid", "20001", "--clear-groups", "sleep", "60")
    eventually(lambda: user_of(pid).uid == 20_001)
    them = Peer(uid=20_001, pid=1, groups=())
    said = computing(lambda: (pid,)).other_than(them)
    assert "of user 20001 of another container" in said


def test_a_helper_lends_a_container_its_own_gpu_alone_and_looks_again(container: Start, tmp_path: Path) -> None:
    one, other = container(), container()
    helper_rig = HelperRig(tmp_path)
    helper_rig.machine.cards["gpu0"].pids, helper_rig.machine.cards["gpu1"].pids = (one,), (other,)
    client = Client(helper_rig.service_state, helper_rig.clock, elsewhere(one))
    refused = client.ask(Op.LEND, devices=("gpu1",))
    assert refused.code is Code.NOT_ALLOWED
    assert "of another container computes on it" in str(error_of(refused))
    assert isinstance(client.ask(Op.LEND, devices=("gpu0",)), Lent)
    client.ask(Op.SET, watts=(150.0,))
    helper_rig.machine.cards["gpu0"].pids = (one, other)
    client.beat_for(11.0)
    assert helper_rig.machine.limits_w() == [260.0, 260.0]
    client.talk.end("closed")
