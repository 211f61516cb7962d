"""A process that can open no further file goes on holding its caps, guarded, and puts them back."""

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.job.processes import SpareDescriptors, boot_id, own_identity
from autocap.limits.journal import SUFFIX, Entry, HeldFile, Journal, file_name
from autocap.limits.state_dir import StateDir
from tests.doubles.file_device import KeptLimits
from tests.doubles.jobs import no_descriptors
from tests.doubles.waiting import eventually
from tests.limits.test_guardian import guard
from tests.limits.test_watchdog import WITHIN_DEATH_S, at, controller, settled, wait_for, watchdogs


def test_caps_are_set_and_put_back_without_a_descriptor(state_dir, gpu):
    with guard(state_dir, gpu, limits=KeptLimits(gpu.uuid)) as guardian:
        guardian.rehearse()
        with no_descriptors():
            for cap_w in (200.0, 190.0, 180.0):
                guardian.set_caps([cap_w])
                assert not guardian.beat()
            (restored,) = guardian.restore()
            assert (restored.final_w, restored.restored) == (260.0, True)
            guardian.set_caps([170.0])
            guardian.__exit__(None, None, None)
        assert at(gpu, 260.0)()
        assert os.listdir(state_dir) == []
    assert watchdogs(os.getpid()) == []


@pytest.mark.slow
def test_a_watchdog_that_dies_is_replaced_without_a_descriptor(state_dir, gpu):
    with guard(state_dir, gpu, limits=KeptLimits(gpu.uuid)) as guardian:
        guardian.set_caps([200.0])
        for _ in range(2):
            (first,) = watchdogs(os.getpid())
            first.kill()
            os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
            with no_descriptors():
                assert guardian.beat()
                guardian.set_caps([190.0])
            (second,) = watchdogs(os.getpid())
            assert second.pid != first.pid


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_watchdog_puts_limits_back_without_a_descriptor(state_dir, gpu, how):
    with controller(state_dir, gpu, options=("--kept",)) as process:
        wait_for(process, "set 180")
        (watchdog,) = watchdogs(process.pid)
        for pid in (process.pid, watchdog.pid):
            lowest = 1 + max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, lowest))
        process.send_signal(how)
        eventually(at(gpu, 260.0), WITHIN_DEATH_S + 2.0)
        if how == signal.SIGKILL:
            eventually(settled(state_dir), 5.0)


@pytest.fixture
def state(state_dir: Path) -> Iterator[StateDir]:
    with StateDir(state_dir) as made:
        yield made


@pytest.fixture
def entry() -> Entry:
    return Entry(kind="file", uuid="GPU-1", original_w=260.0, boot_id=boot_id(), owner=own_identity(), job=None)


def test_a_held_entry_is_replaced_as_a_whole_at_every_step(tmp_path, entry):
    """At each sync the entry reads as the old or the new one, and only a held one's spare stands beside it."""
    seen: list[tuple[float | None, list[str]]] = []
    path = tmp_path / "state" / "GPU-1.json"

    def look(_fd: int) -> None:
        if path.exists():
            seen.append((json.loads(path.read_text())["last_w"], sorted(os.listdir(path.parent))))

    with StateDir(tmp_path / "state", sync=look) as state:
        journal = Journal(state)
        journal.save(entry)
        journal.hold("GPU-1")
        seen.clear()
        for watts in (200.0, 190.0):
            journal.save(entry.before_set(100.0, watts))
        both = ["GPU-1.json", "GPU-1.json.tmp"]
        assert seen == [(None, both), (200.0, both), (200.0, both), (190.0, both)]
        journal.let_go()
        assert state.names() == ["GPU-1.json"]


@pytest.mark.parametrize("left", [["GPU-1.json.tmp"], ["GPU-1.json.old"], ["GPU-1.json.tmp", "GPU-1.json.old"]])
def test_what_a_writer_leaves_that_is_killed_in_between_is_in_nobodys_way(state, entry, left):
    for name in left:
        (state.path / name).write_text("{")
    journal = Journal(state)
    journal.save(entry)
    journal.hold("GPU-1")
    journal.save(entry.before_set(200.0, 260.0))
    assert journal.load("GPU-1") == entry.before_set(200.0, 260.0)
    journal.delete("GPU-1")
    assert state.names() == []


def _no_links(state: StateDir) -> None:
    def link(old: str, new: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    state.link = link  # type: ignore[method-assign]  # a file system that has none


def _replace_spare(state: StateDir) -> None:
    state.unlink("GPU-1.json.tmp")
    (state.path / "GPU-1.json.tmp").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    "become",
    [
        pytest.param(lambda state: state.unlink("GPU-1.json"), id="no entry"),
        pytest.param(lambda state: state.unlink("GPU-1.json.tmp"), id="no spare"),
        _replace_spare,
        _no_links,
    ],
)
def test_a_held_entry_that_cannot_be_replaced_so_is_written_the_other_way(state, entry, become):
    journal = Journal(state)
    journal.save(entry)
    journal.hold("GPU-1")
    become(state)
    for watts in (200.0, 190.0):
        journal.save(entry.before_set(watts, 260.0))
        assert journal.load("GPU-1") == entry.before_set(watts, 260.0)
    journal.delete("GPU-1")
    assert state.names() == []


def test_a_held_file_that_shrinks_leaves_no_end_of_the_former_one(state):
    state.write("GPU-1.json", b"x" * 100)
    held = HeldFile(state, file_name("GPU-1", SUFFIX))
    for data in (b"a" * 50, b"b" * 60, b"c", b""):
        held.write(data)
        assert state.read("GPU-1.json") == data
    held.close()


def test_spare_descriptors_are_there_when_no_other_is():
    spare = SpareDescriptors(4)
    with no_descriptors():
        for _ in range(2):
            with spare.lent():
                opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
                with pytest.raises(OSError, match="Too many open files"):
                    os.open("/dev/null", os.O_RDONLY)
                for fd in opened:
                    os.close(fd)
    spare.close()
