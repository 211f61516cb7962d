"""The watchdog settles by its own copy of each entry, whatever becomes of the state directory."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.job.processes import ProcessId, boot_id, own_identity
from autocap.limits import Guardian
from autocap.limits.heartbeat import Heartbeat
from autocap.limits.journal import Entry, Journal, encode
from autocap.limits.lock import DeviceLock
from autocap.limits.state_dir import StateDir
from autocap.limits.watchdog import Duty, Watchdog
from autocap.records import GpuInfo
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits
from tests.doubles.waiting import eventually
from tests.limits.test_watchdog import LOADED_S, WITHIN_DEATH_S, WITHIN_SILENCE_S, at, controller, wait_for, watchdogs

DEAD = ProcessId(2**22 + 1, 1)  # above the largest PID


def _remove(path: Path) -> None:
    shutil.rmtree(path)


def _move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def _exchange(path: Path) -> None:
    _move(path)
    path.mkdir(mode=0o700)


def _with_last_w(path: Path, last_w: str) -> None:
    for file in path.glob("*.json"):
        file.write_text(file.read_text().replace('"last_w": 200.0', f'"last_w": {last_w}'))


def _older(path: Path) -> None:
    """Another cap was set then."""
    _with_last_w(path, "150.0")


GONE = [
    *(_remove, _move, _exchange, _older),
    pytest.param(lambda path: (_move(path), path.symlink_to(path.with_name("nowhere"))), id="link"),
    pytest.param(lambda path: [file.unlink() for file in path.iterdir()], id="empty"),
    pytest.param(lambda path: (_remove(path), path.write_text("in the way")), id="file"),
    pytest.param(lambda path: [file.write_bytes(b"\xff" * 100_000) for file in path.glob("*.json")], id="scribble"),
    pytest.param(lambda path: [(file.unlink(), file.mkdir()) for file in list(path.iterdir())], id="folders"),
    pytest.param(lambda path: _with_last_w(path, "null"), id="nothing had been set yet"),
    pytest.param(lambda path: path.chmod(0o777), id="open"),
]


class Scene:
    """A watchdog in this process, whose controller is another one: `owner`, with 200 W set where it found 260 W."""

    def __init__(self, state_dir: Path, gpu: GpuInfo, owner: ProcessId, status_fd: int) -> None:
        self.entry = Entry(
            kind="file", uuid=gpu.uuid, original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=owner, job=None
        )
        self.state = StateDir(state_dir)
        Journal(self.state).save(self.entry)
        duty = Duty(state_dir=state_dir, kind="file", owner=owner, job=None, uuids=(gpu.uuid,))
        self.watchdog = Watchdog(duty, self.state, FileLimits(), status_fd)
        self.tell(self.entry)
        file_device.put(gpu.uuid, 200.0)

    def tell(self, entry: Entry) -> None:
        self.watchdog._keep(encode(entry))


@contextmanager
def scene(state_dir: Path, gpu: GpuInfo, owner: ProcessId) -> Iterator[Scene]:
    told, ours = os.pipe()
    with os.fdopen(told, "rb"), os.fdopen(ours, "wb"):
        made = Scene(state_dir, gpu, owner, ours)
        with made.state:
            yield made
        made.watchdog._spare.close()
        made.watchdog._signs.close()


@pytest.mark.parametrize("become", GONE)
@pytest.mark.parametrize("dead", [True, False], ids=["dead", "silent"])
@pytest.mark.parametrize("there_w", [None, 150.0], ids=["ours", "somebody else's"])  # 150 W is of the older entry
def test_our_limit_alone_is_put_back_whatever_becomes_of_the_state_directory(state_dir, gpu, become, dead, there_w):
    with scene(state_dir, gpu, DEAD if dead else own_identity()) as on:
        become(state_dir)
        if there_w is not None:
            file_device.put(gpu.uuid, there_w)
        (on.watchdog._settle_all if dead else on.watchdog._put_all_back)()
        assert at(gpu, there_w or 260.0)()


@pytest.mark.parametrize("become", GONE)
def test_what_was_put_back_already_is_not_touched_again(state_dir, gpu, become):
    with scene(state_dir, gpu, DEAD) as on:
        on.tell(on.entry.after_restore())
        become(state_dir)
        on.watchdog._settle_all()
        assert at(gpu, 200.0)()  # by now somebody else's, although it once was ours


def test_a_device_that_another_controller_has_by_now_is_left_to_it(state_dir, gpu):
    with scene(state_dir, gpu, DEAD) as on, DeviceLock(on.state, gpu.uuid):
        Journal(on.state).save(replace(on.entry, original_w=260.0, owner=own_identity()))
        on.watchdog._settle_all()
        assert at(gpu, 200.0)()


@pytest.mark.parametrize("told", ["journal alone", "both", "copy alone"])
@pytest.mark.parametrize("is_set", [False, True])
def test_at_every_moment_of_a_set_either_record_is_enough(state_dir, gpu, told, is_set):
    """The journal is written, the watchdog is told, the limit is set: what is set was told."""
    if is_set and told == "journal alone":
        pytest.skip("no limit is set before the watchdog was told")
    with scene(state_dir, gpu, DEAD) as on:
        entry = on.entry.before_set(180.0, 200.0)
        if told != "copy alone":
            Journal(on.state).save(entry)
        if told != "journal alone":
            on.tell(entry)
        if is_set:
            file_device.put(gpu.uuid, 180.0)
        on.watchdog._settle_all()
        assert at(gpu, 260.0)()


@pytest.mark.parametrize(
    "message", [b"", b"null", b"[" * 60_000, b"\xff" * 65_000, b"{}", b'{"schema": 2}', b"b", b"q" * 100]
)
def test_a_message_that_is_no_entry_leaves_the_former_one_in_force(state_dir, gpu, message):
    with scene(state_dir, gpu, DEAD) as on:
        on.watchdog._keep(message)
        on.watchdog._keep(encode(replace(on.entry, uuid="another", original_w=100.0)))
        on.watchdog._keep(encode(replace(on.entry, owner=own_identity(), original_w=100.0)))
        _remove(state_dir)
        on.watchdog._settle_all()
        assert at(gpu, 260.0)()


@pytest.mark.parametrize(
    ("become", "signum", "within_s"),
    [
        (_remove, signal.SIGKILL, WITHIN_DEATH_S),
        (_older, signal.SIGKILL, WITHIN_DEATH_S),
        (_exchange, signal.SIGSTOP, WITHIN_SILENCE_S),
    ],
)
def test_a_controller_whose_state_directory_has_gone_leaves_no_limit_behind(state_dir, gpu, become, signum, within_s):
    with controller(state_dir, gpu, caps="150,200") as process:
        wait_for(process, "set 200")
        become(state_dir)
        process.send_signal(signum)
        eventually(at(gpu, 260.0), within_s + LOADED_S)


@pytest.mark.slow
def test_a_watchdog_that_replaces_another_knows_what_is_set(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        (first,) = watchdogs(os.getpid())
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        assert guardian.beat()
        _remove(state_dir)
        eventually(at(gpu, 260.0), WITHIN_SILENCE_S + LOADED_S)  # of this process, which gives no beat


@pytest.mark.slow
def test_a_watchdog_that_does_not_read_is_replaced_before_a_cap_is_set_and_never_waited_for(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        (first,) = watchdogs(os.getpid())
        first.suspend()
        entry = replace(guardian._guarded[0].entry)
        began_s = time.monotonic()
        while guardian._tell(entry):
            assert time.monotonic() - began_s < 5.0
        guardian.set_caps([190.0])
        (second,) = watchdogs(os.getpid())
        assert guardian.notes == (f"the watchdog process (PID {first.pid}) was lost; PID {second.pid} watches instead",)
        assert at(gpu, 190.0)()


def test_what_a_controller_had_told_before_it_was_killed_is_known_although_the_watchdog_was_stopped(state_dir, gpu):
    with controller(state_dir, gpu, options=("--stop-watchdog",)) as process:
        wait_for(process, "set 180")  # both told and set while nobody was listening
        (watchdog,) = watchdogs(process.pid)
        _remove(state_dir)
        process.kill()
        process.wait()
        watchdog.resume()
        eventually(at(gpu, 260.0), WITHIN_DEATH_S + LOADED_S)


def test_the_start_of_a_watchdog_that_cannot_be_told_everything_is_refused(state_dir, gpu):
    entry = Entry(kind="file", uuid=gpu.uuid, original_w=260.0, boot_id=boot_id(), owner=own_identity(), job=None)
    duty = Duty(state_dir=state_dir, kind="file", owner=own_identity(), job=None, uuids=(gpu.uuid,))
    start: Callable[[], Heartbeat] = lambda: Heartbeat(duty, entries=[entry] * 1000, ready_timeout_s=5.0)  # noqa: E731
    with pytest.raises(Exception, match=r"cannot be started .*: it could not be told of all devices"):
        start()
