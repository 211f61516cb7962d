"""The service as a process, above an emulated NVML library that it shares with nobody but its watchdogs: whoever is
killed, the limits come back."""

import grp
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autocap.errors import SetterUnavailable
from autocap.job.invoking_user import file_rights_of
from autocap.limits.helper.connection import connect
from autocap.limits.helper.protocol import Code, Devices, Done, Lent, Op
from autocap.testing.nvml import FileBoard, environment, machine
from autocap.wire.refusal import Refused
from bench.helper.served import fork_servers_of, watchdogs_of
from tests.doubles.waiting import eventually

FOUND_MW = (237_123, 241_007)
# Has both devices, sets caps and beats; and once more when it is told that limits were put back.
CLIENT = """
import sys, time
from pathlib import Path
from autocap.errors import SetterUnavailable
from autocap.limits.helper.connection import connect
from autocap.limits.helper.protocol import Beaten, Done, Lent, Op
helper = connect(Path(sys.argv[1]))
helper.ask(Op.LEND, Lent, devices=tuple(sys.argv[2:]))
caps = tuple(150.0 + number for number in range(len(sys.argv[2:])))
put_back = True
while True:
    if put_back:
        helper.ask(Op.SET, Done, watts=caps)
        print("set", flush=True)
    time.sleep(0.2)
    put_back = helper.ask(Op.BEAT, Beaten).put_back
"""


