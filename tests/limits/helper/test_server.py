"""Clients over real sockets, in one process: who breaks off, is slow, sends nonsense or too much, and the others.

Many who look at once have one of them look, and none is given what was seen before they asked.
"""

import contextlib
import itertools
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from autocap.errors import DeviceError, PeerLost, SetterUnavailable
from autocap.limits import Guardian
from autocap.limits.helper.connection import Connection, connect
from autocap.limits.helper.policy import PolicyFiles
from autocap.limits.helper.protocol import Code, Done, Hello, Lent, Op, Request, Status
from autocap.limits.helper.server import Server
from autocap.limits.helper.service_state import Coalesced, ServiceState
from autocap.wire import listening, stream
from autocap.wire.admission import Bounds, Rate
from autocap.wire.listening import NotListening
from autocap.wire.refusal import Refused
from autocap.wire.stream import dialled
from bench.faults.virtual import Unwatched
from bench.helper import people
from tests.doubles.crowd import Crowd
from tests.doubles.lending import FOUND_W, Cards
from tests.doubles.waiting import eventually

MANY = Rate(burst=1000, per_s=1000)


class Serving:
    """A server in a thread. path: of its socket."""

    def __init__(self, folder: Path, bounds: Bounds) -> None:
        self.machine, self.path = Cards(2), folder / "helper.sock"
        state_dir = folder / "state"
        state_dir.mkdir(mode=0o700)
        self.service_state = ServiceState(
            inventories=self.machine.inventories(),
            policy=PolicyFiles(None, state_dir / "policy.d", os.geteuid()),
            state_dir=state_dir,
            bounds=bounds,
            new_guardian=partial(Guardian, sync=lambda fd: None, start_watch=Unwatched),
        )
        self.state_dir = state_dir
        self._open = contextlib.ExitStack()

    @contextmanager
    def running(self) -> Iterator["Serving"]:
        with listening.own(self.path, None) as listener:
            self.server = Server(self.service_state, listener, self.state_dir)
            thread = threading.Thread(target=self.server.serve)
            thread.start()
            try:
                yield self
            finally:
                self.server.stop()
                thread.join()
                self.server.close()
                self._open.close()

    def connect(self) -> Connection:
        made = connect(self.path)
        self._open.callback(made.close)
        return made

    def raw(self) -> socket.socket:
        made = self._open.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made.settimeout(20.0)
        made.connect(str(self.path))
        return made

    def lent(self, cap_w: float = 150.0) -> Connection:
        client = self.connect()
        client.ask(Op.LEND, Lent, devices=("gpu0",))
        client.ask(Op.SET, Done, watts=(cap_w,))
        return client

    def is_free(self) -> bool:
        """Whether nothing is lent, waited for: whoever has it is on its way out."""
        with contextlib.closing(self.connect()) as client:
            for _ in range(1000):
                if not client.ask(Op.STATUS, Status).leases:
                    return True
                threading.Event().wait(0.01)
        return False


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    from autocap.limits.helper import policy

    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "none.toml")
    with Serving(tmp_path, Bounds(messages=Rate(burst=1e6, per_s=1e6), connects=MANY, send_s=0.05)).running() as made:
        yield made


def closed(raw: socket.socket) -> bytes:
    """All that arrives until the helper closes."""
    data = b""
    while piece := raw.recv(65536):
        data += piece
    return data


def test_a_client_that_closes_has_its_limits_put_back(serving):
    client = serving.lent()
    assert serving.machine.limits_w()[0] == 150.0
    client.close()
    assert serving.is_free()
    assert serving.machine.limits_w()[0] == FOUND_W
    assert [name for name in os.listdir(serving.state_dir) if name.startswith("gpu")] == []


