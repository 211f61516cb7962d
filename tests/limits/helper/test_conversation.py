"""What the helper lends, refuses and puts back, by what is said and by how time passes; in virtual time."""

import os
import subprocess
import sys

import pytest

from autocap.devices.inventory import ListedDevice
from autocap.errors import DeviceError, LimitOvertaken, LimitRefused
from autocap.limits.background_call import BackgroundCall
from autocap.limits.helper.protocol import Answer, Beaten, Code, Devices, Done, Op, PutBack, Refusal
from autocap.limits.vital_signs import Look
from autocap.wire.admission import Bounds, Rate
from tests.doubles.lending import ALICE, BOB, FOUND_W
from tests.doubles.waiting import eventually

ME = os.getuid()


def code(answer: Answer | Refusal) -> Code:
    assert isinstance(answer, Refusal), answer
    return answer.code


def text(answer: Answer | Refusal) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.text


def capped(helper_rig, *uuids, **who):
    """A client that has set 150 W on a device that it has."""
    client = helper_rig.lent(*uuids, **who)
    client.ask(Op.SET, watts=(150.0,))
    return client


def test_a_lease_is_lent_set_and_given_back(helper_rig):
    client = helper_rig.client()
    lent = client.ask(Op.LEND, devices=("gpu1", "gpu0"))
    assert (lent.original_w, lent.min_w, lent.max_w) == ((FOUND_W,) * 2, (100.0,) * 2, (FOUND_W,) * 2)
    assert client.ask(Op.REHEARSE) == Done()
    assert client.ask(Op.SET, watts=(150.0, 160.0)) == Done()
    assert helper_rig.machine.limits_w() == [160.0, 150.0]
    assert client.ask(Op.BEAT) == Beaten(put_back=False)
    given = client.ask(Op.GIVE_BACK)
    assert [(one.uuid, one.final_w, one.restored) for one in given.restored] == [
        ("gpu1", FOUND_W, True), ("gpu0", FOUND_W, True)
    ]  # fmt: skip
    assert helper_rig.machine.limits_w() == [FOUND_W] * 2
    assert os.listdir(helper_rig.state_dir) == []
    assert code(client.ask(Op.SET, watts=(150.0, 160.0))) is Code.NO_LEASE


def test_caps_may_be_set_again_after_a_restore(helper_rig):
    client = capped(helper_rig)
    restored = client.ask(Op.RESTORE)
    assert restored.restored[0].restored
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    assert client.ask(Op.SET, watts=(170.0,)) == Done()


@pytest.mark.parametrize("cap_w", [99.9, 260.1, 300.0, 1e-3, 1e9])
def test_no_cap_outside_the_range_or_above_the_limit_found_is_set(helper_rig, cap_w):
    client = helper_rig.lent()
    answer = client.ask(Op.SET, watts=(cap_w,))
    assert code(answer) is Code.REFUSED
    assert f"cap {cap_w:g} W is" in text(answer)
    assert helper_rig.machine.cards["gpu0"].sets == []


def test_the_limit_found_may_always_be_had_again_also_below_what_a_policy_allows(helper_rig, tmp_path):
    (tmp_path / "policy.toml").write_text("version = 1\n[[rule]]\nmin_w = 280\n")
    client = helper_rig.lent()
    assert client.ask(Op.SET, watts=(FOUND_W,)) == Done()
    assert code(client.ask(Op.SET, watts=(FOUND_W - 1,))) is Code.REFUSED


def test_a_cap_of_ours_is_not_taken_for_the_limit_found(helper_rig):
    """Else whoever sets 150 W could set no more than that again."""
    client = helper_rig.lent()
    assert client.ask(Op.SET, watts=(150.0,)) == Done()
    assert client.ask(Op.SET, watts=(200.0,)) == Done()
    devices = client.ask(Op.DEVICES)
    assert [offer.max_w for offer in devices.devices] == [FOUND_W, FOUND_W]


