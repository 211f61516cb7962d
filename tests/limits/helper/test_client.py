"""A session's guardian whose work the helper does: what it asks for, and what it makes of every answer, and of none."""

import errno
import grp
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autocap.devices.base import LimitVerifier
from autocap.errors import (
    DeviceLocked,
    GuardError,
    LeaseEnded,
    LimitClamped,
    LimitNotEnforced,
    LimitNotPermitted,
    LimitOvertaken,
    LimitRefused,
    LimitWithheld,
    SetterAbsent,
    SetterUnavailable,
)
from autocap.limits import ForeignLimit
from autocap.limits.helper import client, connection
from autocap.limits.helper.client import RemoteGuardian
from autocap.limits.helper.connection import offers_at
from autocap.limits.helper.protocol import Answer, Beaten, Code, Lent, Op, Refusal, Request
from autocap.records import CapRange, GpuInfo
from tests.doubles.lent_node import needs_two_users
from tests.doubles.scripted_helper import Hangup, ScriptedHelper, scripted
from tests.doubles.waiting import eventually

GPU = GpuInfo(index=0, uuid="gpu", name="GPU", cap_range=CapRange(min_w=100.0, max_w=300.0, default_w=300.0))
Script = Callable[[Request], Answer | Refusal | bytes | None]


@dataclass
class Reader(LimitVerifier):
    """Reads the limit of the one device. verdict: what verifying it raises."""

    limit_w: float = 250.0
    verdict: Exception | None = None
    verified: list[float] = field(default_factory=list)

    def requested_w(self, uuid: str) -> float | None:
        return self.limit_w

    def verify(self, uuid: str, cap_w: float) -> None:
        self.verified.append(cap_w)
        if self.verdict is not None:
            raise self.verdict


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[ScriptedHelper]:
    with scripted(ScriptedHelper(tmp_path / "helper.sock")) as made:
        yield made


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def guardian(helper: ScriptedHelper, reader: Reader) -> RemoteGuardian:
    connect = partial(connection.connect, helper.path)
    return RemoteGuardian(gpus=[GPU], verifier=reader, connect=connect, back_within_s=0.3, pause=lambda s: None)


def at(op: Op, *answers: Answer | Refusal | bytes | type[Hangup]) -> Script:
    """Answers one after the other to requests of a kind, then the usual one."""
    left = list(answers)

    def script(request: Request) -> Answer | Refusal | bytes | None:
        if request.op is not op or not left:
            return None
        answer = left.pop(0)
        if isinstance(answer, type):
            raise answer
        return answer

    return script


def test_a_session_asks_for_what_it_does_and_for_no_more(helper, guardian, reader) -> None:
    with guardian:
        assert guardian.original_w == (250.0,)
        guardian.rehearse()
        guardian.set_caps([200.0])
        assert guardian.beat() is False
        (restored,) = guardian.restore()
        assert (restored.restored, restored.final_w) == (True, 250.0)
        guardian.set_caps([210.0])
    assert helper.ops() == ["lend", "rehearse", "set", "restore", "set", "give_back"]
    assert [request.watts for request in helper.asked if request.op is Op.SET] == [(200.0,), (210.0,)]
    assert helper.asked[0].devices == ("gpu",)
    assert reader.verified == [250.0, 200.0, 210.0]
    assert helper.connections == 1


REFUSALS = [
    (Refusal(code=Code.REFUSED, text="no", kind="refused"), LimitRefused),
    (Refusal(code=Code.REFUSED, text="no", kind="not_enforced", found_w=190.0), LimitNotEnforced),
    (Refusal(code=Code.REFUSED, text="no", kind="overtaken", found_w=220.0), LimitOvertaken),
    (Refusal(code=Code.FOREIGN, text="no", uuid="gpu", expected_w=200.0, found_w=220.0), ForeignLimit),
    (Refusal(code=Code.NOT_ALLOWED, text="no"), LimitWithheld),
    (Refusal(code=Code.UNKNOWN_DEVICE, text="no"), LimitNotPermitted),
    (Refusal(code=Code.IN_USE, text="no", uid=7, pid=8), DeviceLocked),
    (Refusal(code=Code.GUARD, text="no"), GuardError),
    (Refusal(code=Code.NO_LEASE, text="no"), LeaseEnded),
    (Refusal(code=Code.BAD_MESSAGE, text="no"), GuardError),
]


