"""What a keeper does for its session, which its user can have ask for anything."""

import errno
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.node import meters
from autocap.devices.powercap import Sysfs, energy_files
from autocap.errors import AutocapError, GuardError, LimitRefused
from autocap.job import keeper as of_session
from autocap.job.keeper import Keeper, Question
from autocap.limits.helper.client import kept
from autocap.limits.keeper import openings
from autocap.limits.keeper.charge import Charge
from autocap.limits.keeper.process import KeeperProcess
from autocap.limits.state_dir import VARIABLE
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits
from tests.doubles.file_device.source import FileDevice
from tests.doubles.rapl_tree import RaplTree
from tests.doubles.waiting import eventually

FOUND_W = 260.0
OTHERS = os.getuid() + 1


class Stand:
    """A keeper in a thread of ours, and us as its session. gpu: the device that it was told of."""

    def __init__(self, folder: Path, **charge: object) -> None:
        self.gpu = file_device.make(folder, FOUND_W)
        self.device = FileDevice(Path(self.gpu.uuid), clock=None, observe=False)  # type: ignore[arg-type]  # not read
        made = Charge(
            uid=os.getuid(),
            gid=os.getgid(),
            groups=(),
            session=os.getpid(),
            device=f"file:{self.gpu.uuid}",
        )
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = KeeperProcess(theirs, replace(made, **charge), os.pidfd_open(os.getpid()))  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self.process.serve, daemon=True)
        self.thread.start()
        self.keeper = Keeper(self.ours)

    @property
    def limit_w(self) -> float | None:
        return FileLimits().requested_w(self.gpu.uuid)

    def asked(self, question: str, *fds: int, **words: object) -> int | None:
        """The errno of the answer, `None` where there is one; what it opened is closed."""
        packet = json.dumps({"id": 0, "question": question, **words}).encode()
        socket.send_fds(self.ours, [packet], fds)
        said, found, _, _ = socket.recv_fds(self.ours, 1 << 16, 3)
        for fd in found:
            os.close(fd)
        return json.loads(said).get("errno")


@pytest.fixture
def new_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    made: list[Stand] = []

    def stand(**charge: object) -> Stand:
        made.append(Stand(tmp_path, **charge))
        return made[-1]

    yield stand
    for one in made:
        one.ours.shutdown(socket.SHUT_RDWR)
        one.ours.close()
        one.thread.join(30.0)
        assert not one.thread.is_alive()


@pytest.mark.slow
def test_limits_are_set_and_are_back_at_the_end_of_each_guardian(new_stand):
    stand = new_stand()
    for _ in range(2):  # as for the runs of a sweep
        with kept(stand.keeper, stand.device, stand.device.gpus) as guardian:
            assert guardian.original_w == (FOUND_W,)
            guardian.rehearse()
            guardian.set_caps((200.0,))
            assert stand.limit_w == 200.0
            assert not guardian.beat()
        assert stand.limit_w == FOUND_W


def test_the_end_of_a_session_puts_its_limits_back_and_ends_the_keeper(new_stand):
    stand = new_stand()
    guardian = kept(stand.keeper, stand.device, stand.device.gpus).__enter__()
    guardian.set_caps((200.0,))
    stand.ours.shutdown(socket.SHUT_RDWR)
    stand.thread.join(30.0)
    assert (stand.thread.is_alive(), stand.limit_w) == (False, FOUND_W)
    with pytest.raises(GuardError, match=r"the process with root's rights cannot be asked .* by its watchdog"):
        guardian.beat()


@pytest.mark.parametrize(
    ("charge", "cap_w", "why"),
    [
        ({"min_w": 150.0}, 149.0, "below the 150 W minimum"),
        ({"max_w": 250.0}, 251.0, "above the 250 W maximum"),
        ({}, 500.0, "takes no limit"),  # by the device itself
    ],
)
def test_a_cap_outside_of_the_bounds_of_the_command_line_is_refused(new_stand, charge, cap_w, why):
    stand = new_stand(**charge)
    with kept(stand.keeper, stand.device, stand.device.gpus) as guardian:
        if cap_w == 500.0:
            refuse = Path(f"{stand.gpu.uuid}.refuse")
            refuse.touch()
        with pytest.raises(LimitRefused, match=why):
            guardian.set_caps((cap_w,))
        Path(f"{stand.gpu.uuid}.refuse").unlink(missing_ok=True)
        guardian.set_caps((200.0,))
    assert stand.limit_w == FOUND_W


def test_another_device_than_the_command_line_names_is_not_set(new_stand, tmp_path):
    stand = new_stand()
    (tmp_path / "other").mkdir()
    other = file_device.make(tmp_path / "other")
    with pytest.raises(AutocapError, match=f"there is no device {other.uuid} here; there is {stand.gpu.uuid}"):
        kept(stand.keeper, stand.device, (other,)).__enter__()


@pytest.mark.parametrize(
    ("charge", "why"),
    [
        ({"gpus": ("7",)}, "--gpus 7 is not there; this machine has 0"),
        ({"observe": True}, "there is no device"),
        ({"device": "emulated"}, "there is no device"),
    ],
)
def test_what_the_command_line_does_not_name_is_not_lent(new_stand, charge, why):
    stand = new_stand(**charge)
    with pytest.raises(AutocapError, match=why):
        kept(stand.keeper, stand.device, stand.device.gpus).__enter__()


def test_what_gpus_names_is_lent(new_stand):
    stand = new_stand(gpus=("0",))
    with kept(stand.keeper, stand.device, stand.device.gpus) as guardian:
        guardian.set_caps((200.0,))
        assert stand.limit_w == 200.0