def test_the_number_of_caps_is_that_of_the_devices(helper_rig):
    assert code(helper_rig.lent().ask(Op.SET, watts=(150.0, 150.0))) is Code.BAD_MESSAGE
    assert helper_rig.machine.limits_w() == [FOUND_W] * 2


def test_a_second_asker_is_told_whose_it_is(helper_rig):
    first = helper_rig.lent("gpu0")
    second = helper_rig.client(BOB)
    answer = second.ask(Op.LEND, devices=("gpu1", "gpu0"))
    assert code(answer) is Code.IN_USE
    assert (answer.uid, answer.pid) == (ALICE, 1001)
    assert text(answer) == f"gpu0 is lent to user {ALICE} (PID 1001); wait for it, or have that end"
    assert not isinstance(second.ask(Op.LEND, devices=("gpu1",)), Refusal)  # nothing was kept of what was refused
    status = second.ask(Op.STATUS)
    assert [(lease.uid, lease.devices) for lease in status.leases] == [(ALICE, ("gpu0",)), (BOB, ("gpu1",))]
    first.talk.end("gone")
    second.ask(Op.GIVE_BACK)
    assert not isinstance(second.ask(Op.LEND, devices=("gpu1", "gpu0")), Refusal)


def test_a_device_that_an_autocap_of_root_has_is_in_use(helper_rig):
    from autocap.limits.lock import DeviceLock
    from autocap.limits.state_dir import StateDir

    with StateDir(helper_rig.state_dir) as state, DeviceLock(state, "gpu0"):
        answer = helper_rig.client().ask(Op.LEND, devices=("gpu0",))
        assert code(answer) is Code.IN_USE
        assert (answer.uid, answer.pid) == (ME, os.getpid())
    helper_rig.lent("gpu0")


def test_a_connection_has_one_lease(helper_rig):
    client = helper_rig.lent("gpu0")
    assert code(client.ask(Op.LEND, devices=("gpu1",))) is Code.TOO_MANY


def test_a_device_that_is_not_there_or_takes_no_limit_is_not_lent(helper_rig):
    client = helper_rig.client()
    assert code(client.ask(Op.LEND, devices=("gpu7",))) is Code.UNKNOWN_DEVICE
    helper_rig.machine.cards["gpu0"].obstacle = "GPU 0 is split into MIG instances"
    answer = client.ask(Op.LEND, devices=("gpu0",))
    assert code(answer) is Code.NOT_ALLOWED
    assert text(answer) == "the limit of gpu0 is not lent: GPU 0 is split into MIG instances"


@pytest.mark.parametrize("op", [Op.REHEARSE, Op.SET, Op.BEAT, Op.RESTORE, Op.GIVE_BACK])
def test_without_a_lease_there_is_nothing_to_set(helper_rig, op):
    helper_rig.lent(uid=BOB).ask(Op.SET, watts=(150.0,))
    answer = helper_rig.client().ask(op, watts=(120.0,) if op is Op.SET else ())
    assert code(answer) is Code.NO_LEASE
    assert helper_rig.machine.limits_w()[0] == 150.0


def test_a_client_that_beats_keeps_its_lease(helper_rig):
    client = capped(helper_rig)
    assert set(client.beat_for(120.0)) == {Beaten(put_back=False)}
    assert helper_rig.machine.limits_w()[0] == 150.0


def test_a_silent_client_has_its_limits_put_back_and_is_told_once_it_speaks(helper_rig):
    client = capped(helper_rig)
    client.wait(1.4)
    assert helper_rig.machine.limits_w()[0] == 150.0
    client.wait(0.3)
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    assert client.ask(Op.HELLO).uid == ALICE
    beaten = client.ask(Op.BEAT)
    assert beaten.put_back
    assert beaten.notes[0].startswith("nothing was heard for 1.")
    assert client.ask(Op.SET, watts=(150.0,)) == Done()  # the lease is still its own
    assert client.ask(Op.BEAT) == Beaten(put_back=False)