@pytest.mark.parametrize(("refusal", "error"), REFUSALS, ids=[f"{one.code}-{one.kind}" for one, _ in REFUSALS])
def test_a_refusal_is_what_setting_without_a_helper_would_have_raised(helper, guardian, refusal, error) -> None:
    with guardian:
        helper.script = at(Op.SET, refusal)
        with pytest.raises(error) as raised:
            guardian.set_caps([200.0])
        assert type(raised.value) is error
        if error is ForeignLimit:
            assert (raised.value.uuid, raised.value.expected_w, raised.value.found_w) == ("gpu", 200.0, 220.0)


def test_who_is_lent_nothing_is_told_why_and_holds_no_connection(helper, guardian) -> None:
    helper.script = at(Op.LEND, Refusal(code=Code.IN_USE, text="gpu is lent to ada (PID 7)", uid=1000, pid=7))
    with pytest.raises(DeviceLocked, match=r"lent to ada \(PID 7\)"), guardian:
        pass
    eventually(lambda: helper.open == 0)


def test_limits_that_were_put_back_are_told_by_the_next_beat_once_whatever_is_asked_before(helper, guardian) -> None:
    with guardian:
        helper.script = at(Op.BEAT, Beaten(put_back=True, notes=("it heard nothing for 1.6 s",)))
        guardian.set_caps([200.0])
        assert guardian.beat() is True
        assert guardian.beat() is False
    assert guardian.notes == ("it heard nothing for 1.6 s",)


def test_a_lease_that_has_ended_can_be_had_again_and_meanwhile_nothing_of_ours_is_to_be_put_back(
    helper, guardian, reader
) -> None:
    with guardian:
        helper.script = at(Op.BEAT, Refusal(code=Code.NO_LEASE, text="the lease has ended: process 7 computes on it"))
        with pytest.raises(LeaseEnded, match="process 7 computes on it"):
            guardian.beat()
        reader.limit_w = 180.0  # of whoever has it by now
        assert [(one.final_w, one.restored, one.failure) for one in guardian.restore()] == [(180.0, None, None)]
        helper.script = at(Op.LEND, Refusal(code=Code.IN_USE, text="gpu is lent to ada (PID 7)", uid=1000, pid=7))
        with pytest.raises(DeviceLocked, match=r"lent to ada \(PID 7\)"):
            guardian.renew()
        guardian.renew()
        guardian.set_caps([200.0])
        assert guardian.beat() is False


def test_a_lease_of_a_device_whose_limit_is_another_by_now_is_none(helper, guardian) -> None:
    with guardian:
        helper.script = at(Op.BEAT, Refusal(code=Code.NO_LEASE, text="the lease has ended"))
        with pytest.raises(LeaseEnded):
            guardian.beat()
        helper.script = at(Op.LEND, Lent(original_w=(240.0,), min_w=(100.0,), max_w=(240.0,)))
        with pytest.raises(GuardError, match="finds 240 W where it found 250 W before: somebody else has changed it"):
            guardian.renew()


def test_a_lease_that_the_helper_has_ended_ends_the_tuning_with_its_reason_and_is_read_back(helper, guardian) -> None:
    with guardian:
        helper.script = at(Op.BEAT, Refusal(code=Code.NO_LEASE, text="the lease has ended: process 7 computes on it"))
        with pytest.raises(GuardError, match="process 7 computes on it"):
            guardian.beat()
        assert guardian.beat() is False
        with pytest.raises(GuardError, match="the helper is gone, so no cap is set any more"):
            guardian.set_caps([200.0])
        (restored,) = guardian.restore()
        assert restored.restored


def test_a_helper_that_was_restarted_lends_again_and_the_caps_are_to_be_set_again(helper, guardian) -> None:
    with guardian:
        guardian.set_caps([200.0])
        helper.script = at(Op.BEAT, Hangup)
        assert guardian.beat() is True
        assert guardian.beat() is False
        guardian.set_caps([200.0])
    assert guardian.notes == ("the helper has ended the connection, and is back; the limits were put back meanwhile",)
    assert helper.ops() == ["lend", "set", "lend", "set", "give_back"]


