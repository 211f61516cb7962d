"""Root ends a lease of the helper, and nobody else does; in virtual time, but for the thread of who waits for that."""

import os
import threading

import pytest

from autocap.errors import LeaseEnded
from autocap.limits.helper import conversation
from autocap.limits.helper.connection import error_of
from autocap.limits.helper.protocol import Answer, Beaten, Code, Ended, LeasesEnded, Lent, Op, Refusal
from autocap.wire.who import HERE, Peer
from tests.doubles.lending import ALICE, BOB, FOUND_W, Client
from tests.doubles.waiting import eventually
from tests.limits.helper.test_conversation import capped

ROOT_PID = 77
SOON_S = 0.8  # a lease that is to end does at its next beat to the watchdog


def of(parlour, uid, namespace=HERE):
    return Client(parlour.house, parlour.clock, Peer(uid=uid, pid=ROOT_PID, groups=(), namespace=namespace))


def ended(answer: Answer | Refusal) -> Ended:
    assert isinstance(answer, LeasesEnded), answer
    (one,) = answer.ended
    return one


@pytest.fixture
def at_once(monkeypatch):
    """Nobody waits for a lease to be over."""
    monkeypatch.setattr(conversation, "LEASES_END_S", 0.0)


def test_root_ends_a_lease_and_is_told_whose_it_was_and_what_became_of_its_limits(parlour):
    member = parlour.lent("gpu1", "gpu0")
    member.ask(Op.SET, watts=(150.0, 160.0))
    answers: list[Answer | Refusal] = []
    root = of(parlour, 0)
    asking = threading.Thread(target=lambda: answers.append(root.ask(Op.END_LEASES, devices=("gpu0",))))
    asking.start()
    eventually(lambda: parlour.house.loans._by_uuid["gpu0"].to_end is not None)
    assert parlour.machine.limits_w() == [160.0, 150.0]  # its own thread puts them back
    member.wait(SOON_S)
    assert parlour.machine.limits_w() == [FOUND_W] * 2
    asking.join()
    one = ended(answers[0])
    assert (one.lease.uid, one.lease.pid, one.lease.devices) == (ALICE, 1001, ("gpu1", "gpu0"))
    assert one.lease.caps_w == (150.0, 160.0)
    assert [(limit.uuid, limit.final_w, limit.restored) for limit in one.restored] == [
        ("gpu1", FOUND_W, True), ("gpu0", FOUND_W, True)
    ]  # fmt: skip
    assert not any(name.startswith("gpu") for name in os.listdir(parlour.state_dir))


def test_the_client_is_told_so_in_the_words_of_version_1_and_may_have_the_devices_lent_again(parlour, at_once):
    member = capped(parlour)
    assert ended(of(parlour, 0).ask(Op.END_LEASES, devices=("gpu0",))).restored is None  # it is not over yet
    answer = member.ask(Op.SET, watts=(120.0,))  # before its thread has looked
    assert (answer.code, answer.text) == (Code.NO_LEASE, f"the lease has ended: root (PID {ROOT_PID}) has ended it")
    assert isinstance(error_of(answer), LeaseEnded)
    assert parlour.machine.cards["gpu0"].sets == [150.0, FOUND_W]
    assert member.ask(Op.BEAT) == answer
    assert isinstance(member.ask(Op.LEND, devices=("gpu0",)), Lent)
    assert member.beat_for(20.0) == [Beaten(put_back=False)] * 40


def test_a_lease_that_begins_or_is_silent_at_that_moment_ends_as_well(parlour, at_once):
    silent, fresh = parlour.lent("gpu0"), parlour.lent("gpu1", uid=BOB)
    silent.ask(Op.SET, watts=(150.0,))
    silent.wait(3.0)
    assert parlour.machine.limits_w()[0] == FOUND_W  # and may be set again
    answer = of(parlour, 0).ask(Op.END_LEASES, devices=("gpu1", "gpu0", "gpu9"))
    assert {one.lease.uid for one in answer.ended} == {ALICE, BOB}
    silent.wait(1.0)
    fresh.wait(SOON_S)
    assert parlour.house.loans.all() == ()


def test_what_is_lent_of_other_devices_stays(parlour, at_once):
    member, other = parlour.lent("gpu0"), parlour.lent("gpu1", uid=BOB)
    other.ask(Op.SET, watts=(170.0,))
    assert ended(of(parlour, 0).ask(Op.END_LEASES, devices=("gpu0",))).lease.uid == ALICE
    member.wait(SOON_S)
    assert other.beat_for(5.0) == [Beaten(put_back=False)] * 10
    assert parlour.machine.limits_w() == [FOUND_W, 170.0]
    assert [lease.uid for lease in parlour.house.loans.all()] == [BOB]


@pytest.mark.parametrize(("uid", "namespace"), [(BOB, HERE), (ALICE, HERE), (0, "pid:[4026532]"), (0, None)])
def test_neither_a_member_nor_the_root_of_a_container_ends_a_lease(parlour, at_once, uid, namespace):
    member = capped(parlour)
    answer = of(parlour, uid, namespace).ask(Op.END_LEASES, devices=("gpu0",))
    assert answer.code is Code.NOT_ALLOWED
    assert member.beat_for(2.0) == [Beaten(put_back=False)] * 4
    assert parlour.machine.limits_w()[0] == 150.0


def test_a_connection_with_a_lease_does_not_wait_for_others(parlour):
    member, root = parlour.lent("gpu1"), of(parlour, 0)
    assert isinstance(root.ask(Op.LEND, devices=("gpu0",)), Lent)
    answer = root.ask(Op.END_LEASES, devices=("gpu0", "gpu1"))
    assert answer.code is Code.TOO_MANY
    assert member.ask(Op.BEAT) == root.ask(Op.BEAT) == Beaten(put_back=False)
    root.talk.end("closed")


def test_a_limit_that_cannot_be_put_back_is_said(parlour):
    member = capped(parlour)
    parlour.machine.cards["gpu0"].fails = OSError("the bus is gone")
    answers: list[Answer | Refusal] = []
    root = of(parlour, 0)
    asking = threading.Thread(target=lambda: answers.append(root.ask(Op.END_LEASES, devices=("gpu0",))))
    asking.start()
    eventually(lambda: parlour.house.loans._by_uuid["gpu0"].to_end is not None)
    member.wait(SOON_S)
    asking.join()
    restored = ended(answers[0]).restored
    assert restored[0].failure == "the bus is gone"
    parlour.machine.cards["gpu0"].fails = None