@pytest.mark.parametrize("stays", [True, False])
def test_while_a_driver_takes_its_time_only_the_caps_of_a_client_that_is_there_stay(helper_rig, stays):
    client, (first, second) = helper_rig.lent("gpu0", "gpu1"), helper_rig.machine.cards.values()
    second.answers.clear()
    setting = BackgroundCall[Answer | Refusal]()
    setting.begin(lambda: client.ask(Op.SET, watts=(150.0, 160.0)))
    eventually(lambda: first.limit_w == 150.0)
    client.is_there = stays
    if not stays:
        eventually(lambda: first.limit_w == FOUND_W)
    assert not setting.is_done(0.5)
    second.answers.set()
    assert setting.is_done(5.0)
    assert isinstance(setting.take(), Done if stays else Refusal)
    assert helper_rig.machine.limits_w() == ([150.0, 160.0] if stays else [FOUND_W] * 2)


def test_a_client_that_only_does_not_get_the_cpu_is_waited_for(helper_rig):
    client = helper_rig.lent()
    client.seen = Look(cpu_s=3.0, runnable=True)
    client.ask(Op.SET, watts=(150.0,))
    client.wait(9.0)
    assert helper_rig.machine.limits_w()[0] == 150.0
    client.wait(1.5)
    assert helper_rig.machine.limits_w()[0] == FOUND_W


def test_garbage_is_a_sign_of_life_but_no_request(helper_rig):
    client = capped(helper_rig)
    for _ in range(5):
        client.wait(1.0)
        assert b"bad_message" in client.talk.hear(b'{"v":1,"id":3,"op":"fly"}\n')[0]
    assert helper_rig.machine.limits_w()[0] == 150.0


def test_whatever_is_not_a_line_of_json_ends_the_conversation(helper_rig):
    client = capped(helper_rig)
    assert b"bad_message" in client.talk.hear(b"set all of it\n")[0]
    assert client.talk.over is not None
    client.talk.end(client.talk.over)
    assert helper_rig.machine.limits_w()[0] == FOUND_W


def test_a_connection_without_a_lease_is_closed_after_a_while(helper_rig):
    client = helper_rig.client()
    client.wait(59.0)
    assert client.talk.over is None
    client.wait(2.0)
    assert client.talk.over == "it was silent for 60 s, and has no lease"


def test_who_speaks_too_fast_is_told_to_wait_and_served_later(new_helper_rig):
    helper_rig = new_helper_rig(Bounds(messages=Rate(burst=5, per_s=2)))
    client = helper_rig.client()
    answers = [client.ask(Op.HELLO) for _ in range(6)]
    assert code(answers[5]) is Code.TOO_FAST
    assert isinstance(answers[5], Refusal)
    assert answers[5].wait_s == pytest.approx(0.5)
    assert not any(isinstance(answer, Refusal) for answer in answers[:5])
    client.wait(0.5)
    assert not isinstance(client.ask(Op.HELLO), Refusal)


def test_limits_of_a_device_are_not_set_too_often_also_not_by_lease_after_lease(new_helper_rig):
    helper_rig = new_helper_rig(Bounds(sets=Rate(burst=3, per_s=1)))
    done = 0
    for _ in range(3):
        client = helper_rig.lent("gpu0")
        done += sum(client.ask(Op.SET, watts=(150.0,)) == Done() for _ in range(2))
        client.ask(Op.GIVE_BACK)
    assert done == 3
    client = helper_rig.lent("gpu0")
    answer = client.ask(Op.SET, watts=(150.0,))
    assert code(answer) is Code.TOO_FAST
    client.wait(1.0)
    assert client.ask(Op.SET, watts=(150.0,)) == Done()