@pytest.mark.parametrize(
    ("op", "beats", "verdict"),
    [(Op.SET, 0, None), (Op.BEAT, 1, None), (Op.BEAT, 2, LimitOvertaken("overtaken", 250.0))],
    ids=["in the middle of a set", "before it was verified", "its watchdog's limit is not somebody else's"],
)
def test_a_helper_that_is_lost_while_a_cap_is_set_is_asked_again(
    helper, guardian, reader, monkeypatch, op, beats, verdict
) -> None:
    monkeypatch.setattr(client, "_FRESH_S", -1.0)
    with guardian:
        reader.verdict = verdict
        helper.script = at(op, *[Beaten(put_back=False)] * beats, Hangup)
        guardian.set_caps([200.0])
        assert guardian.beat() is True
    assert verdict is not None or reader.verified == [200.0]
    assert helper.ops() == ["lend", "set", "lend", "set", "give_back"]


def test_after_a_restart_that_finds_another_limit_nothing_is_set_any_more(helper, guardian) -> None:
    with guardian:
        helper.found_w = (220.0,)
        helper.script = at(Op.BEAT, Hangup)
        with pytest.raises(GuardError, match="finds 220 W where it found 250 W before: somebody else has changed it"):
            guardian.beat()
        assert guardian.beat() is False


@pytest.mark.slow
def test_a_helper_that_does_not_come_back_ends_the_tuning_and_its_limits_are_read(helper, guardian, reader) -> None:
    with guardian:
        helper.script = at(Op.BEAT, Hangup)
        helper.path.unlink()
        with pytest.raises(GuardError, match=r"ended the connection, and is not back within 0.3 s \(no helper serves"):
            guardian.beat()
        assert [one.restored for one in guardian.restore()] == [True]
        reader.limit_w = 200.0
        (left,) = guardian.restore()
        assert not left.restored
        assert left.note == (
            "gpu: who set it for us is gone, and the limit found on arrival is not back yet; it is put back by "
            "`autocap restore`, or when the helper is started again"
        )


def test_a_helper_that_says_nothing_any_more_is_lost(helper, guardian) -> None:
    helper.hang_s = 0.1
    with guardian:
        helper.silent = True
        assert guardian.beat() is False
        helper.path.unlink()
        time.sleep(0.15)
        with pytest.raises(GuardError, match=r"the helper has not answered for 0.1 s, and is not back within 0.3 s"):
            guardian.beat()


def test_a_beat_that_is_not_answered_is_not_waited_for(helper, guardian) -> None:
    with guardian:
        helper.silent = True
        began_s = time.process_time()
        assert guardian.beat() is False
        assert time.process_time() - began_s < 0.1
        helper.silent = False


def test_a_set_that_is_too_early_is_asked_for_again_and_beats_go_on(helper, guardian, monkeypatch) -> None:
    monkeypatch.setattr(client, "_FRESH_S", -1.0)  # as nobody really waits here
    with guardian:
        early = Refusal(code=Code.TOO_FAST, text="wait 0.90 s", wait_s=0.9)
        helper.script = at(Op.SET, early, early)
        guardian.set_caps([200.0])
        assert helper.beats >= 3
        helper.script = at(Op.SET, Refusal(code=Code.TOO_FAST, text="wait 60 s", wait_s=60.0))
        with pytest.raises(LimitRefused, match="the helper lets no limit be set so often: wait 60 s"):
            guardian.set_caps([200.0])


def test_a_lease_that_is_asked_for_too_early_is_asked_for_again(helper, guardian) -> None:
    helper.script = at(Op.LEND, Refusal(code=Code.TOO_FAST, text="wait 0.05 s", wait_s=0.05))
    with guardian:
        assert guardian.original_w == (250.0,)


def test_a_connection_that_comes_too_early_is_made_again(helper) -> None:
    early = b'{"v":1,"id":null,"ok":false,"error":{"code":"too_fast","text":"wait 0.05 s","wait_s":0.05}}\n'
    helper.script = at(Op.HELLO, early)
    with pytest.raises(SetterUnavailable, match="tells of no device"):  # which this one never does
        offers_at(helper.path)
    assert helper.connections == 2


