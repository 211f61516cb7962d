"""What is on disk: entries, the directory they live in, and the locks beside them."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.devices.base import Setting
from autocap.errors import DeviceLocked, GuardError
from autocap.job.processes import ProcessId, boot_id
from autocap.limits.journal import DamagedEntry, Entry, Journal, Turned, decode, encode
from autocap.limits.lock import DeviceLock
from autocap.limits.state_dir import StateDir, default_path

ENTRY = Entry(
    kind="file", uuid="GPU-1234", original_w=260.0, boot_id=boot_id(), owner=ProcessId(12, 34), job=ProcessId(56, 78)
)
CLOCK = replace(ENTRY, original_w=1250.0, knob=Turned(name="clock", unit="MHz", tolerance=37.5))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def state(tmp_path):
    with StateDir(tmp_path / "state") as state:
        yield state


def test_after_a_set_only_its_value_is_ours():
    second = ENTRY.before_set(200.0, 260.0).after_set().before_set(180.0, 200.0).after_set().after_settling()
    assert second.is_ours(180.0)
    assert not second.is_ours(200.0)
    assert not second.is_ours(260.0)


def test_just_after_a_set_what_a_card_of_steps_makes_of_it_is_ours_as_well_and_nothing_else():
    just_set = ENTRY.before_set(170.0, 260.0)
    for entry in (just_set, just_set.after_set(), decode(encode(just_set))):
        assert all(map(entry.is_ours, (170.0, 150.0, 175.0)))
        assert not any(map(entry.is_ours, (151.3, 215.432, 100.0, 230.0)))
    made = just_set.after_set().after_step(150.0).after_settling()
    assert made.is_ours(150.0)
    assert not any(map(made.is_ours, (170.0, 175.0, 125.0)))


def test_an_entry_whose_device_is_settled_is_as_earlier_versions_know_it():
    assert b"settling" not in encode(ENTRY.before_set(170.0, 260.0).after_set().after_settling())
    with pytest.raises(ValueError, match="settling is neither true nor false"):
        decode(encode(ENTRY.before_set(170.0, 260.0)).replace(b'"settling": true', b'"settling": 1'))


def test_after_a_failed_set_the_value_still_on_the_device_is_ours():
    failed = ENTRY.before_set(200.0, 260.0).after_set().before_set(80.0, 200.0)
    retried = failed.before_set(180.0, 200.0)  # what the device still holds, not what it refused
    assert retried.is_ours(200.0)
    assert not retried.is_ours(80.0)


def test_limits_that_differ_by_a_milliwatt_are_the_same_and_by_a_watt_are_not():
    entry = ENTRY.before_set(200.0, 260.0).after_set()
    assert entry.is_ours(200.001)
    assert not entry.is_ours(201.0)


def test_the_file_is_durable_before_it_has_its_name_and_the_name_is_after(tmp_path):
    seen = []
    with StateDir(tmp_path / "state", sync=lambda _fd: seen.append(os.listdir(tmp_path / "state"))) as state:
        Journal(state).save(ENTRY)
    assert seen == [["GPU-1234.json.tmp"], ["GPU-1234.json"]]


def test_when_the_disk_is_full_the_former_entry_stands(tmp_path):
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with StateDir(tmp_path / "state") as state:
        Journal(state).save(ENTRY)
    with StateDir(tmp_path / "state", sync=full) as state:
        with pytest.raises(GuardError, match=r"entry of GPU-1234 cannot be written .* No space left .* no cap is set"):
            Journal(state).save(replace(ENTRY, next_w=200.0))
        assert Journal(state).load(ENTRY.uuid) == ENTRY
        assert state.names() == ["GPU-1234.json"]  # and no half of the new one


def require_said(state, entry, damage):
    """That an entry which was damaged so is said to be."""
    Journal(state).save(entry)
    path = state.path / "GPU-1234.json"
    text = path.read_text()
    assert damage(text) != text
    path.write_text(damage(text))
    with pytest.raises(DamagedEntry, match=r"GPU-1234\.json"):
        Journal(state).load(entry.uuid)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "[" * 60000,
        lambda text: text.replace("260.0", '"260"'),
        lambda text: text.replace("260.0", "-1"),
        lambda text: text.replace("260.0", "NaN"),
        lambda text: text.replace("260.0", "true"),
        lambda text: text.replace('"next_w": null', '"next_w": 1e999'),
        lambda text: text.replace('"pid": 12', '"pid": "12"'),
        lambda text: text.replace('"pid": 12', '"pid": -1'),
        lambda text: text.replace('"original_w": 260.0', '"original_w": null').replace('"last_w": null', '"last_w": 9'),
        lambda text: text.replace("GPU-1234", "GPU-5678"),
        lambda text: text.replace('"kind"', '"king"'),
        lambda text: text.replace('"settings": []', '"settings": [{"name": "enabled", "value": null}]'),
    ],
)
def test_a_damaged_entry_is_said_to_be_damaged(state, damage):
    require_said(state, ENTRY, damage)


def test_an_entry_from_before_there_were_settings_is_understood(state):
    Journal(state).save(ENTRY)
    path = state.path / "GPU-1234.json"
    fields = json.loads(path.read_text())
    del fields["settings"]
    path.write_text(json.dumps(fields))
    assert Journal(state).load(ENTRY.uuid) == ENTRY


def test_an_entry_of_an_earlier_version_that_names_files_to_remove_is_understood_and_none_is_removed(state, tmp_path):
    Journal(state).save(ENTRY)
    path, victim = state.path / "GPU-1234.json", tmp_path / "autocap-steps-1"
    victim.touch()
    fields = json.loads(path.read_text())
    assert fields["cleanup"] == []  # without the key an earlier version would take the entry for damaged
    path.write_text(json.dumps({**fields, "cleanup": [str(victim)]}))
    assert Journal(state).load(ENTRY.uuid) == ENTRY
    assert victim.exists()


def test_an_entry_of_another_version_is_not_taken_for_damaged(state):
    Journal(state).save(ENTRY)
    path = state.path / "GPU-1234.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 3'))
    with pytest.raises(GuardError, match="has schema 3, and this version knows 1 and 2 only") as caught:
        Journal(state).load(ENTRY.uuid)
    assert not isinstance(caught.value, DamagedEntry)


def test_an_entry_of_a_power_limit_is_to_the_byte_as_earlier_versions_wrote_it():
    owner = '"owner": {\n  "pid": 12,\n  "start_ticks": 34\n }'
    text = f"""{{
 "schema": 1,
 "cleanup": [],
 "kind": "file",
 "uuid": "GPU-1234",
 "original_w": 260.0,
 "boot_id": "{boot_id()}",
 {owner},
 "job": null,
 "last_w": 200.0,
 "next_w": 180.0,
 "settings": [
  {{
   "name": "enabled",
   "value": 1
  }}
 ],
 "settling": true
}}"""
    found = (Setting(name="enabled", value=1),)
    entry = replace(ENTRY, job=None, last_w=200.0, next_w=180.0, settings=found, settling=True)
    assert encode(entry).decode() == text


def test_an_entry_of_another_knob_has_a_schema_of_its_own_and_reads_back():
    entry = CLOCK.before_set(900.0, 1250.0)
    fields = json.loads(encode(entry))
    assert fields["schema"] == 2  # of which an earlier version says that it does not know it
    assert fields["knob"] == {"name": "clock", "unit": "MHz", "tolerance": 37.5}
    assert [fields[name] for name in ("original", "last", "next")] == [1250.0, None, 900.0]
    assert not any("_w" in name for name in fields)
    assert decode(encode(entry)) == entry


def test_values_of_another_knob_are_the_same_within_its_tolerance_and_no_device_makes_steps_of_them():
    entry = CLOCK.before_set(900.0, 1250.0)
    assert all(map(entry.is_ours, (900.0, 937.5, 862.5, 1250.0)))
    assert not any(map(entry.is_ours, (938.0, 875.0 - 37.5, 925.0 + 37.5)))
    assert not entry.settling


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"schema": 2', '"schema": 1'),
        lambda text: text.replace('"clock"', '"power-limit"'),
        lambda text: text.replace('"clock"', '"Clock"'),
        lambda text: text.replace('"clock"', '"clock\\n"'),
        lambda text: text.replace('"clock"', f'"{"c" * 33}"'),
        lambda text: text.replace('"clock"', "null"),
        lambda text: text.replace('"MHz"', '"\\u001b[2J"'),
        lambda text: text.replace('"MHz"', f'"{"M" * 33}"'),
        lambda text: text.replace('"MHz"', "7"),
        lambda text: text.replace("37.5", "0"),
        lambda text: text.replace("37.5", "-1"),
        lambda text: text.replace("37.5", "NaN"),
        lambda text: text.replace("37.5", "1e999"),
        lambda text: text.replace("37.5", "true"),
        lambda text: text.replace('"tolerance"', '"tolerances"'),
        lambda text: text.replace("1250.0", "1e999"),
        lambda text: text.replace("1250.0", "-" + "9" * 400),
        lambda text: text.replace("1250.0", "NaN"),
        lambda text: text.replace("1250.0", "false"),
        lambda text: text.replace('"original"', '"original_w"'),
        lambda text: text.replace('"original"', '"last_w": 1, "original"'),
        lambda text: text.replace('"original"', '"settings": [], "original"'),
        lambda text: text.replace('"original": 1250.0', '"original": null').replace('"last": null', '"last": 900'),
    ],
)
def test_a_damaged_entry_of_a_knob_is_said_to_be_damaged(state, damage):
    require_said(state, CLOCK, damage)


@pytest.mark.parametrize(
    ("become", "why"),
    [
        (lambda path: (path.rename(path.with_name("elsewhere")), path.symlink_to("elsewhere")), "is a symbolic link"),
        (lambda path: (path.unlink(), path.mkdir()), "is no regular file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is no regular file"),
        (lambda path: path.chmod(0o666), "can be written by others"),
        pytest.param(lambda path: os.chown(path, 65534, -1), "belongs to user 65534", marks=needs_root),
    ],
)
def test_an_entry_that_somebody_could_have_planted_is_refused(state, become, why):
    Journal(state).save(ENTRY)
    become(state.path / "GPU-1234.json")
    with pytest.raises(GuardError, match=rf"GPU-1234\.json {why}.* and is refused"):
        Journal(state).load(ENTRY.uuid)


def test_the_directory_and_its_parents_are_made_private(tmp_path):
    StateDir(tmp_path / "a" / "b").close()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


@pytest.mark.parametrize(
    ("become", "why"),
    [
        (lambda path: (path.rename(path.with_name("real")), path.symlink_to("real")), "is a symbolic link"),
        (lambda path: path.chmod(0o770), r"can be written by others \(mode 0770\)"),
        (lambda path: path.chmod(0o1777), "can be written by others"),
        (lambda path: (path.rmdir(), path.write_text("")), "cannot be used"),
        pytest.param(lambda path: os.chown(path, 65534, -1), "belongs to user 65534, not to user 0", marks=needs_root),
    ],
)
def test_a_directory_that_others_could_have_a_hand_in_is_refused(tmp_path, become, why):
    StateDir(tmp_path / "state").close()
    become(tmp_path / "state")
    with pytest.raises(GuardError, match=rf"state directory .*{why}.*AUTOCAP_STATE_DIR"):
        StateDir(tmp_path / "state")


def test_the_directory_is_where_the_contract_says(monkeypatch):
    monkeypatch.delenv("AUTOCAP_STATE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    usual = "/run/autocap" if os.geteuid() == 0 else "/home/ada/.local/state/autocap"
    assert default_path() == Path(usual)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", "here")
    assert default_path() == Path.cwd() / "here"


def test_a_user_of_whom_no_home_is_known_has_a_place_in_tmp(monkeypatch):
    monkeypatch.delenv("AUTOCAP_STATE_DIR", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    assert default_path() == Path("/tmp/autocap-54321")


def test_locks_of_different_devices_do_not_meet(state):
    with DeviceLock(state, "GPU-1"), DeviceLock(state, "GPU-2"):
        assert state.names() == ["GPU-1.lock", "GPU-2.lock"]


def test_whoever_waits_on_a_lock_file_that_is_removed_does_not_end_up_with_a_lock_of_its_own(state):
    held, count, most = [], 20, []

    def take_turns() -> None:
        for _ in range(count):
            with DeviceLock(state, "GPU-1", wait_s=20.0):
                held.append(1)
                most.append(len(held))
                held.pop()

    threads = [threading.Thread(target=take_turns) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * (3 * count)
    assert state.names() == []


def test_a_lock_is_inherited_by_no_program_and_falls_with_its_holder(state):
    code = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from autocap.limits.lock import DeviceLock\n"
        "from autocap.limits.state_dir import StateDir\n"
        "lock = DeviceLock(StateDir(Path(sys.argv[1])), 'GPU-1')\n"
        "child = subprocess.Popen(['sleep', '5'], close_fds=False, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(state.path)], stdout=subprocess.PIPE, text=True, check=False)
    try:
        assert state.names() == ["GPU-1.lock"]
        with DeviceLock(state, "GPU-1"):
            assert (state.path / "GPU-1.lock").read_text() == f"{os.getpid()}\n"
    finally:
        os.kill(int(done.stdout), 9)


def test_a_lock_file_that_is_a_symbolic_link_is_refused(state, tmp_path):
    (state.path / "GPU-1.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(GuardError, match=r"GPU-1\.lock is a symbolic link and is refused"):
        DeviceLock(state, "GPU-1")
    assert not (tmp_path / "victim").exists()


def test_a_device_that_the_helper_has_lent_is_not_had_by_ending_the_helper(state):
    code = (
        "import sys, time; from pathlib import Path; from autocap.limits.lock import DeviceLock; "
        "from autocap.limits.state_dir import StateDir; "
        "lock = DeviceLock(StateDir(Path(sys.argv[3])), 'GPU-1'); print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, "helper", "serve", str(state.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as helper:
        try:
            assert helper.stdout.readline() == "held\n"
            lent = f"is lent to somebody by the helper .PID {helper.pid}.; `autocap h"
            with pytest.raises(DeviceLocked, match=lent) as said:
                DeviceLock(state, "GPU-1")
        finally:
            helper.kill()
    assert "SIGTERM" not in str(said.value)
