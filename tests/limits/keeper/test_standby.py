"""A keeper's standby watches as a watchdog of an interpreter of its own does, one guardian after the other."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from autocap.job.keeper import Keeper
from autocap.limits.helper.client import RemoteGuardian, kept
from autocap.limits.keeper.charge import Charge
from autocap.limits.state_dir import VARIABLE
from autocap.limits.watchdog import interpreter
from autocap.wire.codec import encode
from bench.helper.served import watchdogs_of
from tests.doubles import file_device
from tests.doubles.file_device.source import FileDevice
from tests.doubles.waiting import eventually
from tests.limits.test_watchdog import LOADED_S, WITHIN_DEATH_S, WITHIN_SILENCE_S, at, controller, settled, wait_for


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_limit_is_back_in_time(state_dir, gpu, how):
    with controller(state_dir, gpu, options=("--standby",)) as process:
        wait_for(process, "set 180")
        (standby,) = psutil.Process(process.pid).children()
        process.send_signal(how)
        eventually(at(gpu, 260.0), (WITHIN_DEATH_S if how == signal.SIGKILL else WITHIN_SILENCE_S) + LOADED_S)
        process.kill()
        eventually(settled(state_dir), 5.0)
        eventually(lambda: not standby.is_running(), 10.0)  # it ends with its keeper


class Kept:
    """A keeper in a process of its own, with two devices. pid: its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "b").mkdir()
        self.gpus = [file_device.make(one, 260.0) for one in (folder, folder / "b")]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        named = f"file:{self.gpus[0].uuid}"
        charge = Charge(uid=os.getuid(), gid=os.getgid(), groups=(), session=os.getpid(), device=named)
        with theirs:
            own = os.pidfd_open(os.getpid())
            socket.send_fds(ours, [json.dumps(encode(charge)).encode()], [own])
            os.close(own)
            self.process = interpreter("autocap.limits.keeper.process", stdin=theirs.fileno())
        self.keeper, self.channel = Keeper(ours), ours

    def guardian(self) -> RemoteGuardian:
        device = FileDevice(Path(self.gpus[0].uuid), clock=None, observe=False)  # type: ignore[arg-type]  # not read
        return kept(self.keeper, device, device.gpus)

    def watchdogs(self) -> tuple[int, ...]:
        return watchdogs_of(self.process.pid)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "state"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    made = Kept(tmp_path)
    yield made
    made.channel.shutdown(socket.SHUT_RDWR)
    made.channel.close()
    assert made.process.wait(30.0) == 0


def descriptors(pid: int) -> set[str]:
    return {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.slow
def test_it_watches_one_guardian_after_the_other_and_keeps_nothing_of_them(stand):
    with stand.guardian():
        (standby,) = stand.watchdogs()
    idle = descriptors(standby)
    for _ in range(2):
        with stand.guardian() as guardian:
            guardian.set_caps((200.0,))
            assert stand.watchdogs() == (standby,)
            assert not guardian.beat()
        assert at(stand.gpus[0], 260.0)()
        eventually(lambda: descriptors(standby) == idle)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_lost_is_replaced_and_not_asked_again(stand, signum):
    with ExitStack() as stack:
        guardian = stack.enter_context(stand.guardian())
        guardian.set_caps((200.0,))
        (standby,) = stand.watchdogs()
        os.kill(standby, signum)
        eventually(guardian.beat, 10.0)
        (other,) = stand.watchdogs()
        assert guardian.notes == (f"the watchdog process (PID {standby}) was lost; PID {other} watches instead",)
        guardian.set_caps((190.0,))
    assert at(stand.gpus[0], 260.0)()
    with stand.guardian() as guardian:
        guardian.set_caps((180.0,))
        assert standby not in stand.watchdogs()
    assert at(stand.gpus[0], 260.0)()