def test_a_client_that_breaks_off_in_the_middle_of_a_message_too(serving):
    raw = serving.raw()
    raw.sendall(b'{"v":1,"id":1,"op":"lend","devices":["gpu0"]}\n{"v":1,"id":2,"op":"set","watts":[150]}\n{"v":1,"id"')
    answers = raw.makefile("rb")
    assert [json.loads(answers.readline())["ok"] for _ in range(2)] == [True, True]
    raw.shutdown(socket.SHUT_WR)  # half-open: it only listens
    assert answers.read() == b""
    assert serving.is_free()
    assert serving.machine.limits_w()[0] == FOUND_W


def test_the_end_of_the_helper_puts_back_what_is_lent(tmp_path, monkeypatch):
    with Serving(tmp_path, Bounds()).running() as serving:
        serving.lent()
    assert serving.machine.limits_w()[0] == FOUND_W
    assert not serving.path.exists()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\0" * 5000, b"[" * 4096, b"x" * 100_000])
def test_nonsense_is_answered_once_and_the_connection_closed(serving, data):
    raw = serving.raw()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        raw.sendall(data + b"\n")
        (line,) = closed(raw).splitlines()
        assert json.loads(line)["error"]["code"] == "bad_message"
    assert serving.connect().hello.uid == os.getuid()


def test_messages_may_come_in_pieces_and_several_at_once(serving):
    raw = serving.raw()
    message = b'{"v":1,"id":1,"op":"hello"}\n'
    for place in range(len(message)):
        raw.send(message[place : place + 1])
    raw.send(message * 3)
    answers = raw.makefile("rb")
    assert [json.loads(answers.readline())["id"] for _ in range(4)] == [1] * 4


def test_who_does_not_read_its_answers_is_let_go_and_holds_up_nobody(serving):
    slow, other = serving.raw(), serving.connect()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    slow.sendall(b'{"v":1,"id":1,"op":"lend","devices":["gpu0"]}\n')
    while not other.ask(Op.STATUS, Status).leases:
        pass
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(20_000):
            slow.sendall(b'{"v":1,"id":1,"op":"hello"}\n')
            if not other.ask(Op.STATUS, Status).leases:
                break
    assert serving.is_free()
    assert other.ask(Op.HELLO, Hello).uid == os.getuid()


def test_what_a_client_has_sent_ahead_does_not_put_off_the_look_at_who_computes_there(serving):
    raw = serving.raw()
    answers = raw.makefile("rb")
    raw.sendall(b'{"v":1,"id":1,"op":"lend","devices":["gpu0"]}\n{"v":1,"id":1,"op":"set","watts":[150]}\n')
    assert [json.loads(answers.readline())["ok"] for _ in range(2)] == [True, True]
    serving.machine.cards["gpu0"].pids = None  # nobody can tell
    moments = itertools.count(time.monotonic(), 0.1)
    serving.service_state.now = lambda: next(moments)
    raw.sendall(b'{"v":1,"id":1,"op":"beat"}\n' * 130)  # all of it is read at once
    said = [json.loads(answers.readline()) for _ in range(130)]
    assert said[0]["ok"]
    assert said[-1]["error"]["code"] == "no_lease"
    assert serving.machine.limits_w()[0] == FOUND_W


def test_a_half_open_client_holds_up_nobody(serving):
    silent = [serving.raw() for _ in range(8)]
    for raw in silent[4:]:
        raw.send(b'{"v":1')
    assert serving.connect().ask(Op.STATUS, Status) == Status(leases=())


def test_a_user_has_no_more_connections_than_are_theirs(tmp_path):
    with Serving(tmp_path, Bounds(clients_of_uid=3)).running() as serving:
        clients = [serving.connect() for _ in range(3)]
        answer = json.loads(closed(serving.raw()))
        assert answer["error"]["code"] == Code.TOO_MANY
        assert answer["error"]["text"].startswith("3 connections of ")
        clients.pop().close()
        for _ in range(1000):
            with contextlib.suppress(Exception):
                serving.connect()
                break
            threading.Event().wait(0.01)
        else:
            pytest.fail("the one that was closed still counts")


def test_a_user_does_not_connect_too_often(tmp_path):
    with Serving(tmp_path, Bounds(connects=Rate(burst=2, per_s=0.001))).running() as serving:
        for _ in range(2):
            serving.connect().close()
        answer = json.loads(closed(serving.raw()))
        assert answer["error"]["code"] == Code.TOO_FAST
        assert "connects too often" in answer["error"]["text"]


def test_sixty_four_clients_are_served(tmp_path):
    with Serving(tmp_path, Bounds(clients_of_uid=64, connects=MANY)).running() as serving:
        clients = [serving.connect() for _ in range(64)]
        for client in clients:
            client.post(Request(id=0, op=Op.STATUS))
        assert [len(client.drain(20.0)) for client in clients] == [1] * 64
        with pytest.raises(Exception, match="64 connections"):
            serving.connect()
        for client in clients:
            client.close()


def test_a_refusal_is_an_answer_and_no_end(serving):
    client = serving.lent()
    with pytest.raises(Refused, match="cap 9000 W is above the 260 W maximum of gpu0 as it is lent"):
        client.ask(Op.SET, Done, watts=(9000.0,))
    assert client.ask(Op.SET, Done, watts=(160.0,)) == Done()


def test_who_connects_all_the_time_keeps_no_limit_from_being_put_back(serving):
    serving.connect().close()  # its first look is over
    (serving.state_dir / "gpu0.json").write_text("damaged: it is set aside once it is looked at")
    serving.service_state.unsettled.set()
    serving.service_state.now = lambda: time.monotonic() + 31.0
    for _ in range(500):
        serving.connect().close()
        if (serving.state_dir / "gpu0.json.damaged").exists():
            break
    else:
        pytest.fail("it is not looked at while somebody connects")


def test_limits_are_tried_again_also_after_the_state_directory_was_refused(serving):
    serving.connect().close()  # its first look is over
    serving.state_dir.chmod(0o777)
    serving.service_state.unsettled.set()
    serving.server._settle_again()
    assert serving.service_state.unsettled.is_set()
    serving.state_dir.chmod(0o700)
    serving.server._settle_again()
    assert not serving.service_state.unsettled.is_set()


def test_a_socket_is_for_its_owner_and_its_group_alone(tmp_path):
    path = tmp_path / "helper.sock"
    with listening.own(path, os.getgid()):
        assert path.stat().st_mode & 0o777 == 0o660
        with pytest.raises(NotListening, match="another helper listens at"), listening.own(path, None):
            pass
    assert not path.exists()


def test_what_a_killed_helper_left_is_replaced_and_what_is_no_socket_is_not(tmp_path):
    path = tmp_path / "helper.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with listening.own(path, None):
        pass
    path.write_text("somebody's file")
    with pytest.raises(NotListening, match="is no socket"), listening.own(path, None):
        pass
    assert path.read_text() == "somebody's file"
    with pytest.raises(NotListening, match="no socket can be had at"), listening.own(tmp_path / "no" / "x", None):
        pass


def test_roots_socket_is_nowhere_where_others_could_put_something_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tmp_path.chmod(0o777)
    with pytest.raises(NotListening, match=r"could be replaced, as .* can write"), listening.own(tmp_path / "x", None):
        pass


def test_systemd_hands_its_socket_to_one_process_alone(monkeypatch):
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x"}
    assert listening.handed_over(environ) is None
    assert environ == {}
    with pytest.raises(NotListening, match="systemd hands 2 sockets over"):
        listening.handed_over({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})


def test_a_connection_that_was_ended_says_so(serving):
    client = serving.connect()
    serving.server.stop()
    with contextlib.suppress(PeerLost):
        while True:  # what was asked before it noticed is answered
            client.ask(Op.STATUS, Status)
    with pytest.raises(PeerLost, match="ended the connection"):
        client.ask(Op.STATUS, Status)


def test_a_client_that_finds_the_queue_full_tries_again(tmp_path, monkeypatch):
    path = tmp_path / "full.sock"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):  # one more than its length is what the kernel takes
            crowd = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            crowd.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                crowd.connect(str(path))
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:  # the server has come to them
                stack.enter_context(listener.accept()[0])

        monkeypatch.setattr(stream.time, "sleep", pause)
        stack.enter_context(dialled(path, 5.0))
        assert len(pauses) == 3
        with pytest.raises(SetterUnavailable, match="that none of our tries got through"):
            connect(path, within_s=0.0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_three_users_with_idle_connections_keep_out_neither_a_fourth_nor_root(tmp_path):
    place = Path(tempfile.mkdtemp(prefix="autocap-crowd-"))
    place.chmod(0o755)
    bounds = Bounds(clients=30, clients_of_uid=12, kept_places=4, connects=MANY)
    with Serving(place, bounds).running() as serving:
        place.chmod(0o755)
        os.chown(serving.path, 0, people.GROUP)
        lessee = serving.lent()
        crowd = [Crowd(uid, serving.path, 12) for uid in range(people.USER, people.USER + 3)]
        try:
            assert [one.ready() for one in crowd] == [True] * 3
            fourth = Crowd(people.USER + 3, serving.path, 1, ask=b'{"v":1,"id":1,"op":"hello"}\n')
            crowd.append(fourth)
            assert fourth.ready()
            assert len(serving.connect().ask(Op.STATUS, Status).leases) == 1
            assert lessee.ask(Op.SET, Done, watts=(155.0,)) == Done()
        finally:
            for one in crowd:
                one.close()
    shutil.rmtree(place)


class Scene:
    """Something to look at; each look waits until it is let go on."""

    def __init__(self) -> None:
        self.state, self.looks, self.at_once, self.most_at_once = "old", 0, 0, 0
        self.fails = False
        self._goes_on = threading.Semaphore(0)

    def look(self) -> str:
        self.looks, self.at_once = self.looks + 1, self.at_once + 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        seen = self.state
        assert self._goes_on.acquire(timeout=60.0)
        self.at_once -= 1
        if self.fails:
            raise DeviceError("lost")
        return seen

    def go_on(self, looks: int = 1) -> None:
        self._goes_on.release(looks)


class Asking(threading.Thread):
    def __init__(self, ask: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.given: str | None = None
        self.start()

    def run(self) -> None:
        try:
            self.given = self._ask()
        except DeviceError as error:
            self.given = str(error)


def waiting(shared: Coalesced[str]) -> int:
    return len(shared._turn._waiters)  # type: ignore[attr-defined]


def test_who_comes_during_a_look_is_given_what_the_next_one_saw():
    scene = Scene()
    shared = Coalesced(scene.look)
    first = Asking(shared)
    eventually(lambda: scene.looks == 1)
    scene.state = "new"
    later = [Asking(shared) for _ in range(5)]
    eventually(lambda: waiting(shared) == 5)
    scene.go_on(2)
    for one in (first, *later):
        one.join(60.0)
    assert [one.given for one in (first, *later)] == ["old", *["new"] * 5]
    assert (scene.looks, scene.most_at_once) == (2, 1)


def test_one_after_the_other_each_looks_anew():
    scene = Scene()
    shared = Coalesced(scene.look)
    scene.go_on(2)
    assert shared() == "old"
    scene.state = "new"
    assert shared() == "new"


def test_a_look_that_fails_fails_for_whoever_looked_and_the_others_look_again():
    scene = Scene()
    shared = Coalesced(scene.look)
    scene.fails = True
    first = Asking(shared)
    eventually(lambda: scene.looks == 1)
    later = [Asking(shared) for _ in range(2)]
    eventually(lambda: waiting(shared) == 2)
    scene.go_on()
    first.join(60.0)
    assert first.given == "lost"
    scene.fails = False
    scene.go_on()
    for one in later:
        one.join(60.0)
    assert [one.given for one in later] == ["old", "old"]
    scene.go_on()
    scene.fails = True
    with pytest.raises(DeviceError):
        shared()