# As systemd starts a service: the socket is descriptor 3, and who it is for stands in the environment.
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.executable, [sys.executable, "-P", "-m", "autocap", "helper", "serve"])
"""


class Service:
    """A helper of ours. folder: which other users reach as well."""

    def __init__(self, folder: Path, *words: str) -> None:
        made = replace(machine("quadro-rtx-6000/resnet50", gpus=2, arrivals_mw=FOUND_MW), start_s=None)
        first = replace(made.cards[0], pids=(os.getpid(),))  # we compute on it
        self.board = FileBoard.create(folder / "machine.json", made.with_card(0, first))
        self.uuids = tuple(card.uuid for card in made.cards)
        self.state_dir = folder / "state"
        self.path = self.state_dir / "helper.sock"
        self.env = environment(folder / "machine.json") | {"AUTOCAP_STATE_DIR": str(self.state_dir)}
        self.env["AUTOCAP_HELPER"] = str(self.path)
        self.env.pop("AUTOCAP_OBSERVE", None)
        self._words = words
        self._processes: list[subprocess.Popen[str]] = []
        self.process = self.start()

    def start(self) -> "subprocess.Popen[str]":
        words = [sys.executable, "-P", "-m", "autocap", "helper", "serve", *self._words]
        self.process = subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, text=True)
        self._processes.append(self.process)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if "autocap helper serves" in line:
                break
        else:
            pytest.fail("".join(self.said))
        return self.process

    def client(self) -> "subprocess.Popen[str]":
        """One that has set its caps."""
        words = [sys.executable, "-P", "-c", CLIENT, str(self.path), *self.uuids]
        made = subprocess.Popen(words, env=self.env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._processes.append(made)
        assert made.stdout.readline() == "set\n"
        assert self.limits_mw() == (150_000, 151_000)
        return made

    def limits_mw(self) -> tuple[int, ...]:
        return tuple(self.board.requested_mw(gpu) for gpu in range(2))

    def are_back(self) -> bool:
        return self.limits_mw() == FOUND_MW

    def end(self) -> None:
        started: list[psutil.Process] = []
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                started += psutil.Process(process.pid).children(recursive=True)
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
        psutil.wait_procs(started, 30.0)  # watchdogs write to the state directory until they end


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_a_client_that_dies_or_is_stopped_has_its_limits_put_back(service):
    client = service.client()
    client.kill()
    eventually(service.are_back)
    client = service.client()
    client.send_signal(signal.SIGSTOP)
    eventually(service.are_back)
    client.send_signal(signal.SIGCONT)
    assert client.stdout.readline() == "set\n"  # it was told, and has set them again
    os.killpg(client.pid, signal.SIGKILL)
    eventually(service.are_back)
    eventually(lambda: not watchdogs_of(service.process.pid))  # none is left over
    assert psutil.Process(service.process.pid).memory_info().rss < 30e6


@pytest.mark.slow
def test_the_helper_puts_back_what_is_lent_when_it_is_told_to_end(service):
    service.client()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait() == 0
    assert service.are_back()
    assert os.listdir(service.state_dir) == []


@pytest.mark.slow
def test_a_killed_helpers_watchdog_puts_back_and_the_next_one_begins_anew(service):
    service.client()
    started = psutil.Process(service.process.pid).children(recursive=True)
    assert len(started) == 2  # a watchdog, and what forked it
    service.process.kill()
    eventually(service.are_back)
    assert not psutil.wait_procs(started, 30.0)[1]
    service.start()
    eventually(lambda: os.listdir(service.state_dir) == ["helper.sock"])
    service.client()


@pytest.mark.slow
def test_without_the_process_that_forks_watchdogs_a_lease_goes_on_and_the_next_begins(service):
    client = service.client()
    (watchdog,), (server,) = watchdogs_of(service.process.pid), fork_servers_of(service.process.pid)
    os.kill(server, signal.SIGKILL)
    client.kill()  # for which the watchdog that is left is not needed
    eventually(service.are_back)
    eventually(lambda: not psutil.pid_exists(watchdog))
    service.client()
    (other,) = fork_servers_of(service.process.pid)
    assert other != server
    os.kill(other, signal.SIGKILL)
    service.process.kill()  # now it is
    eventually(service.are_back)


@pytest.mark.slow
def test_what_a_helper_left_that_died_with_its_watchdogs_the_next_one_puts_back_before_it_serves(service):
    client = service.client()
    (watchdog,) = watchdogs_of(service.process.pid)
    service.process.send_signal(signal.SIGSTOP)
    os.kill(watchdog, signal.SIGKILL)
    service.process.kill()
    client.wait()
    assert service.limits_mw() == (150_000, 151_000)
    service.start()
    assert service.are_back()
    said = [line for line in service.said if "left by an earlier owner" in line]
    assert len(said) == 2
    assert "237.123 W put back" in "".join(said)


@pytest.mark.slow
def test_systemds_socket_is_served_and_who_came_before_the_service_is_not_lost(service):
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait() == 0
    path = service.state_dir.with_name("activated.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as early:
            early.connect(str(path))
            early.sendall(b'{"v":1,"id":1,"op":"hello"}\n')
            fd = listener.fileno()
            words = [sys.executable, "-c", ACTIVATE, str(fd)]
            with subprocess.Popen(words, env=service.env, pass_fds=[fd], stderr=subprocess.DEVNULL) as activated:
                early.settimeout(30.0)
                assert json.loads(early.recv(4096))["uid"] == os.geteuid()
                activated.send_signal(signal.SIGTERM)
    assert activated.returncode == 0
    assert path.exists()  # it is systemd's


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder through which other users reach what is in it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_another_users_devices_cannot_be_had_and_no_other_group_connects(reachable):
    group = next(group for group in grp.getgrall() if group.gr_gid != 0)
    service = Service(reachable, "--group", group.gr_name)
    try:
        with file_rights_of(20_001, 20_001), pytest.raises(SetterUnavailable, match="is for the group"):
            connect(service.path)
        with file_rights_of(20_001, group.gr_gid):
            helper = connect(service.path)
        with closing(helper):
            assert helper.hello.uid == 20_001
            with pytest.raises(Refused, match=f"process {os.getpid()} of root computes on it") as refused:
                helper.ask(Op.LEND, Lent, devices=service.uuids)
            assert refused.value.refusal.code is Code.NOT_ALLOWED
            assert [offer.allowed for offer in helper.ask(Op.DEVICES, Devices).devices] == [False, True]
            helper.ask(Op.LEND, Lent, devices=service.uuids[1:])
            helper.ask(Op.SET, Done, watts=(160.0,))
            assert service.limits_mw() == (FOUND_MW[0], 160_000)
            words = [sys.executable, "-P", "-m", "autocap", "helper", "status", "--json"]
            shown = json.loads(subprocess.run(words, env=service.env, check=True, capture_output=True).stdout)
            assert [lease["uid"] for lease in shown["leases"]] == [20_001]
            assert [device["lent_to"] is None for device in shown["devices"]] == [True, False]
        eventually(service.are_back)
    finally:
        service.end()


def restored_by_root(service: Service, **variables: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-P", "-m", "autocap", "restore"]
    return subprocess.run(words, env=service.env | variables, capture_output=True, text=True, timeout=60.0, check=False)


def said(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """But for what another test's killed run has left in /dev/shm meanwhile."""
    return [line for line in done.stdout.splitlines() if "step counter" not in line]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root ends leases")
def test_restore_as_root_ends_a_lease_and_says_whose_it_was_and_what_the_limits_are(service):
    client = service.client()
    observed = restored_by_root(service, AUTOCAP_OBSERVE="1")
    assert f"{service.uuids[0]}: the helper's lease of root (PID {client.pid}) would be ended" in observed.stdout
    assert service.limits_mw() == (150_000, 151_000)
    done = restored_by_root(service)
    assert service.are_back()
    assert (done.returncode, done.stderr) == (0, "")
    assert said(done) == [
        f"{uuid}: the helper's lease of root (PID {client.pid}) was ended; its limit is {found_mw / 1000:g} W now"
        for uuid, found_mw in zip(service.uuids, FOUND_MW, strict=True)
    ]
    assert client.wait(120.0) == 1  # its next beat was refused
    assert said(restored_by_root(service)) == [f"nothing to put back in {service.state_dir}"]
    service.client()  # the helper goes on, and lends them anew
