"""What is remembered on disk: private, bounded, and nobody else's; it comes back as it was, and damage is never more
than nothing."""

import json
import os
import random
import stat
from dataclasses import replace
from datetime import timedelta
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.errors import MemoryUnavailable
from autocap.job.invoking_user import InvokingUser
from autocap.knobs import Knob
from autocap.runlog import output_directory
from autocap.runlog.memory import store as store_module
from autocap.runlog.memory.job import Job
from autocap.runlog.memory.store import (
    MOST_BYTES,
    MOST_CURVES,
    MOST_POINTS,
    Entry,
    MemoryStore,
    Point,
    default_place,
    from_bytes,
    key_of,
    shortened,
    to_bytes,
    with_curve,
)
from tests.doubles.arbitrary import measurements
from tests.doubles.knob_logs import CLOCK, MODE, SETTINGS, keys_in, remembered
from tests.doubles.memories import NOW, curve, entry, with_progress

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
    assert (store.read(entry().key), store.entries(), store.forget_all()) == (None, [], (0, 0))
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
    with pytest.raises(
        MemoryUnavailable, match=r"memory cannot be written: Not a directory; make it a directory of your"
    ):
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
    assert store.forget_all() == (1, 0)
    assert os.listdir(store.place) == ["notes.txt"]


WHOLE = entry("ab", curve({180.0: 80.0, 140.0: 85.0}, days=3), curve({160.0: 82.0}, kept_w=160.0))
WRITTEN = to_bytes(WHOLE)
REFUSED = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


@pytest.mark.slow
@given(measurements(), st.floats(min_value=1.0, max_value=1000.0))
def test_an_entry_comes_back_as_it_was(measured, cap_w) -> None:
    changed = replace(WHOLE.curves[1], points=(Point(setting=cap_w, measurement=measured),), baseline=measured)
    kept = replace(WHOLE, curves=(WHOLE.curves[0], changed))
    assert from_bytes(to_bytes(kept), kept.key) == kept


def read(text: bytes) -> Entry | None:
    try:
        return from_bytes(text, WHOLE.key)
    except REFUSED:
        return None


def test_damaged_bytes_are_refused_or_read_as_what_a_run_could_have_written() -> None:
    chance, different = random.Random(7), 0
    for _ in range(400):
        text = bytearray(WRITTEN)
        for _ in range(chance.choice((1, 1, 1, 8))):
            text[chance.randrange(len(text))] = chance.randrange(256)
        cut = bytes(text[: chance.choice((None, chance.randrange(len(text))))])
        found = read(cut)
        different += found != WHOLE
        if found is not None:
            assert from_bytes(to_bytes(found), found.key) == found
    assert different > 300


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format": 1', b'"format": 2'),
        (b'"format": 1', b'"format": true'),
        (b'"key": "ab', b'"key": "ac'),
        (b'"runs": 2', b'"runs": 0'),
        (b'"runs": 2', b'"runs": ' + b"9" * 40),
        (b'"gpus": ["Quadro RTX 6000"]', b'"gpus": []'),
        (b'"gpus": ["Quadro RTX 6000"]', b'"gpus": ["a", "b"]'),
        (b'"kept_w": 160.0', b'"kept_w": -160.0'),
        (b'"kept_w": 160.0', b'"kept_w": NaN'),
        (b'"kept_w": 160.0', b'"kept_w": "160"'),
        (b'"cap_w": 160.0', b'"cap_w": null'),
        (b'"cap_w": [160.0]', b'"cap_w": []'),
        (b'"cap_w": [160.0]', b'"cap_w": [0.0]'),
        (b'"period_s": 0.5', b'"period_s": 0.0'),
        (b'"valid": true', b'"valid": false'),
        (b'"holds": true', b'"holds": 1'),
        (b"2026-06-01T12:00:00+00:00", b"2026-06-01T12:00:00"),
        (b"2026-06-01T12:00:00+00:00", b"yesterday"),
        (b'"update_s": 0.1', b'"update_s": 0.0'),
        (b'"curves": [', b'"curves": {}, "x": ['),
        (b'"curves": [', b'"curves": [], "x": ['),
        (b'"curves": [', b'"curves": ' + b"[" * 100_000 + b", "),
        (b"\n", b" " * MOST_BYTES),
    ],
)
def test_what_this_version_would_not_have_written_is_refused(old: bytes, new: bytes) -> None:
    assert old in WRITTEN
    assert read(WRITTEN.replace(old, new)) is None