@pytest.mark.parametrize(
    ("verdict", "cap_w", "error"),
    [
        (LimitNotEnforced("less is enforced", 190.0), 200.0, LimitNotEnforced),
        (LimitNotEnforced("less is enforced", 190.0), 250.0, None),  # nor was it when we came
        (LimitOvertaken("somebody was faster", 222.222), 200.0, ForeignLimit),
        (LimitOvertaken("a moment later", 175.0), 190.0, None),  # by a card that takes steps: the helper finds out
        (LimitClamped("at once", 175.0), 190.0, None),
        (LimitClamped("at once", 140.0), 190.0, LimitClamped),
        (LimitRefused("still enforced"), 200.0, LimitRefused),
    ],
)
def test_whether_a_cap_holds_is_seen_by_reading_it(guardian, reader, verdict, cap_w, error) -> None:
    with guardian:
        reader.verdict = verdict
        if error is None:
            guardian.set_caps([cap_w])
            return
        with pytest.raises(error):
            guardian.set_caps([cap_w])


def test_a_cap_that_was_put_back_before_it_could_be_read_is_no_fault_of_the_device(
    helper, guardian, reader, monkeypatch
) -> None:
    monkeypatch.setattr(client, "_FRESH_S", -1.0)
    with guardian:
        reader.verdict = LimitRefused("cap 200 W was clamped")
        helper.script = at(Op.BEAT, Beaten(put_back=False), Beaten(put_back=False), Beaten(put_back=True))
        guardian.set_caps([200.0])
        assert guardian.beat() is True


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"no JSON\n", b'{"v":2,"id":1,"ok":true}\n', b'{"v":1,"id":99,"ok":true,"put_back":false,"notes":[]}\n'],
)
def test_what_is_no_answer_ends_the_connection_and_nothing_else(helper, guardian, line) -> None:
    with guardian:
        helper.script = at(Op.BEAT, line)
        assert guardian.beat() is True  # lent again
        guardian.set_caps([200.0])


def test_a_lease_of_other_devices_than_were_asked_for_is_none(helper, guardian) -> None:
    helper.script = at(Op.LEND, Lent(original_w=(), min_w=(), max_w=()))
    with pytest.raises(GuardError, match="answered something else than it was asked"), guardian:
        pass


def test_a_forked_child_does_not_keep_the_lease_beyond_its_parents_end(helper, guardian) -> None:
    end, others_end = os.pipe()
    with guardian:
        child = os.fork()
        if child == 0:
            os.close(others_end)
            os.read(end, 1)
            os._exit(0)
        guardian._drop()  # as the kernel does when we die
        eventually(lambda: helper.open == 0)
        os.close(others_end)
        os.waitpid(child, 0)
    os.close(end)


def test_where_no_helper_is_the_command_that_installs_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetterAbsent, match=r"no helper serves .*; .* `sudo .*autocap helper install`"):
        offers_at(tmp_path / "helper.sock")


def test_where_nobody_listens_any_more_the_command_that_restarts_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "helper.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    with pytest.raises(SetterUnavailable, match=r"nobody listens .* `sudo systemctl restart autocap-helper\.socket`"):
        offers_at(path)


@needs_two_users
def test_who_is_not_in_the_group_is_told_how_to_come_into_it() -> None:
    with TemporaryDirectory() as folder, scripted(ScriptedHelper(path := Path(folder) / "helper.sock")):
        Path(folder).chmod(0o755)
        path.chmod(0o660)
        os.chown(path, 0, grp.getgrnam("daemon").gr_gid)
        try:
            os.seteuid(65534)
            with pytest.raises(SetterUnavailable, match=r"is for the group daemon; `sudo usermod -aG daemon \S+`, and"):
                offers_at(path)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("group", ["root", "disk"])
def test_nobody_is_advised_to_join_a_group_whose_members_may_do_more(tmp_path, monkeypatch, group) -> None:
    monkeypatch.setattr(connection, "_group_of", lambda path: group)
    said = connection._unreachable(tmp_path / "helper.sock", PermissionError(errno.EACCES, "Permission denied"))
    assert f"is for {group} alone: this helper serves no group of users" in said
    assert "usermod" not in said


def test_a_helper_that_takes_no_more_clients_says_so(helper) -> None:
    helper.script = at(Op.HELLO, b'{"v":1,"id":null,"ok":false,"error":{"code":"too_many","text":"128 are served"}}\n')
    with pytest.raises(SetterUnavailable, match="lends nothing: 128 are served"):
        offers_at(helper.path)
