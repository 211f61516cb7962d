"""What is remembered on disk: private, bounded, and nobody else's."""

import os
import stat
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest

from autocap.errors import MemoryUnavailable
from autocap.job.invoking_user import InvokingUser
from autocap.runlog import output_directory
from autocap.runlog.memory import store as store_module
from autocap.runlog.memory.store import Entry, MemoryStore, default_place
from tests.doubles.memories import entry

ADA = InvokingUser(uid=4242, gid=4242, groups=(4242,), name="ada", home="/home/ada")


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "state" / "autocap" / "memory")


def file_of(store: MemoryStore, kept: Entry) -> Path:
    return store.place / f"{kept.key}.json"


def kept(store: MemoryStore, *keys: str) -> list[Entry]:
    """Entries, that used longest ago first."""
    made = [entry(key) for key in keys]
    for second, one in enumerate(made):
        store.write(one)
        os.utime(file_of(store, one), (second, second))
    return made


def test_its_place_is_the_users_own_also_under_sudo() -> None:
    environ = {"XDG_STATE_HOME": "/var/root", "HOME": "/root"}
    assert default_place(None, environ) == Path("/var/root/autocap/memory")
    assert default_place(ADA, environ) == Path("/home/ada/.local/state/autocap/memory")
    assert default_place(replace(ADA, home="/"), environ) is None
    relative = default_place(None, {"XDG_STATE_HOME": "here"})
    assert relative == Path("~/.local/state/autocap/memory").expanduser()


def test_what_is_kept_is_read_again_and_is_the_users_alone(store: MemoryStore) -> None:
    assert (store.read(entry().key), store.entries(), store.forget_all()) == (None, [], 0)
    made = entry()
    before = os.umask(0)
    try:
        store.write(made)
    finally:
        os.umask(before)
    assert store.read(made.key) == made
    paths = (file_of(store, made), store.place, store.place.parent.parent)
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600, 0o700, 0o700]
    store.write(replace(made, runs=2))
    assert [one.runs for one in store.entries()] == [2]
    assert os.listdir(store.place) == [f"{made.key}.json"]


def test_entries_go_that_were_used_longest_ago(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_ENTRIES", 3)
    first, second, third = kept(store, "aa", "bb", "cc")
    store.use(first.key)
    last = entry("dd")
    store.write(last)
    assert {one.key for one in store.entries()} == {first.key, third.key, last.key}
    assert store.read(second.key) is None


def test_entries_go_where_they_take_too_many_bytes(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = kept(store, "aa", "bb", "cc")
    monkeypatch.setattr(store_module, "MOST_BYTES_IN_ALL", 1)
    new = entry("dd")
    store.write(new)
    assert [one.key for one in store.entries()] == [new.key]
    assert store.read(last.key) is None


def test_what_is_no_file_of_the_users_own_counts_as_not_there(store, tmp_path, monkeypatch) -> None:
    linked, fifo, folder, open_to_all, damaged = kept(store, "aa", "bb", "cc", "dd", "ee")
    elsewhere = tmp_path / "elsewhere"
    file_of(store, linked).rename(elsewhere)
    file_of(store, linked).symlink_to(elsewhere)
    for made in (fifo, folder):
        file_of(store, made).unlink()
    os.mkfifo(file_of(store, fifo))
    file_of(store, folder).mkdir()
    file_of(store, open_to_all).chmod(0o666)
    file_of(store, damaged).write_bytes(b"{")
    assert store.entries() == []
    for made in (linked, fifo, folder, open_to_all, damaged):
        assert store.read(made.key) is None
    store.write(linked)  # in place of the link, not through it
    store.write(damaged)
    assert {one.key for one in store.entries()} == {linked.key, damaged.key}
    assert elsewhere.read_bytes() == file_of(store, linked).read_bytes()
    assert not file_of(store, linked).is_symlink()


def test_what_belongs_to_somebody_else_is_neither_read_nor_written(store, monkeypatch) -> None:
    (made,) = kept(store, "aa")
    us = os.geteuid()
    whole = os.fstat
    in_folder = False

    def theirs(fd: int) -> os.stat_result:
        status = whole(fd)
        if stat.S_ISDIR(status.st_mode) is not in_folder:
            return status
        return os.stat_result((*status[:4], us + 1, *status[5:10]))

    monkeypatch.setattr(os, "fstat", theirs)
    assert store.read(made.key) is None
    in_folder = True
    assert store.read(made.key) is None
    with pytest.raises(MemoryUnavailable, match=f"belongs to user {us + 1}, so nothing is remembered there; make it"):
        store.entries()
    with pytest.raises(MemoryUnavailable, match="belongs to user"):
        store.write(made)
    monkeypatch.undo()
    assert store.read(made.key) == made


def test_a_directory_that_others_can_write_or_that_is_a_link_is_not_used(store: MemoryStore, tmp_path: Path) -> None:
    (made,) = kept(store, "aa")
    store.place.chmod(0o777)
    assert store.read(made.key) is None
    with pytest.raises(MemoryUnavailable, match=r"can be written by others \(mode 0777\)"):
        store.write(made)
    store.place.chmod(0o700)
    store.place.rename(tmp_path / "moved")
    store.place.symlink_to(tmp_path / "moved")
    assert store.read(made.key) is None
    with pytest.raises(MemoryUnavailable, match="cannot be written: "):
        store.write(made)


def test_where_nothing_can_be_kept_that_is_an_error_and_nothing_is_left(store, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").touch()
    blocked = MemoryStore(tmp_path / "file" / "memory")
    assert blocked.read(entry().key) is None
    with pytest.raises(MemoryUnavailable, match=r"memory cannot be written: Not a directory; make room or set its"):
        blocked.write(entry())
    (made,) = kept(store, "aa")

    def full(file: FileIO, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_directory, "write", full)
    with pytest.raises(MemoryUnavailable, match="No space left on device"):
        store.write(replace(made, runs=7))
    assert store.read(made.key) == made
    assert os.listdir(store.place) == [f"{made.key}.json"]


def test_an_entry_that_would_not_be_read_is_not_written(store: MemoryStore) -> None:
    with pytest.raises(MemoryUnavailable, match="what this run has shown is not remembered: it takes"):
        store.write(replace(entry(), command=("x" * 300_000,)))


def test_forgetting_removes_the_files_also_what_cannot_be_used_and_nothing_else(store: MemoryStore) -> None:
    first, second = kept(store, "aa", "bb")
    file_of(store, second).write_bytes(b"no JSON")
    (store.place / ".autocap-0123456789abcdef.tmp").touch()
    (store.place / "notes.txt").touch()
    store.forget(first.key)
    store.forget(first.key)
    assert store.read(first.key) is None
    assert store.forget_all() == 1
    assert os.listdir(store.place) == ["notes.txt"]
