"""The watchdog with real processes: controllers that are killed, stopped and crash at every moment of a set."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autocap.errors import GuardError
from autocap.job.processes import ProcessId, boot_id, own_identity
from autocap.job.shared_files import SharedFile
from autocap.limits import Fate, Guardian, settle
from autocap.limits.journal import Entry, Journal
from autocap.limits.state_dir import StateDir
from autocap.limits.times import STOPPED_BACK_S
from autocap.limits.watchdog import Duty, Watchdog
from autocap.records import GpuInfo
from tests.doubles import file_device, warm
from tests.doubles.file_device import FileLimits
from tests.doubles.waiting import eventually

ROOT = Path(__file__).parents[2]
WITHIN_DEATH_S = 1.0  # the contract's figures
WITHIN_SILENCE_S = 2.0
LOADED_S = 1.0  # what a test machine that is busy with something else may add


@contextmanager
def controller(
    state_dir: Path, *gpus: GpuInfo, caps: str = "200,180", options: tuple[str, ...] = ()
) -> Iterator[warm.WarmProcess]:
    """A controller in a process of its own; its watchdog is waited for at the end."""
    uuids = ",".join(gpu.uuid for gpu in gpus)
    command = [sys.executable, "-m", "tests.doubles.file_device.holder", str(state_dir), uuids, caps, *options]
    with warm.start(command, env=os.environ, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            eventually(lambda: not watchdogs(process.pid), 10.0)


def wait_for(process: warm.WarmProcess, line: str) -> None:
    """Read the controller's words up to some line; one that does not say it is killed, and the test fails."""
    assert process.stdout is not None
    patience = threading.Timer(20.0, process.kill)
    patience.start()
    try:
        assert any(said.strip() == line for said in process.stdout), f"the controller never said '{line}'"
    finally:
        patience.cancel()