def test_of_each_cap_the_last_measurement_stays() -> None:
    first, second = curve({180.0: 80.0, 140.0: 85.0}, days=3), curve({180.0: 81.0})
    merged = with_curve([first], second)
    assert [[point.setting for point in one.points] for one in merged] == [[140.0], [180.0]]
    assert with_curve(merged, curve({140.0: 84.0})) == (second, curve({140.0: 84.0}))


def test_what_began_at_other_limits_or_was_counted_otherwise_stands_beside() -> None:
    first, lower = curve({180.0: 80.0}, days=1), curve({180.0: 81.0}, arrival_w=250.0)
    assert with_curve([first], lower) == (first, lower)
    assert with_curve([first], with_progress(first, "period")) == (first, with_progress(first, "period"))


def test_no_more_is_kept_than_has_room() -> None:
    kept = (curve({float(cap_w): 80.0 for cap_w in range(100, 105)}),)
    for number in range(1, 30):
        kept = with_curve(kept, curve({100.0 + 5 * number + each: 80.0 for each in range(5)}))
        assert sum(len(one.points) for one in kept) <= MOST_POINTS
        assert len(kept) <= MOST_CURVES
    assert from_bytes(to_bytes(entry("ab", *kept)), entry("ab").key).curves == kept
    longest = curve({float(cap_w): 80.0 for cap_w in range(100, 100 + MOST_POINTS + 9)})
    assert len(with_curve(kept, longest)) == 1
    assert len(with_curve(kept, longest)[0].points) == MOST_POINTS


def test_old_curves_and_those_of_the_future_are_not_fresh() -> None:
    kept = entry("ab", *(curve({180.0: 80.0}, days=days) for days in (91, 89, 0, -0.5, -2)))
    assert [NOW - one.when for one in kept.fresh(NOW)] == [timedelta(days=days) for days in (89, 0, -0.5)]


def test_a_command_of_any_length_is_shown_in_part() -> None:
    assert shortened(("a", "b")) == ("a", "b")
    assert shortened(("a", "x" * 70_000, "b")) == ("a", "…")


@pytest.mark.parametrize("knob", [CLOCK, MODE], ids=lambda knob: knob.name)
def test_of_another_knob_an_entry_is_kept_in_its_labels_or_values(knob: Knob) -> None:
    own = remembered(knob)
    text = to_bytes(own)
    assert from_bytes(text, own.key) == own
    assert not keys_in(json.loads(text)) & SETTINGS
    kept, arrival = {"clock": (1200.0, [1500.0]), "mode": ("eager", ["compiled"])}[knob.name]
    (written,) = json.loads(text)["curves"]
    assert (written["kept_setting"], written["baseline"]["setting"]) == (kept, arrival)
    shown = json.dumps(kept).encode()
    for damage in (b'"Eager"', b"1800.0", b"true", b'"1200"'):
        damaged = text.replace(b'"kept_setting": ' + shown, b'"kept_setting": ' + damage)
        assert damaged != text
        with pytest.raises(REFUSED):
            from_bytes(damaged, own.key)


def test_what_was_remembered_of_the_power_limit_keeps_its_form_and_its_name() -> None:
    """As they were before another knob could be turned: else all of it would be forgotten."""
    assert set(json.loads(WRITTEN)["setup"]) == {"kind", "emulated", "gpus", "driver", "node"}
    job = Job(command=("a",), words=("a",), environment=(("WORLD_SIZE", "2"),))
    assert key_of(job, WHOLE.setup) == "3db8e79e72a333c904bb04f5b4dd4efee2da5bfbc768a07771ebaee8e6539886"
    others = [replace(WHOLE.setup, knob=one) for one in (CLOCK, MODE, replace(CLOCK, values=CLOCK.values[1:]))]
    assert len({key_of(job, one) for one in (WHOLE.setup, *others)}) == 4