def test_a_device_that_is_narrowed_to_few_caps_has_no_more_of_them_because_others_are_set(helper_rig, tmp_path):
    rules = 'version = 1\n[[rule]]\ndevices = ["gpu0"]\nsets_per_s = 0.1\n[[rule]]\n'
    (tmp_path / "policy.toml").write_text(rules)
    slow, other = helper_rig.lent("gpu0"), helper_rig.lent("gpu1")
    assert slow.ask(Op.SET, watts=(150.0,)) == Done()
    for _ in range(9):
        slow.beat_for(0.5)
        other.beat_for(0.5)
        assert other.ask(Op.SET, watts=(150.0,)) == Done()
        assert code(slow.ask(Op.SET, watts=(150.0,))) is Code.TOO_FAST


def test_the_bounds_of_a_lease_are_those_of_the_limit_found_also_right_after_another(helper_rig, monkeypatch):
    before = capped(helper_rig, "gpu0", uid=BOB)
    devices = helper_rig.machine.devices

    def read_and_then_given_back() -> tuple[ListedDevice, ...]:
        found = devices()
        before.ask(Op.GIVE_BACK)
        return found

    monkeypatch.setattr(helper_rig.machine, "devices", read_and_then_given_back)
    lent = helper_rig.client().ask(Op.LEND, devices=("gpu0",))
    assert (lent.original_w, lent.max_w) == ((FOUND_W,), (FOUND_W,))


def test_a_user_begins_no_leases_without_end(new_helper_rig):
    helper_rig = new_helper_rig(Bounds(lends=Rate(burst=2, per_s=0.5)))
    clients = [helper_rig.client() for _ in range(3)]
    answers = [client.ask(Op.LEND, devices=("gpu9",)) for client in clients]
    assert [code(answer) for answer in answers] == [Code.UNKNOWN_DEVICE, Code.UNKNOWN_DEVICE, Code.TOO_FAST]
    assert not isinstance(
        helper_rig.client(BOB).ask(Op.LEND, devices=("gpu0",)), Refusal
    )  # somebody else is not held up


def test_a_user_does_not_look_at_all_devices_without_end(new_helper_rig):
    helper_rig = new_helper_rig(Bounds(looks=Rate(burst=2, per_s=4)))
    answers = [helper_rig.client().ask(Op.DEVICES) for _ in range(3)]
    assert [isinstance(answer, Devices) for answer in answers] == [True, True, False]
    assert code(answers[2]) is Code.TOO_FAST


def test_a_device_on_which_somebody_else_computes_is_not_lent(helper_rig):
    helper_rig.machine.cards["gpu0"].pids = (os.getpid(),)
    answer = helper_rig.client(ME + 1).ask(Op.LEND, devices=("gpu0",))
    assert code(answer) is Code.NOT_ALLOWED
    assert f"process {os.getpid()} of " in text(answer)
    helper_rig.lent("gpu0", uid=ME)


@pytest.mark.parametrize("pids", [None, (0,), (2**22 + 1,)])
def test_where_it_cannot_be_told_who_computes_nothing_is_lent(helper_rig, pids):
    helper_rig.machine.cards["gpu0"].pids = pids
    assert code(helper_rig.client(ME).ask(Op.LEND, devices=("gpu0",))) is Code.NOT_ALLOWED


def test_who_comes_to_compute_there_ends_the_lease_of_another(helper_rig):
    client = capped(helper_rig, "gpu0", uid=ME + 1)
    helper_rig.machine.cards["gpu0"].pids = (os.getpid(),)
    client.beat_for(11.0)
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    answer = client.ask(Op.BEAT)
    assert code(answer) is Code.NO_LEASE
    assert f"the lease has ended: the limit of gpu0 is lent no longer: process {os.getpid()} of " in text(answer)


def test_and_before_that_no_further_cap_is_set(helper_rig):
    client = capped(helper_rig, "gpu0", uid=ME + 1)
    helper_rig.machine.cards["gpu0"].pids = (os.getpid(),)
    assert code(client.ask(Op.SET, watts=(120.0,))) is Code.NOT_ALLOWED
    assert helper_rig.machine.cards["gpu0"].sets == [150.0, FOUND_W]
    assert code(client.ask(Op.BEAT)) is Code.NO_LEASE


