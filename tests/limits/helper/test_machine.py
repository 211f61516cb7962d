"""The machine's own GPUs and CPU packages as the helper has them, lent to the end.

Root ends a lease of the helper, and nobody else does; in virtual time, but for the thread of who waits for that.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from autocap.devices.inventory import Inventory, ListedDevice
from autocap.devices.nvml.source import NvmlInventory
from autocap.devices.rapl.source import RaplInventory
from autocap.errors import LeaseEnded
from autocap.job import registry
from autocap.limits import Guardian
from autocap.limits.asking import REAL_TIME, Waiting
from autocap.limits.helper import conversation, policy
from autocap.limits.helper.connection import error_of
from autocap.limits.helper.policy import PolicyFiles
from autocap.limits.helper.protocol import Answer, Beaten, Code, Done, Ended, LeasesEnded, Lent, Op, Refusal
from autocap.limits.helper.service_state import ServiceState
from autocap.limits.state_dir import ROOTS_PATH, StateDir
from autocap.testing.nvml import Steps, times
from autocap.wire.who import HERE, Peer
from bench.faults.virtual import Unwatched
from tests.doubles.lending import ALICE, BOB, FOUND_W, Client
from tests.doubles.nvml_stand import one_card, stand
from tests.doubles.rapl_tree import RaplTree
from tests.doubles.waiting import eventually
from tests.limits.helper.test_conversation import capped

ME = os.getuid()


@pytest.fixture
def sysfs(tmp_path, monkeypatch):
    """A machine with two CPU packages, of which one only counts its energy."""
    tree = RaplTree(tmp_path / "sys")
    tree.package(0)
    tree.package(1, limit_w=None)
    monkeypatch.setenv("AUTOCAP_SYSFS", str(tmp_path / "sys"))
    monkeypatch.setattr(policy, "USUAL_POLICY", tmp_path / "policy.toml")
    return tree


def client_of(service_state: ServiceState, uid: int = ME) -> Client:
    from autocap.clock import VirtualClock

    return Client(service_state, VirtualClock(), Peer(uid=uid, pid=1, groups=()))


def this_machine(now: Callable[[], float] = time.monotonic) -> dict[str, Inventory]:
    """As `autocap helper` has it."""
    assert registry.ours("inventories").keys() == {"nvml", "rapl"}
    return {"nvml": NvmlInventory(now), "rapl": RaplInventory()}


def listed(machine: dict[str, Inventory]) -> list[ListedDevice]:
    return [device for inventory in machine.values() for device in inventory.devices()]


def service_state_in(folder: Path, machine: dict[str, Inventory], clock: Waiting = REAL_TIME) -> ServiceState:
    (folder / "state").mkdir(mode=0o700)
    return ServiceState(
        inventories=machine,
        policy=PolicyFiles(None, folder / "state" / "policy.d", os.geteuid()),
        state_dir=folder / "state",
        new_guardian=partial(Guardian, sync=lambda fd: None, start_watch=Unwatched, clock=clock),
    )


def test_gpus_and_packages_are_seen_with_what_rules_may_call_them(sysfs):
    with stand(one_card(pids=(7, 8), drawing_pids=(8, 9))) as nvml:
        machine = this_machine()
        gpu, package, meter = listed(machine)
        assert (gpu.uuid, gpu.kind, gpu.names) == (nvml.uuid(), "nvml", (nvml.uuid().lower(), "0000:1b:00.0"))
        assert (gpu.cap_range.min_w, gpu.cap_range.max_w, gpu.requested_w, gpu.obstacle) == (100.0, 260.0, 260.0, None)
        assert (package.uuid, package.kind, package.requested_w) == ("intel-rapl-0", "rapl", 125.0)
        assert meter.obstacle is not None
        assert machine["nvml"].pids(gpu.uuid) == (7, 8, 9)
        assert machine["rapl"].pids(package.uuid) is None
    with stand(one_card(missing=("nvmlDeviceGetComputeRunningProcesses_v3",))):
        machine = this_machine()
        assert machine["nvml"].pids(listed(machine)[0].uuid) is None


def test_a_gpu_is_lent_set_and_put_back_to_the_milliwatt(sysfs, tmp_path):
    with stand(one_card(arrival_mw=237_123, pids=(os.getpid(),))) as nvml:
        service_state = service_state_in(tmp_path, this_machine())
        answer = client_of(service_state, ALICE).ask(Op.LEND, devices=(nvml.uuid(),))
        assert answer.code is Code.NOT_ALLOWED
        client = client_of(service_state)
        client.ask(Op.LEND, devices=(nvml.uuid(),))
        assert client.ask(Op.SET, watts=(150.0,)) == Done()
        assert nvml.requested_mw() == 150_000
        client.talk.end("gone")
        assert nvml.requested_mw() == 237_123


def test_a_gpu_that_takes_limits_in_steps_is_lent_on_and_put_back_to_the_milliwatt(sysfs, tmp_path):
    firmware = Steps(step_mw=25_000, untouched_mw=(237_123,))
    with stand(one_card(arrival_mw=237_123, pids=(os.getpid(),), steps=firmware, ignored_share=0.2)) as nvml:
        clock = Waiting(now=nvml.clock.now, pause=times(nvml.clock)["pause"])
        client = client_of(service_state_in(tmp_path, this_machine(), clock))
        client.ask(Op.LEND, devices=(nvml.uuid(),))
        for cap_w, made_mw in ((170.0, 150_000), (190.0, 175_000), (150.0, 150_000)):
            assert client.ask(Op.SET, watts=(cap_w,)) == Done()
            for _ in range(4):
                nvml.advance(0.35)
                assert client.ask(Op.BEAT) == Beaten(put_back=False, notes=())
            assert nvml.requested_mw() == made_mw
        assert client.ask(Op.SET, watts=(170.0,)) == Done()
        nvml.advance(0.1)
        client.talk.end("gone")
        assert nvml.requested_mw() == 237_123


def test_a_package_that_a_rule_shares_is_lent_and_put_back_as_it_was(sysfs, tmp_path):
    (tmp_path / "policy.toml").write_text('version = 1\n[[rule]]\ndevices = ["intel-rapl-0"]\nshared = true\n')
    with stand(one_card(has_driver=True)):
        service_state = service_state_in(tmp_path, this_machine())
        before = {path: path.read_text().strip() for path in sysfs.top.rglob("*") if path.is_file()}
        client = client_of(service_state)
        lent = client.ask(Op.LEND, devices=("intel-rapl-0",))
        assert lent.original_w == (125.0,)
        assert client.ask(Op.SET, watts=(90.0,)) == Done()
        assert {path: path.read_text().strip() for path in before} != before
        client.talk.end("gone")
        assert {path: path.read_text().strip() for path in before} == before


def test_without_a_driver_there_are_packages_alone_until_it_is_there(sysfs):
    now_s = 0.0
    with stand() as nvml:
        machine = this_machine(lambda: now_s)
        import pynvml

        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        try:
            assert [device.kind for device in listed(machine)] == ["rapl", "rapl"]
        finally:
            pynvml.nvmlLib = library
        assert len(listed(machine)) == 2  # it is not looked for at every request
        now_s = 5.0
        assert listed(machine)[0].uuid == nvml.uuid()


def test_users_pass_through_roots_state_directory_and_through_no_other(tmp_path, monkeypatch):
    from autocap.limits import state_dir

    assert str(ROOTS_PATH) == "/run/autocap"
    monkeypatch.setattr(state_dir, "ROOTS_PATH", tmp_path / "run")
    for name, mode in (("run", 0o711), ("other", 0o700)):
        StateDir(tmp_path / name).close()
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


ROOT_PID = 77
SOON_S = 0.8  # a lease that is to end does at its next beat to the watchdog


def of(helper_rig, uid, namespace=HERE):
    return Client(
        helper_rig.service_state, helper_rig.clock, Peer(uid=uid, pid=ROOT_PID, groups=(), namespace=namespace)
    )


def ended(answer: Answer | Refusal) -> Ended:
    assert isinstance(answer, LeasesEnded), answer
    (one,) = answer.ended
    return one


@pytest.fixture
def at_once(monkeypatch):
    """Nobody waits for a lease to be over."""
    monkeypatch.setattr(conversation, "LEASES_END_S", 0.0)


def test_root_ends_a_lease_and_is_told_whose_it_was_and_what_became_of_its_limits(helper_rig):
    member = helper_rig.lent("gpu1", "gpu0")
    member.ask(Op.SET, watts=(150.0, 160.0))
    answers: list[Answer | Refusal] = []
    root = of(helper_rig, 0)
    asking = threading.Thread(target=lambda: answers.append(root.ask(Op.END_LEASES, devices=("gpu0",))))
    asking.start()
    eventually(lambda: helper_rig.service_state.loans._by_uuid["gpu0"].to_end is not None)
    assert helper_rig.machine.limits_w() == [160.0, 150.0]  # its own thread puts them back
    member.wait(SOON_S)
    assert helper_rig.machine.limits_w() == [FOUND_W] * 2
    asking.join()
    one = ended(answers[0])
    assert (one.lease.uid, one.lease.pid, one.lease.devices) == (ALICE, 1001, ("gpu1", "gpu0"))
    assert one.lease.caps_w == (150.0, 160.0)
    assert [(limit.uuid, limit.final_w, limit.restored) for limit in one.restored] == [
        ("gpu1", FOUND_W, True), ("gpu0", FOUND_W, True)
    ]  # fmt: skip
    assert not any(name.startswith("gpu") for name in os.listdir(helper_rig.state_dir))


def test_the_client_is_told_so_in_the_words_of_version_1_and_may_have_the_devices_lent_again(helper_rig, at_once):
    member = capped(helper_rig)
    assert ended(of(helper_rig, 0).ask(Op.END_LEASES, devices=("gpu0",))).restored is None  # it is not over yet
    answer = member.ask(Op.SET, watts=(120.0,))  # before its thread has looked
    assert (answer.code, answer.text) == (Code.NO_LEASE, f"the lease has ended: root (PID {ROOT_PID}) has ended it")
    assert isinstance(error_of(answer), LeaseEnded)
    assert helper_rig.machine.cards["gpu0"].sets == [150.0, FOUND_W]
    assert member.ask(Op.BEAT) == answer
    assert isinstance(member.ask(Op.LEND, devices=("gpu0",)), Lent)
    assert member.beat_for(20.0) == [Beaten(put_back=False)] * 40


def test_a_lease_that_begins_or_is_silent_at_that_moment_ends_as_well(helper_rig, at_once):
    silent, fresh = helper_rig.lent("gpu0"), helper_rig.lent("gpu1", uid=BOB)
    silent.ask(Op.SET, watts=(150.0,))
    silent.wait(3.0)
    assert helper_rig.machine.limits_w()[0] == FOUND_W  # and may be set again
    answer = of(helper_rig, 0).ask(Op.END_LEASES, devices=("gpu1", "gpu0", "gpu9"))
    assert {one.lease.uid for one in answer.ended} == {ALICE, BOB}
    silent.wait(1.0)
    fresh.wait(SOON_S)
    assert helper_rig.service_state.loans.all() == ()


def test_what_is_lent_of_other_devices_stays(helper_rig, at_once):
    member, other = helper_rig.lent("gpu0"), helper_rig.lent("gpu1", uid=BOB)
    other.ask(Op.SET, watts=(170.0,))
    assert ended(of(helper_rig, 0).ask(Op.END_LEASES, devices=("gpu0",))).lease.uid == ALICE
    member.wait(SOON_S)
    assert other.beat_for(5.0) == [Beaten(put_back=False)] * 10
    assert helper_rig.machine.limits_w() == [FOUND_W, 170.0]
    assert [lease.uid for lease in helper_rig.service_state.loans.all()] == [BOB]


@pytest.mark.parametrize(("uid", "namespace"), [(BOB, HERE), (ALICE, HERE), (0, "pid:[4026532]"), (0, None)])
def test_neither_a_member_nor_the_root_of_a_container_ends_a_lease(helper_rig, at_once, uid, namespace):
    member = capped(helper_rig)
    answer = of(helper_rig, uid, namespace).ask(Op.END_LEASES, devices=("gpu0",))
    assert answer.code is Code.NOT_ALLOWED
    assert member.beat_for(2.0) == [Beaten(put_back=False)] * 4
    assert helper_rig.machine.limits_w()[0] == 150.0


def test_a_connection_with_a_lease_does_not_wait_for_others(helper_rig):
    member, root = helper_rig.lent("gpu1"), of(helper_rig, 0)
    assert isinstance(root.ask(Op.LEND, devices=("gpu0",)), Lent)
    answer = root.ask(Op.END_LEASES, devices=("gpu0", "gpu1"))
    assert answer.code is Code.TOO_MANY
    assert member.ask(Op.BEAT) == root.ask(Op.BEAT) == Beaten(put_back=False)
    root.talk.end("closed")


def test_a_limit_that_cannot_be_put_back_is_said(helper_rig):
    member = capped(helper_rig)
    helper_rig.machine.cards["gpu0"].fails = OSError("the bus is gone")
    answers: list[Answer | Refusal] = []
    root = of(helper_rig, 0)
    asking = threading.Thread(target=lambda: answers.append(root.ask(Op.END_LEASES, devices=("gpu0",))))
    asking.start()
    eventually(lambda: helper_rig.service_state.loans._by_uuid["gpu0"].to_end is not None)
    member.wait(SOON_S)
    asking.join()
    restored = ended(answers[0]).restored
    assert restored[0].failure == "the bus is gone"
    helper_rig.machine.cards["gpu0"].fails = None
