"""The machine's own GPUs and CPU packages as the helper has them, lent to the end."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from autocap.devices.inventory import Inventory, ListedDevice
from autocap.devices.nvml.inventory import NvmlInventory
from autocap.devices.rapl.source import RaplInventory
from autocap.job import registry
from autocap.limits import Guardian
from autocap.limits.asking import REAL_TIME, Waiting
from autocap.limits.helper import policy
from autocap.limits.helper.house import House
from autocap.limits.helper.policy import PolicyFiles
from autocap.limits.helper.protocol import Beaten, Code, Done, Op
from autocap.limits.state_dir import ROOTS_PATH, StateDir
from autocap.testing.nvml import Steps, times
from autocap.wire.who import Peer
from bench.faults.virtual import Unwatched
from tests.doubles.lending import ALICE, Client
from tests.doubles.nvml_stand import one_card, stand
from tests.doubles.rapl_tree import RaplTree

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


def client_of(house: House, uid: int = ME) -> Client:
    from autocap.clock import VirtualClock

    return Client(house, VirtualClock(), Peer(uid=uid, pid=1, groups=()))


def this_machine(now: Callable[[], float] = time.monotonic) -> dict[str, Inventory]:
    """As `autocap helper` has it."""
    assert registry.ours("inventories").keys() == {"nvml", "rapl"}
    return {"nvml": NvmlInventory(now), "rapl": RaplInventory()}


def listed(machine: dict[str, Inventory]) -> list[ListedDevice]:
    return [device for inventory in machine.values() for device in inventory.devices()]


def house_in(folder: Path, machine: dict[str, Inventory], clock: Waiting = REAL_TIME) -> House:
    (folder / "state").mkdir(mode=0o700)
    return House(
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
        house = house_in(tmp_path, this_machine())
        answer = client_of(house, ALICE).ask(Op.LEND, devices=(nvml.uuid(),))
        assert answer.code is Code.NOT_ALLOWED
        client = client_of(house)
        client.ask(Op.LEND, devices=(nvml.uuid(),))
        assert client.ask(Op.SET, watts=(150.0,)) == Done()
        assert nvml.requested_mw() == 150_000
        client.talk.end("gone")
        assert nvml.requested_mw() == 237_123


def test_a_gpu_that_takes_limits_in_steps_is_lent_on_and_put_back_to_the_milliwatt(sysfs, tmp_path):
    firmware = Steps(step_mw=25_000, untouched_mw=(237_123,))
    with stand(one_card(arrival_mw=237_123, pids=(os.getpid(),), steps=firmware, ignored_share=0.2)) as nvml:
        clock = Waiting(now=nvml.clock.now, pause=times(nvml.clock)["pause"])
        client = client_of(house_in(tmp_path, this_machine(), clock))
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
        house = house_in(tmp_path, this_machine())
        before = {path: path.read_text().strip() for path in sysfs.top.rglob("*") if path.is_file()}
        client = client_of(house)
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