def watchdogs(owner_pid: int) -> list[psutil.Process]:
    """The watchdogs of a controller, dead or alive, by the owner on their command line."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.startswith(f"{owner_pid}:") for word in words[-4:]) and "-I" in words:
            found.append(process)
    return found


def at(gpu: GpuInfo, limit_w: float) -> Callable[[], bool]:
    return lambda: FileLimits().requested_w(gpu.uuid) == limit_w


def settled(state_dir: Path) -> Callable[[], bool]:
    return lambda: os.listdir(state_dir) == []


def test_the_limit_is_back_at_once_when_the_controller_is_killed(state_dir, gpu):
    with controller(state_dir, gpu) as process:
        wait_for(process, "set 180")
        process.kill()
        eventually(at(gpu, 260.0), WITHIN_DEATH_S)
        eventually(settled(state_dir), 5.0)
    assert [cap_w for _, cap_w in file_device.sets(gpu.uuid)] == [200.0, 180.0, 260.0]


# Calls of one run that sets two caps: the limit is read on arrival and before each set; the entry is made durable
# (file and folder: two fsyncs) on arrival and before and after each set.
@pytest.mark.parametrize(
    "point",
    [f"requested {n}" for n in range(3)]
    + [f"fsync {n}" for n in range(10)]
    + [f"{moment} {n}" for moment in ("setting", "set") for n in range(2)],
)
def test_the_limit_is_back_from_every_moment_at_which_the_controller_can_be_killed(state_dir, gpu, point):
    with controller(state_dir, gpu, options=("--die", point)) as process:
        assert process.wait(120) == -signal.SIGKILL
        eventually(lambda: not watchdogs(process.pid), 10.0)
    for _ in range(2):  # what the watchdog could not know of is settled by `autocap restore`, and that for good
        left = settle(state_dir)
        assert all(one.outcome is Fate.UNCHANGED for one in left)
    assert at(gpu, 260.0)()
    assert os.listdir(state_dir) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["fsync 2", "fsync 3", "setting 0", "set 0", "fsync 4", "fsync 6", "setting 1", "set 1"]
)
@pytest.mark.parametrize("by", ["restore", "the next run"])
def test_after_a_crash_of_both_the_limit_is_put_back_later(state_dir, gpu, point, by):
    with controller(state_dir, gpu, options=("--die", point, "--both")) as process:
        assert process.wait(120) == -signal.SIGKILL
    if by == "the next run":
        with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
            assert guardian.original_w == (260.0,)
    settle(state_dir)
    assert at(gpu, 260.0)()
    assert os.listdir(state_dir) == []


@pytest.mark.slow
def test_a_run_that_starts_at_the_moment_of_the_death_reads_the_limit_found_by_the_first(state_dir, gpu):
    for _ in range(3):
        with controller(state_dir, gpu) as process:
            wait_for(process, "set 180")
            process.kill()
            with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
                assert guardian.original_w == (260.0,)
                guardian.set_caps([170.0])
                eventually(lambda: not watchdogs(process.pid), 10.0)  # the dead run's has seen that it is not its turn
                assert at(gpu, 170.0)()
        assert at(gpu, 260.0)()


@pytest.mark.slow
def test_a_stopped_controller_loses_its_caps_within_two_seconds_and_has_them_guarded_again_when_it_goes_on(
    state_dir, gpu
):
    with controller(state_dir, gpu) as process:
        wait_for(process, "set 180")
        process.send_signal(signal.SIGSTOP)
        eventually(at(gpu, 260.0), WITHIN_SILENCE_S + LOADED_S)
        file_device.put(gpu.uuid, 180.0)  # as if it had been stopped in the middle of its set
        eventually(at(gpu, 260.0), 1.0 + LOADED_S)
        process.send_signal(signal.SIGCONT)
        wait_for(process, "put back")
        wait_for(process, "set 180")
        process.kill()
        eventually(at(gpu, 260.0), WITHIN_DEATH_S)


@pytest.mark.parametrize(("options", "stopped"), [((), True), (("--leak", "exec"), False), (("--leak", "fork"), False)])
def test_neither_a_stop_nor_a_child_that_outlives_it_hides_a_controllers_death(state_dir, gpu, options, stopped):
    with controller(state_dir, gpu, options=options) as process:
        wait_for(process, "set 180")
        if stopped:
            process.send_signal(signal.SIGSTOP)
        process.kill()
        eventually(at(gpu, 260.0), WITHIN_DEATH_S)  # a heartbeat held open would look like a hang, which takes 1.5 s
        eventually(settled(state_dir), 5.0)


def test_somebody_elses_limit_stays_when_the_controller_is_killed(state_dir, gpu):
    with controller(state_dir, gpu) as process:
        wait_for(process, "set 180")
        file_device.put(gpu.uuid, 220.0)
        process.kill()
        eventually(settled(state_dir), 5.0)
    assert at(gpu, 220.0)()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_all_devices_are_put_back_and_one_that_hangs_delays_no_other(tmp_path, state_dir, signum):
    gpus = [file_device.make(tmp_path, 200.0 + n, f"gpu{n}") for n in range(5)]
    hangs = Path(gpus[0].uuid + ".hang")
    with controller(state_dir, *gpus) as process:
        wait_for(process, "set 180")
        hangs.touch()
        process.send_signal(signum)
        for n, gpu in enumerate(gpus[1:], 1):
            eventually(at(gpu, 200.0 + n), WITHIN_SILENCE_S + LOADED_S)
        assert at(gpus[0], 180.0)()
        hangs.unlink()
        eventually(at(gpus[0], 200.0), WITHIN_DEATH_S + LOADED_S)
        process.kill()
        eventually(settled(state_dir), 5.0)


@pytest.mark.slow
def test_a_child_forked_behind_pythons_back_delays_it_no_further_than_a_hang(state_dir, gpu):
    with controller(state_dir, gpu, options=("--leak", "raw fork")) as process:
        wait_for(process, "set 180")
        process.kill()
        eventually(at(gpu, 260.0), WITHIN_SILENCE_S + LOADED_S)
        eventually(lambda: not [name for name in os.listdir(state_dir) if name.endswith(".json")], 5.0)


def test_a_device_that_refuses_is_tried_until_it_takes_its_limit_back(state_dir, gpu):
    refuse = Path(gpu.uuid + ".refuse")
    with controller(state_dir, gpu) as process:
        wait_for(process, "set 180")
        refuse.touch()
        process.kill()
        assert process.stdout.read() == ""  # it ends although the watchdog goes on: that one has no hold of our output
        assert len(watchdogs(process.pid)) == 1
        assert at(gpu, 180.0)()
        refuse.unlink()
        eventually(at(gpu, 260.0), 1.0 + LOADED_S)


def test_the_step_map_of_a_killed_controller_is_removed_and_that_of_a_living_one_is_not(
    state_dir, gpu, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    living = SharedFile(tmp_path, 64)
    with controller(state_dir, gpu, options=("--shared-file", str(tmp_path))) as process:
        wait_for(process, "set 180")
        assert len(list(tmp_path.glob("autocap-steps-*"))) == 2
        process.kill()
    assert list(tmp_path.glob("autocap-steps-*")) == [living.path]
    living.close()


def test_an_emulated_job_that_was_stopped_goes_on_when_the_controller_is_killed(state_dir, gpu):
    with subprocess.Popen(["sleep", "30"]) as job:
        try:
            with controller(state_dir, gpu, options=("--emulated", str(job.pid))) as process:
                wait_for(process, "set 180")
                job.send_signal(signal.SIGSTOP)
                eventually(lambda: psutil.Process(job.pid).status() == psutil.STATUS_STOPPED, 5.0)
                process.kill()
                eventually(lambda: psutil.Process(job.pid).status() != psutil.STATUS_STOPPED, WITHIN_DEATH_S)
        finally:
            job.kill()


def test_a_watchdog_takes_no_signal_that_is_meant_for_its_controller(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        (watchdog,) = watchdogs(os.getpid())
        assert os.getsid(watchdog.pid) == watchdog.pid != os.getsid(0)
        assert watchdog.cwd() == "/"
        for name in ("INT", "HUP", "TERM", "QUIT", "TSTP", "TTIN", "TTOU", "USR1", "USR2", "PIPE", "ALRM"):
            watchdog.send_signal(getattr(signal, f"SIG{name}"))
        guardian.set_caps([200.0])
        assert not guardian.beat()
        assert [one.pid for one in watchdogs(os.getpid())] == [watchdog.pid]
        assert guardian.notes == ()
    assert watchdogs(os.getpid()) == []


def test_a_watchdog_starts_from_anywhere_and_without_the_step_hook(state_dir, gpu, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('the hook ran')")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "json.py"))
    monkeypatch.chdir(tmp_path)
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=Path("state")) as guardian:
        guardian.set_caps([200.0])
    assert at(gpu, 260.0)()


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_a_watchdog_that_dies_is_replaced_at_the_next_beat(state_dir, gpu, signum):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        (first,) = watchdogs(os.getpid())
        first.send_signal(signum)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        assert guardian.beat()
        assert not guardian.beat()
        (second,) = watchdogs(os.getpid())
        assert guardian.notes == (f"the watchdog process (PID {first.pid}) was lost; PID {second.pid} watches instead",)
        guardian.set_caps([190.0])
    assert at(gpu, 260.0)()
    assert watchdogs(os.getpid()) == []


@pytest.mark.slow
def test_a_watchdog_that_was_stopped_is_replaced_while_one_that_is_only_mute_for_a_moment_is_not(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        (first,) = watchdogs(os.getpid())
        first.send_signal(signal.SIGSTOP)
        assert not guardian.beat()
        assert not guardian.beat()  # stopped, but it may go on
        eventually(guardian.beat, STOPPED_BACK_S)
        (second,) = watchdogs(os.getpid())
        assert guardian.notes == (f"the watchdog process (PID {first.pid}) was lost; PID {second.pid} watches instead",)
    assert at(gpu, 260.0)()


@pytest.mark.slow
def test_without_a_watchdog_to_replace_the_dead_one_the_limit_is_put_back(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        (first,) = watchdogs(os.getpid())
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        state_dir.chmod(0o777)  # which no watchdog accepts
        with pytest.raises(GuardError, match=r"does not watch: the state directory .* can be written by others"):
            guardian.beat()
        assert at(gpu, 260.0)()
        with pytest.raises(GuardError, match="does not watch"):
            guardian.set_caps([190.0])
        assert at(gpu, 260.0)()
    state_dir.chmod(0o700)
    assert os.listdir(state_dir) == []


def test_a_silent_controller_hears_at_its_next_beat_that_its_cap_is_gone(state_dir, gpu):
    with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
        guardian.set_caps([200.0])
        eventually(at(gpu, 260.0), WITHIN_SILENCE_S + LOADED_S)
        guardian.set_caps([190.0])  # also without a beat in between: the original is not taken for somebody else's
        assert guardian.beat()
        assert at(gpu, 190.0)()
        assert not guardian.beat()


def test_a_watchdog_leaves_the_limit_of_another_owner_alone(state_dir, gpu):
    owner, other = own_identity(), ProcessId(own_identity().pid, own_identity().start_ticks - 1)
    told, ours = os.pipe()
    with StateDir(state_dir) as state, os.fdopen(told, "rb"), os.fdopen(ours, "wb"):
        entry = Entry(kind="file", uuid=gpu.uuid, original_w=230.0, last_w=260.0, boot_id=boot_id(), owner=other)
        duty = Duty(state_dir=state_dir, kind="file", owner=owner, job=None, uuids=(gpu.uuid,))
        watchdog = Watchdog(duty, state, FileLimits(), status_fd=ours)
        for who, expected_w in ((other, 260.0), (owner, 230.0)):
            Journal(state).save(replace(entry, owner=who))
            watchdog._put_all_back()
            assert at(gpu, expected_w)()