@pytest.mark.parametrize(
    "packet",
    [b"x", b"[]", b"{}", b'{"id": 1}', b'{"id": 1, "question": "no"}', b'{"id": 1, "question": "mapped"}'],
)
def test_what_is_no_question_is_answered_with_an_error_and_harms_nothing(new_stand, packet):
    stand = new_stand()
    stand.ours.send(packet)
    assert json.loads(stand.ours.recv(1 << 16))["errno"] == errno.EINVAL
    assert stand.keeper.settle() == ()


def test_an_answer_that_comes_too_late_is_not_taken_for_another(new_stand, monkeypatch):
    stand = new_stand()
    stand.ours.send(json.dumps({"id": -1, "question": "settle"}).encode())  # of which nobody waits for the answer
    assert stand.keeper.settle() == ()


def test_energy_counters_are_opened_and_no_other_file(new_stand, tmp_path, monkeypatch):
    tree = RaplTree(tmp_path / "sys")
    tree.package()
    monkeypatch.setenv("AUTOCAP_SYSFS", str(tree.root))
    assert new_stand().asked(Question.ENERGY, path=str(energy_files(Sysfs())[0])) == errno.EPERM
    stand = new_stand(node_power="rapl")
    path = energy_files(Sysfs())[0]
    fd = stand.keeper.energy(path)
    assert os.read(fd, 100).strip().isdigit()
    os.close(fd)
    for other in (path.with_name("name"), tmp_path / "secret", Path("/etc/shadow"), path.parent / "../x/energy_uj"):
        assert stand.asked(Question.ENERGY, path=str(other)) == errno.EPERM
    assert stand.asked(Question.ENERGY, path=["/etc/shadow"]) == errno.EINVAL


def test_a_loaded_file_is_opened_of_processes_of_the_user_alone(new_stand):
    stand = new_stand()
    with open(__file__, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(__file__))
        addresses = line.split()[0]
        begin, _, end = addresses.partition("-")
        addresses = f"{int(begin, 16):x}-{int(end, 16):x}"
        if os.geteuid() == 0:
            fd = stand.keeper.mapped(os.getpid(), addresses)
            assert os.path.sameopenfile(fd, file.fileno())
            os.close(fd)
        strangers = new_stand(uid=OTHERS)
        assert strangers.asked(Question.MAPPED, pid=os.getpid(), addresses=addresses) == errno.EPERM
    for addresses in ("../environ", "", "0-1/../../environ", "x"):
        assert stand.asked(Question.MAPPED, pid=os.getpid(), addresses=addresses) == errno.EINVAL
    assert stand.asked(Question.MAPPED, pid=1 << 22, addresses="0-1") == errno.ENOENT


def test_calls_are_counted_of_threads_of_the_user_alone(new_stand):
    strangers = new_stand(uid=OTHERS)
    with open(sys.executable, "rb") as file:
        asked = strangers.asked(Question.CALLS, file.fileno(), tid=os.getpid(), offset=0)
        assert asked == errno.EPERM
        assert strangers.asked(Question.CALLS, tid=os.getpid(), offset=0) == errno.EINVAL


def test_nothing_is_settled_under_observe(new_stand):
    assert new_stand(observe=True).asked(Question.SETTLE) == errno.EPERM


def test_ipmitool_is_asked_by_root_and_ends_with_the_keeper(new_stand, tmp_path, monkeypatch):
    program = tmp_path / "ipmitool"
    program.write_text('#!/bin/sh\necho "Instantaneous power reading: 321 Watts$HOME"\n')
    program.chmod(0o755)
    monkeypatch.setattr(openings, "SYSTEM_PATH", f"{tmp_path}:/usr/bin:/bin")
    assert new_stand().asked(Question.METER) == errno.EPERM
    stand = new_stand(node_power="ipmi")
    monkeypatch.setattr(meters, "keeper", lambda: stand.keeper)
    clock = VirtualClock()
    meter = meters.IpmiMeter(clock)
    assert meter.read().power_w == 321.0
    program.write_text("#!/bin/sh\necho Instantaneous power reading: 322 Watts\n")
    clock.wait_until(1.5)
    eventually(lambda: meter.read().power_w == 322.0)
    stand.ours.shutdown(socket.SHUT_RDWR)
    stand.thread.join(30.0)
    for t_s in (3.0, 4.5, 60.0):  # its shell has ended, and there is no other
        clock.wait_until(t_s)
        eventually(lambda: meter.read().power_w is None or clock.now() < 60.0)
    meter.close()


def test_a_keeper_that_is_gone_is_said(new_stand):
    stand = new_stand()
    stand.process.stop()
    stand.thread.join(30.0)
    with pytest.raises(OSError, match=r"(Broken pipe|has ended)"):
        stand.keeper.settle()


def test_a_session_without_sudo_has_no_keeper():
    assert of_session.keeper() is None


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a keeper")
def test_a_keeper_is_ended_by_root_and_by_the_end_of_its_session(tmp_path):
    from autocap.limits.watchdog import interpreter

    for how in ("SIGTERM", "the session's end"):
        session = subprocess.Popen(["sleep", "60"])
        pidfd = os.pidfd_open(session.pid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        charge = {"uid": 1, "gid": 1, "groups": [], "session": session.pid, "device": "emulated"}
        socket.send_fds(ours, [json.dumps(charge).encode()], [pidfd])
        with theirs:
            process = interpreter("autocap.limits.keeper.process", stdin=theirs.fileno())
        with pytest.raises(OSError, match="no such question"):
            Keeper(ours)._ask("nothing")  # type: ignore[arg-type]  # it is there
        if how == "SIGTERM":
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
        else:
            session.kill()
            session.wait()
        process.wait(60.0)
        session.kill()
        session.wait()
        os.close(pidfd)
        ours.close()
