"""Whatever stands in the state directory is an entry or is said to be damaged, and no limit is lost in between."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocap.devices.base import Setting
from autocap.errors import GuardError
from autocap.job.processes import ProcessId
from autocap.limits.journal import SUFFIX, DamagedEntry, Entry, Journal, Turned, encode, file_name
from autocap.limits.state_dir import StateDir

watts = st.floats(min_value=1.0, max_value=1000.0)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
processes = st.builds(ProcessId, st.integers(1, 2**32), st.integers(0, 2**63))
settings_found = st.builds(Setting, name=words, value=st.integers())


def entries_of(numbers: st.SearchStrategy[float], **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Entry]:
    """numbers: of the limits or values in them."""
    return st.builds(
        Entry,
        kind=words,
        uuid=words,
        original_w=numbers,
        boot_id=words,
        owner=processes,
        job=st.none() | processes,
        last_w=st.none() | numbers,
        next_w=st.none() | numbers,
        **more,
    )


entries = entries_of(watts, settings=st.lists(settings_found, max_size=2).map(tuple))
values = st.floats(min_value=-1e9, max_value=1e9)
turned = st.builds(
    Turned,
    name=st.from_regex("[a-z][a-z0-9-]{,31}", fullmatch=True),
    unit=st.sampled_from(["", "MHz", "°C"]),
    tolerance=st.floats(min_value=1e-3, max_value=1e6),
)
entries_of_knobs = entries_of(values, knob=turned)
every = entries | entries_of_knobs


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory):
    with StateDir(tmp_path_factory.mktemp("guardian") / "state", sync=lambda fd: None) as made:
        yield made


@given(entry=every)
def test_every_entry_reads_back_as_it_was_written(state: StateDir, entry: Entry) -> None:
    journal = Journal(state)
    journal.save(entry)
    assert journal.load(entry.uuid) == entry
    journal.delete(entry.uuid)
    assert journal.load(entry.uuid) is None


@given(st.text(max_size=8), st.text(max_size=8))
@example("\U00100000", "%100000%")
@example("../../etc/passwd", "..")
@example("", "a.b")
@example("intel-rapl:0", "a%2fb")
@example("Ψ", "a b")
def test_different_devices_have_different_plain_file_names_that_name_them(state, one, other) -> None:
    name = file_name(one, SUFFIX)
    stem = name.removesuffix(SUFFIX)
    assert name == Path(name).name
    assert stem.isascii()
    assert "." not in stem
    assert Journal(state).device_of(name) == one
    assert (name == file_name(other, SUFFIX)) == (one == other)


@example(data=b"[" * 60_000)
@example(data=b"null")
@given(data=st.binary() | st.text().map(str.encode))
def test_bytes_that_are_no_entry_are_damaged(state: StateDir, data: bytes) -> None:
    state.write("GPU-1.json", data)
    with pytest.raises(DamagedEntry, match="GPU-1"):
        Journal(state).load("GPU-1")


@pytest.mark.slow
@given(
    entry=every,
    place=st.integers(min_value=0),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=4,
    ),
)
def test_an_entry_with_any_field_changed_is_refused_or_holds_limits_that_can_be_put_back(
    state: StateDir, entry: Entry, place: int, value: object
) -> None:
    fields = json.loads(encode(replace(entry, uuid="GPU-1")))
    fields[sorted(fields)[place % len(fields)]] = value
    state.write("GPU-1.json", json.dumps(fields).encode())
    try:
        found = Journal(state).load("GPU-1")
    except GuardError:  # of another version, or damaged
        return
    limits_w = [limit_w for limit_w in (found.original_w, found.last_w, found.next_w) if limit_w is not None]
    assert all(abs(limit_w) < float("inf") for limit_w in limits_w)
    assert not found.knob.is_power_limit or all(limit_w > 0 for limit_w in limits_w)
    assert found.original_w is not None or found.untouched


@given(entry=every, cut=st.integers(min_value=0))
def test_an_entry_cut_short_is_damaged(state: StateDir, entry: Entry, cut: int) -> None:
    Journal(state).save(replace(entry, uuid="GPU-1"))
    whole = state.read("GPU-1.json")
    state.write("GPU-1.json", whole[: cut % len(whole)])
    with pytest.raises(DamagedEntry, match="damaged"):
        Journal(state).load("GPU-1")


@given(
    original_w=watts,
    sets=st.lists(st.tuples(watts, st.sampled_from(["done", "killed before", "killed after", "refused", "restored"]))),
)
def test_whatever_was_set_and_whenever_it_is_killed_the_limit_on_the_device_is_known_for_ours(original_w, sets) -> None:
    entry = Entry(kind="", uuid="", original_w=original_w, boot_id="", owner=ProcessId(1, 1))
    device_w = original_w
    for cap_w, how in sets:
        entry = entry.before_set(cap_w, device_w)
        assert entry.is_ours(device_w)
        if how in ("killed before", "refused"):  # what follows a refusal begins from the limit that is there
            continue
        device_w = cap_w
        assert entry.is_ours(device_w)
        if how == "done":
            entry = entry.after_set()
        elif how == "restored":
            device_w, entry = original_w, entry.after_restore()
            assert entry.untouched
        assert entry.is_ours(device_w)
        assert entry.original_w == original_w