def test_a_limit_that_somebody_else_changed_is_left_to_them(helper_rig):
    client = capped(helper_rig)
    helper_rig.machine.cards["gpu0"].limit_w = 222.0
    answer = client.ask(Op.SET, watts=(160.0,))
    assert (answer.code, answer.uuid, answer.expected_w, answer.found_w) == (Code.FOREIGN, "gpu0", 150.0, 222.0)
    given = client.ask(Op.GIVE_BACK)
    assert (given.restored[0].restored, given.restored[0].final_w) == (False, 222.0)
    assert helper_rig.machine.limits_w()[0] == 222.0


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (LimitRefused("no"), (Code.REFUSED, "refused")),
        (LimitOvertaken("theirs", 222.0), (Code.FOREIGN, None)),
        (DeviceError("GPU 0 has fallen off the bus"), (Code.GUARD, None)),
    ],
)
def test_what_a_device_refuses_is_passed_on(helper_rig, failure, expected):
    client = helper_rig.lent()
    helper_rig.machine.cards["gpu0"].fails = failure
    answer = client.ask(Op.SET, watts=(150.0,))
    assert (answer.code, answer.kind) == expected


def test_a_client_that_asks_for_its_limits_back_without_end_does_not_fill_the_log(helper_rig, caplog):
    client = helper_rig.lent()
    caplog.set_level("INFO")
    for cap_w in (150.0, 160.0):
        client.ask(Op.SET, watts=(cap_w,))
        for _ in range(20):
            assert isinstance(client.ask(Op.RESTORE), PutBack)
    assert caplog.text.count("is back at 260 W (asked for)") == 2


def test_a_fault_of_our_own_ends_one_lease_and_puts_back(helper_rig):
    client, other = helper_rig.lent("gpu0"), helper_rig.lent("gpu1", uid=BOB)
    client.ask(Op.SET, watts=(150.0,))
    helper_rig.machine.cards["gpu0"].fails = ZeroDivisionError("a fault of the helper's")
    answer = client.ask(Op.SET, watts=(160.0,))
    assert text(answer) == "the helper has met an internal fault: ZeroDivisionError; the limits are put back"
    assert client.talk.over is not None
    helper_rig.machine.cards["gpu0"].fails = None
    client.talk.end(client.talk.over)
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    assert other.ask(Op.SET, watts=(170.0,)) == Done()


def test_a_limit_that_could_not_be_put_back_is_tried_again(helper_rig):
    client = capped(helper_rig)
    helper_rig.machine.cards["gpu0"].fails = DeviceError("the driver is busy")
    client.talk.end("the client's process has ended")
    assert helper_rig.service_state.unsettled.is_set()
    assert os.listdir(helper_rig.state_dir) == ["gpu0.json"]
    helper_rig.machine.cards["gpu0"].fails = None


def test_cpu_packages_are_everybodys_so_a_rule_has_to_lend_them(helper_rig, tmp_path):
    helper_rig.machine.cards["gpu0"].kind = "rapl"
    answer = helper_rig.client().ask(Op.LEND, devices=("gpu0",))
    assert "every user computes on a CPU package" in text(answer)
    assert "are not lent together" in text(helper_rig.client().ask(Op.LEND, devices=("gpu0", "gpu1")))
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\ndevices = ["gpu0"]\nshared = true\n')
    helper_rig.lent("gpu0")


def test_a_policy_that_takes_a_device_away_ends_the_lease(helper_rig, tmp_path):
    client = capped(helper_rig, "gpu0")
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\ndevices = ["gpu1"]\n')
    client.beat_for(11.0)
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    assert code(client.ask(Op.BEAT)) is Code.NO_LEASE


