"""Clients of a budget's manager over a socket, with the enforcer in virtual time: one thread speaks for both ends."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

from autocap.devices.nvml.device import NvmlDevice
from autocap.errors import DeviceLocked, GuardError, LimitNotPermitted, LimitRefused, PeerLost
from autocap.job.processes import own_identity
from autocap.limits.times import HANG_S
from autocap.plugins.fleet.budget import protocol
from autocap.plugins.fleet.budget.client import BudgetGuardian
from autocap.plugins.fleet.budget.connection import BudgetConnection, NoBudget, call
from autocap.plugins.fleet.manager.tuner_server import TunerServer
from autocap.wire import listening
from bench.helper import people
from tests.doubles.crowd import Crowd
from tests.doubles.waiting import eventually
from tests.plugins.fleet.manager.stage import Stage, stage

BAD = protocol.PublishCurve(
    caps_w=(200.0, 100.0), slowdown=(0.0, 0.0), energy=(1.0, 1.0), slowdown_stderr=(0.0, 0.0), energy_stderr=(0.0, 0.0)
)  # no curve


@dataclass
class Asked:
    """What was asked of the budget itself."""

    stage: Stage
    asked_for: list[tuple[object, ...]] = field(default_factory=list)

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        self.asked_for.append((watts, policy))
        self.stage.enforcer.ledger.budget(self.stage.now_s, watts or 0.0)
        self.stage.enforcer.act(self.stage.now_s)

    def end(self, why: str) -> None:
        self.asked_for.append(("end",))

    def standing(self) -> protocol.Standing:
        return protocol.Standing(
            budget_w=1.0, policy="fair", reserved_w=0.0, room_w=0.0, power_w=None, short_w=0.0, pause=(), jobs=(),
            free=(), record="", pid=1,
        )  # fmt: skip


@dataclass
class Meeting:
    """A server of tuners that is served in a thread of its own while clients speak."""

    stage: Stage
    tuner_server: TunerServer
    asked: Asked
    path: Path
    thread: Thread = field(init=False)
    _calls: list[BudgetConnection] = field(default_factory=list)
    _over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.thread = Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while not self._over.is_set():
            poll = select.poll()
            self.tuner_server.watch(poll)
            self.tuner_server.serve({fd for fd, _ in poll.poll(10)})
            self.tuner_server.pass_time()

    def caller(self) -> BudgetConnection:
        """A connection, closed at the end."""
        self._calls.append(call([self.path]))
        return self._calls[-1]

    def close(self) -> None:
        """All connections are closed on return."""
        if not self._over.is_set():
            self._over.set()
            self.thread.join()
            self.tuner_server.close()
            for one in self._calls:
                one.close()


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Meeting]:
    with stage(tmp_path, 620.0) as there, listening.own(tmp_path / "socket", None) as listener:
        asked = Asked(there)
        tuner_server = TunerServer(listener, there.enforcer, asked, lambda: there.now_s)
        there.enforcer.tell = tuner_server.tell
        there.run(3.0)  # what is free is at its lowest cap by then
        made = Meeting(there, tuner_server, asked, tmp_path / "socket")
        try:
            yield made
        finally:
            made.close()


def joining(meeting: Meeting, *gpus: int) -> protocol.Join:
    return protocol.Join(devices=meeting.stage.uuids(*gpus), pid=os.getpid())


@pytest.mark.parametrize(
    ("joins", "request_", "error", "complaint"),
    [
        (False, protocol.Set(watts=(120.0,)), GuardError, "tunes no job"),
        (False, protocol.Beat(), GuardError, "tunes no job"),
        (False, protocol.Join(devices=("GPU-x",), pid=os.getpid()), LimitNotPermitted, "does not have GPU-x"),
        (True, protocol.Set(watts=(20.0, 150.0)), LimitRefused, "below the 100 W minimum"),
        (True, protocol.Set(watts=(120.0,)), LimitRefused, "1 caps for 2"),
        (True, BAD, GuardError, "ascend"),
    ],
)
def test_what_is_not_to_be_had_is_refused(
    meeting: Meeting, joins: bool, request_: protocol.Request, error: type[Exception], complaint: str
) -> None:
    there = meeting.caller()
    if joins:
        there.ask(joining(meeting, 0, 1), protocol.Joined)
    with pytest.raises(error, match=complaint):
        there.ask(request_, protocol.Done)
    assert isinstance(there.ask(protocol.Ask(), protocol.Standing), protocol.Standing)  # the connection goes on


def test_a_device_is_lent_once(meeting: Meeting) -> None:
    first, second = meeting.caller(), meeting.caller()
    first.ask(joining(meeting, 0), protocol.Joined)
    with pytest.raises(DeviceLocked, match="a tuner has"):
        second.ask(joining(meeting, 0, 1), protocol.Joined)


def test_the_budget_is_changed_and_ended_by_word(meeting: Meeting) -> None:
    there = meeting.caller()
    there.ask(protocol.Change(watts=700.0, policy="energy"), protocol.Done)
    there.ask(protocol.End(), protocol.Done)
    assert meeting.asked.asked_for == [(700.0, "energy"), ("end",)]


def test_what_is_no_message_ends_the_connection_and_no_other(meeting: Meeting) -> None:
    other = meeting.caller()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(meeting.path))
        raw.sendall(b"what is this?\n")
        said = b""
        while piece := raw.recv(4096):
            said += piece
    assert b"not understood" in said
    assert isinstance(other.ask(protocol.Ask(), protocol.Standing), protocol.Standing)


def test_where_nobody_listens_there_is_no_budget(tmp_path: Path) -> None:
    with pytest.raises(NoBudget, match="no budget runs here"):
        call([tmp_path / "socket"])


# The session's side.


def guardian(meeting: Meeting, *gpus: int) -> BudgetGuardian:
    device: NvmlDevice = meeting.stage.stand.device(gpus=gpus)
    return BudgetGuardian(gpus=device.gpus, path=meeting.path).of(own_identity())


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")
def test_idle_connections_keep_out_neither_the_owner_nor_another_member(meeting: Meeting) -> None:
    for folder in (meeting.path.parent, *meeting.path.parent.parents[:-1]):
        folder.chmod(folder.stat().st_mode | 0o011)
    os.chown(meeting.path, 0, people.GROUP)
    tuner = meeting.caller()
    tuner.ask(joining(meeting, 0), protocol.Joined)
    crowd = []
    try:
        for number in range(3):
            crowd.append(Crowd(people.USER + number, meeting.path, 96))
            assert crowd[-1].ready()
        crowd.append(Crowd(people.USER + 3, meeting.path, 1, ask=b'{"v":1,"id":1,"op":"ask"}\n'))
        assert crowd[-1].ready()
        assert isinstance(meeting.caller().ask(protocol.Ask(), protocol.Standing), protocol.Standing)
        tuner.ask(protocol.Set(watts=(110.0,)), protocol.Done)
    finally:
        for one in crowd:
            one.close()


@pytest.mark.slow
def test_who_says_too_much_waits(meeting: Meeting) -> None:
    """In virtual time: while it stands, no more is answered than may be said at once."""
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20.0)
        raw.connect(str(meeting.path))
        raw.sendall(b"".join(protocol.encode_request(number, protocol.Ask()) for number in range(500)))
        answers = raw.makefile("rb")
        assert all(b'"is":"standing"' in answers.readline() for _ in range(300))
        eventually(lambda: any(client.put_off for client in list(meeting.tuner_server._clients.values())))
        meeting.stage.stand.advance(1.0)
        assert all(b'"is":"standing"' in answers.readline() for _ in range(200))


def test_a_connection_that_is_of_no_use_is_closed(meeting: Meeting) -> None:
    tuner = meeting.caller()
    tuner.ask(joining(meeting, 0), protocol.Joined)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20.0)
        raw.connect(str(meeting.path))
        raw.sendall(protocol.encode_request(1, protocol.Ask()))
        assert raw.recv(4096)
        meeting.stage.stand.advance(61.0)
        assert raw.recv(4096) == b""
    tuner.ask(protocol.Set(watts=(110.0,)), protocol.Done)


@pytest.mark.slow
def test_a_guardian_begins_with_the_limits_found_below_its_ceiling_and_hears_at_a_beat_that_it_falls(
    meeting: Meeting,
) -> None:
    with guardian(meeting, 0, 1) as held:
        assert held.original_w == (260.0, 260.0)
        assert held.ceiling_w is not None
        assert meeting.stage.limits_w()[:2] == [held.ceiling_w] * 2
        before_w = held.ceiling_w
        meeting.caller().ask(protocol.Change(watts=500.0), protocol.Done)
        held.beat()
        assert held.ceiling_w < before_w
        assert meeting.stage.limits_w()[:2] == [held.ceiling_w] * 2
        held.set_caps((115.0, 115.0))
        assert not held.beat()
        assert meeting.stage.limits_w()[:2] == [115.0, 115.0]
        left = held.restore()
        assert [one.final_w for one in left] == [held.ceiling_w] * 2
        assert [(one.restored, one.note) for one in left] == [(None, None)] * 2


@pytest.mark.slow
def test_a_silent_tuner_hears_that_others_caps_were_set(meeting: Meeting) -> None:
    with guardian(meeting, 0) as held:
        held.set_caps((110.0,))
        meeting.stage.stand.advance(HANG_S)
        eventually(lambda: meeting.stage.limits_w()[0] == held.ceiling_w)
        eventually(held.beat)
        assert not held.beat()


def test_a_manager_that_is_gone_ends_the_tuning(meeting: Meeting) -> None:
    with guardian(meeting, 0) as held:
        meeting.close()
        with pytest.raises(GuardError, match="or by its watchdog"):
            held.beat()
        with pytest.raises(GuardError):
            held.set_caps((100.0,))


@pytest.fixture
def called(tmp_path: Path) -> Iterator[tuple[BudgetConnection, socket.socket]]:
    """A call, and its other end."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        there = BudgetConnection(tmp_path / "socket")
        with closing(there), listener.accept()[0] as other:
            yield there, other