def test_a_policy_narrows_bounds_and_rate(helper_rig, tmp_path):
    rule = "version = 1\n[[rule]]\nmin_w = 120\nmax_w = 200\nsets_per_s = 0.1\n"
    (tmp_path / "policy.toml").write_text(rule)
    client = helper_rig.client()
    lent = client.ask(Op.LEND, devices=("gpu0",))
    assert (lent.min_w, lent.max_w) == ((120.0,), (200.0,))
    assert code(client.ask(Op.SET, watts=(119.0,))) is code(client.ask(Op.SET, watts=(201.0,))) is Code.REFUSED
    assert client.ask(Op.SET, watts=(150.0,)) == Done()
    answer = client.ask(Op.SET, watts=(160.0,))
    assert answer.wait_s == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("min_w = 250", "by now the policy allows at least 250 W there, not 150 W"),
        ("max_w = 120", "by now the policy allows at most 120 W there, not 150 W"),
        ("users = [0, 4000000000]\ngiven = true", "it was given to"),
        ('devices = ["gpu1"]', "no rule of the policy allows it"),
        ("min_w = 0", "policy.toml is refused: min_w of rule 1 is no number"),
    ],
)
def test_a_policy_that_is_narrowed_while_a_cap_stands_reaches_it_within_three_seconds(helper_rig, tmp_path, rule, why):
    client = helper_rig.lent("gpu0", uid=ME + 1)
    assert client.ask(Op.SET, watts=(150.0,)) == Done()
    client.beat_for(1.0)
    (tmp_path / "policy.toml").write_text(f"version = 1\n[[rule]]\n{rule}\n")
    client.beat_for(3.0)
    assert helper_rig.machine.limits_w()[0] == FOUND_W
    answer = client.ask(Op.BEAT)
    assert code(answer) is Code.NO_LEASE
    assert why in text(answer)


def test_no_word_of_the_protocol_reaches_a_user_whose_lease_has_ended(helper_rig, tmp_path):
    client = helper_rig.lent("gpu0", uid=ME + 1)
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\ndevices = ["gpu1"]\n')
    client.beat_for(3.0)
    said = text(client.ask(Op.BEAT))
    assert said.startswith("the lease has ended: the limit of gpu0 is lent no longer: no rule of the policy allows it")
    assert "`" not in said


def test_where_no_cap_is_between_what_is_allowed_that_is_said_and_no_range(helper_rig):
    helper_rig.machine.cards["gpu0"].limit_w = 60.0
    answer = helper_rig.client(ME).ask(Op.DEVICES)
    (offer,) = [one for one in answer.devices if one.uuid == "gpu0"]
    assert not offer.allowed
    assert offer.why == (
        "no cap may be set there: at least 100 W by the device and the policy, and at most 60 W by the policy and "
        "the limit that stands, which is never exceeded"
    )


def test_a_mistyped_device_of_the_policy_and_a_policy_that_is_not_there_are_said_in_the_log_once(
    helper_rig, tmp_path, caplog
):
    caplog.set_level("INFO")
    helper_rig.service_state.remark()
    helper_rig.service_state.remark()
    assert [one.message for one in caplog.records] == [
        f"there is no {tmp_path / 'policy.toml'}, so devices are lent to whoever computes there alone"
    ]
    caplog.clear()
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\ndevices = ["gpu0", "gpu00"]\n')
    helper_rig.service_state.remark()
    helper_rig.service_state.remark()
    (said,) = [one.message for one in caplog.records]
    assert said.startswith("a rule of policy.toml is about gpu00, which is no device here; there is ")


def test_a_policy_that_is_refused_lends_nothing_and_says_why(helper_rig, tmp_path):
    (tmp_path / "policy.toml").write_text("version = 2\n")
    answer = helper_rig.client().ask(Op.LEND, devices=("gpu0",))
    assert code(answer) is Code.NOT_ALLOWED
    assert "policy.toml is refused: it has no `version = 1`" in text(answer)


@pytest.mark.slow
def test_the_server_needs_neither_numpy_nor_optuna():
    modules = "autocap.cli.helper, autocap.limits.helper.server, autocap.devices.nvml, autocap.devices.rapl"
    code = (
        f"import {modules}, sys; print([name for name in ('numpy', 'scipy', 'optuna', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