def test_a_connection_that_says_nonsense_is_lost(called: tuple[BudgetConnection, socket.socket]) -> None:
    there, other = called
    there.post(protocol.Beat())
    other.sendall(b'{"v":1,"id":9,"is":"done"}\n')
    with pytest.raises(PeerLost, match="another question"):
        there.drain(5.0)


def test_of_two_ceilings_the_later_one_counts(called: tuple[BudgetConnection, socket.socket]) -> None:
    there, other = called
    there.post(protocol.Beat())
    # The beat was answered before the ceiling fell; both lie there when they are read.
    other.sendall(
        protocol.encode_answer(1, protocol.CeilingChanged(ceiling_w=260.0))
        + protocol.encode_answer(None, protocol.CeilingChanged(ceiling_w=100.0))
    )
    there.drain(5.0)
    assert [told.ceiling_w for told in there.told] == [260.0, 100.0]


def test_a_tuner_whose_connection_has_ended_has_its_job_no_more(meeting: Meeting) -> None:
    there = meeting.caller()
    there.ask(joining(meeting, 0), protocol.Joined)
    there.ask(protocol.Set(watts=(120.0,)), protocol.Done)
    allocation = meeting.stage.allocation(0)
    there.close()
    # Another thread takes it back, and a moment later sets what it leaves.
    eventually(lambda: not allocation.tuned and meeting.stage.limits_w()[0] == allocation.ceiling_w > 120.0)
