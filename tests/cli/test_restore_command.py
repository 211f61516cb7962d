"""`autocap restore`: what it puts back, what it leaves alone, and what it says."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autocap.cli import main
from autocap.job.processes import ProcessId, boot_id, identify
from autocap.limits.helper.protocol import Answer, Code, Ended, LeasesEnded, LeaseStatus, Op, Refusal, Restored, Status
from autocap.limits.journal import Entry, Journal, Turned
from autocap.limits.lock import DeviceLock
from autocap.limits.state_dir import StateDir
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits
from tests.doubles.scripted_helper import Hangup, ScriptedHelper, scripted

NOBODY = ProcessId(2**22 + 1, 1)  # above the largest PID


@pytest.fixture
def state_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AUTOCAP_HELPER", str(tmp_path / "helper.sock"))
    monkeypatch.delenv("AUTOCAP_OBSERVE", raising=False)
    return tmp_path / "state"


@pytest.fixture
def gpu(tmp_path):
    return file_device.make(tmp_path)


def leave_entry(state_dir, gpu, **changes):
    """A run that found 260 W, set 200 W and was killed together with its watchdog; the entry's path."""
    entry = Entry(kind="file", uuid=gpu.uuid, original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=NOBODY)
    file_device.put(gpu.uuid, 200.0)
    with StateDir(state_dir) as state:
        Journal(state).save(replace(entry, **changes))
        (name,) = Journal(state).file_names()
    return state_dir / name


@pytest.fixture(autouse=True)
def no_step_maps(monkeypatch):
    """Runs that other tests kill at this moment leave theirs, which `tests/cli/test_step_map_files.py` is about."""
    monkeypatch.setattr("autocap.cli.restore.remove_dead", lambda observe: [])


def restore(capsys, *options):
    """Exit status and the lines on stdout."""
    status = main(["restore", *options])
    out, err = capsys.readouterr()
    assert err == ""
    return status, out.splitlines()


def limit_w(gpu):
    return FileLimits().requested_w(gpu.uuid)


def test_what_a_killed_run_left_is_put_back_and_said_once(state_dir, gpu, capsys):
    says = f"{gpu.uuid}: 260 W put back, where autocap with PID {NOBODY.pid} had left 200 W"
    leave_entry(state_dir, gpu)
    assert restore(capsys) == (0, [says])
    assert limit_w(gpu) == 260.0
    assert os.listdir(state_dir) == []
    assert restore(capsys) == (0, [f"nothing to put back in {state_dir}"])
    leave_entry(state_dir, gpu)
    status, (line,) = restore(capsys, "--json")
    assert (status, json.loads(line)) == (0, [{"uuid": gpu.uuid, "outcome": "restored", "sentence": says}])


def test_another_knob_that_a_killed_run_had_turned_is_put_back_and_said_with_its_unit(
    state_dir, gpu, capsys, monkeypatch
):
    knob = Turned(name="clock", unit="MHz", tolerance=37.5)
    says = f"{gpu.uuid}: clock 1250 MHz put back, where autocap with PID {NOBODY.pid} had left clock 900 MHz"
    for options in ((), ("--json",)):
        leave_entry(state_dir, gpu, original_w=1250.0, last_w=900.0, knob=knob)
        file_device.put_knob(gpu.uuid, "clock", 900.0)
        monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
        status, (line,) = restore(capsys, *options)
        assert status == 1
        assert f"{gpu.uuid}: clock 1250 MHz would be put back, unless somebody else has set a clock since" in line
        assert file_device.knob_at(gpu.uuid, "clock") == 900.0
        monkeypatch.delenv("AUTOCAP_OBSERVE")
        status, (line,) = restore(capsys, *options)
        said = [{"uuid": gpu.uuid, "outcome": "restored", "sentence": says}]
        assert (status, json.loads(line) if options else line) == (0, said if options else says)
        assert file_device.knob_at(gpu.uuid, "clock") == 1250.0
    assert limit_w(gpu) == 200.0  # which was not to be touched


def test_without_a_state_directory_there_is_nothing_to_do_and_none_is_made(state_dir, capsys):
    assert restore(capsys) == (0, [f"nothing to put back in {state_dir}"])
    assert restore(capsys, "--json") == (0, ["[]"])
    assert not state_dir.exists()


@pytest.mark.parametrize("changes", [{"last_w": 220.0, "next_w": 200.0}, {"owner": ProcessId(os.getppid(), 1)}])
def test_neither_a_set_that_was_under_way_nor_a_recycled_pid_keeps_an_entry_alive(state_dir, gpu, capsys, changes):
    leave_entry(state_dir, gpu, **changes)
    assert restore(capsys)[0] == 0
    assert limit_w(gpu) == 260.0


@pytest.mark.parametrize(
    ("there_w", "changes", "says"),
    [
        (230.0, {}, f"230 W was set by somebody else since autocap with PID {NOBODY.pid} ended, and stays"),
        (200.0, {"boot_id": "another boot"}, "the entry is from before a reboot, dropped"),
    ],
)
def test_what_is_not_ours_any_more_is_left_alone_and_its_entry_dropped(state_dir, gpu, capsys, there_w, changes, says):
    leave_entry(state_dir, gpu, **changes)
    file_device.put(gpu.uuid, there_w)
    assert restore(capsys) == (0, [f"{gpu.uuid}: {says}"])
    assert limit_w(gpu) == there_w
    assert os.listdir(state_dir) == []


def test_a_limit_that_is_back_already_is_not_set_again(state_dir, gpu, capsys):
    leave_entry(state_dir, gpu)
    file_device.put(gpu.uuid, 260.0)
    before = file_device.sets(gpu.uuid)
    status, (line,) = restore(capsys)
    assert status == 0
    assert line.endswith("it is at its 260 W already")
    assert file_device.sets(gpu.uuid) == before


def test_an_entry_of_a_live_run_is_in_use_and_untouched(state_dir, gpu, capsys):
    parent = identify(os.getppid())
    path = leave_entry(state_dir, gpu, owner=parent)
    assert restore(capsys) == (0, [f"{gpu.uuid} is in use by PID {parent.pid}"])
    assert limit_w(gpu) == 200.0
    assert path.exists()


@pytest.mark.parametrize(
    ("damage", "status", "says"), [(None, 0, "controlled by autocap with PID {}"), ("{", 1, "it was left there")]
)
def test_a_device_whose_lock_is_held_is_in_use_and_its_entry_left(state_dir, gpu, capsys, damage, status, says):
    path = leave_entry(state_dir, gpu)
    path.write_text(damage or path.read_text())
    with StateDir(state_dir) as state, DeviceLock(state, gpu.uuid):
        found, (line,) = restore(capsys)
    assert found == status
    assert says.format(os.getpid()) in line
    assert limit_w(gpu) == 200.0
    assert path.exists()


def test_a_device_that_refuses_keeps_its_entry_for_another_try(state_dir, gpu, capsys):
    path = leave_entry(state_dir, gpu)
    Path(gpu.uuid + ".refuse").touch()
    status, (line,) = restore(capsys)
    assert status == 1
    assert line.startswith(f"{gpu.uuid}: 260 W could not be put back: ")
    assert path.exists()
    Path(gpu.uuid + ".refuse").unlink()
    assert restore(capsys)[0] == 0
    assert limit_w(gpu) == 260.0


def test_one_entry_that_fails_does_not_stop_the_others(state_dir, tmp_path, capsys):
    gpus = [file_device.make(tmp_path, 260.0, f"gpu{n}") for n in range(3)]
    Path(gpus[1].uuid + ".refuse").touch()
    with StateDir(state_dir) as state:
        for gpu in gpus:
            entry = Entry(kind="file", uuid=gpu.uuid, original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=NOBODY)
            file_device.put(gpu.uuid, 200.0)
            Journal(state).save(entry)
    status, lines = restore(capsys)
    assert (status, len(lines)) == (1, 3)
    assert [limit_w(gpu) for gpu in gpus] == [260.0, 200.0, 260.0]


def _linked(path: Path) -> None:
    planted = path.rename(path.parent.with_name("planted"))
    path.symlink_to(planted)


@pytest.mark.parametrize(
    ("kind", "spoil", "says"),
    [
        ("unheard-of", Path.stat, "kind 'unheard-of'"),
        ("file", _linked, "{} is a symbolic link and is refused"),
        pytest.param(
            "file",
            lambda path: os.chown(path, 65534, -1),
            "belongs to user 65534, not to user 0 and is refused",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user"),
        ),
    ],
)
def test_an_entry_that_is_not_to_be_trusted_or_understood_is_left(state_dir, gpu, capsys, kind, spoil, says):
    path = leave_entry(state_dir, gpu, kind=kind)
    spoil(path)
    status, (line,) = restore(capsys)
    assert status == 1
    assert says.format(path) in line
    assert limit_w(gpu) == 200.0
    assert os.path.lexists(path)


def test_a_damaged_entry_is_set_aside_and_said(state_dir, gpu, capsys):
    path = leave_entry(state_dir, gpu)
    path.write_text("{")
    status, (line,) = restore(capsys)
    assert status == 1
    assert f"it is now {path.name}.damaged: check the limit of {gpu.uuid} yourself" in line
    assert os.listdir(state_dir) == [path.name + ".damaged"]
    assert restore(capsys)[0] == 0


def test_a_state_directory_that_others_can_write_is_an_error_of_one_line(state_dir, gpu, capsys):
    leave_entry(state_dir, gpu)
    state_dir.chmod(0o777)
    assert main(["restore"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("autocap: the state directory ")
    assert err.count("\n") == 1


def test_observing_says_what_would_be_done_and_does_nothing(state_dir, gpu, capsys, monkeypatch):
    path = leave_entry(state_dir, gpu)
    text = path.read_text()
    monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
    status, (line,) = restore(capsys)
    assert status == 1
    assert line.startswith(f"{gpu.uuid}: 260 W would be put back, unless somebody else")
    assert (limit_w(gpu), path.read_text(), os.listdir(state_dir)) == (200.0, text, [path.name])
    path.write_text("{")
    status, (line,) = restore(capsys)
    assert status == 1
    assert line.endswith("it would be set aside")
    assert path.read_text() == "{"
    monkeypatch.setenv("AUTOCAP_OBSERVE", "0")
    path.write_text(text)
    assert restore(capsys)[0] == 0
    assert limit_w(gpu) == 260.0


def test_the_remains_of_runs_killed_before_they_had_an_entry_are_swept_away(state_dir, gpu, capsys):
    leave_entry(state_dir, gpu)
    for name in ("GPU-1.lock", "GPU-2.json.tmp"):
        (state_dir / name).touch(0o600)
    assert restore(capsys)[0] == 0
    assert os.listdir(state_dir) == []


@pytest.mark.slow
def test_the_command_needs_no_numpy(state_dir):
    code = "import sys; from autocap.cli import main; main(['restore']); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.fixture
def lent(state_dir, gpu, tmp_path, capsys):
    """What `restore` says, with its exit status, of a device that is in use, beside a helper that answers so."""
    parent = identify(os.getppid())
    assert parent is not None
    leave_entry(state_dir, gpu, owner=parent)

    def said(answer: Answer | Refusal | bytes | Exception, *options: str) -> tuple[int, list[str], list[str]]:
        def script(request):
            if request.op is Op.HELLO:
                return None
            if isinstance(answer, Exception):
                raise answer
            return answer

        helper = ScriptedHelper(tmp_path / "helper.sock", script=script)
        with scripted(helper):
            status, lines = restore(capsys, *options)
        helper.path.unlink()
        assert limit_w(gpu) == 200.0  # whatever the helper says, it is not for us to set it
        return status, lines, helper.ops()

    return said


def lease(*uuids):
    return LeaseStatus(uid=20_001, user="alice", pid=77, devices=uuids, caps_w=(200.0,) * len(uuids), since="now")


root_alone = pytest.mark.skipif(os.geteuid() != 0, reason="only root ends leases")


@root_alone
def test_each_device_of_a_lease_that_was_ended_is_said(lent, gpu):
    limits = (
        Restored(uuid=gpu.uuid, original_w=260.0, final_w=260.0, restored=True),
        Restored(uuid="b", original_w=260.0, final_w=230.0, restored=False, note="b: 230 W is somebody else's"),
        Restored(uuid="c", original_w=260.0, final_w=None, restored=True),
    )
    answer = LeasesEnded(ended=(Ended(lease=lease(gpu.uuid, "b", "c", "d"), restored=limits),))
    whose = "the helper's lease of alice (PID 77) was ended"
    assert lent(answer) == (
        0,
        [
            f"{gpu.uuid}: {whose}; its limit is 260 W now",
            f"b: {whose}; its limit is 230 W now (b: 230 W is somebody else's)",
            f"c: {whose}; its limit cannot be read now",
            f"d: {whose} before it set a limit",
        ],
        ["end_leases"],
    )


@root_alone
def test_a_lease_that_is_not_over_or_whose_limit_stays_is_something_left_to_do(lent, gpu):
    status, (line,), _ = lent(LeasesEnded(ended=(Ended(lease=lease(gpu.uuid), restored=None),)))
    assert status == 1
    assert line.endswith("(PID 77) was to be ended, and is not known to be over; run `autocap restore` again")
    failed = Restored(uuid=gpu.uuid, original_w=260.0, final_w=None, restored=False, note="n", failure="no answer")
    status, (line,), _ = lent(LeasesEnded(ended=(Ended(lease=lease(gpu.uuid), restored=(failed,)),)))
    assert status == 1
    assert line.endswith("was ended, and its limit could not be put back: no answer; run `autocap restore` again")


@root_alone
@pytest.mark.parametrize(
    "answer",
    [
        Refusal(code=Code.BAD_MESSAGE, text="not understood: op is none of hello, devices"),  # an earlier version
        Refusal(code=Code.NOT_ALLOWED, text="only root ends leases of others"),  # as from a container
        Refusal(code=Code.TOO_MANY, text="later"),
        LeasesEnded(ended=()),  # it has lent something else
        b"nonsense\n",
        Hangup(),
    ],
    ids=repr,
)
def test_a_helper_that_ends_no_lease_changes_nothing_of_what_is_said(lent, gpu, answer):
    assert lent(answer) == (0, [f"{gpu.uuid} is in use by PID {os.getppid()}"], ["end_leases"])


@root_alone
def test_observing_ends_no_lease_and_says_whose_it_is(lent, gpu, monkeypatch):
    monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
    says = f"{gpu.uuid}: the helper's lease of alice (PID 77) would be ended"
    assert lent(Status(leases=(lease(gpu.uuid), lease("another")))) == (1, [says], ["status"])


def test_who_is_not_root_asks_the_helper_for_nothing(lent, gpu, monkeypatch):
    monkeypatch.setattr("autocap.cli.restore.os", SimpleNamespace(geteuid=lambda: 20_001))
    status, lines, asked = lent(LeasesEnded(ended=()))
    assert (status, lines, asked) == (0, [f"{gpu.uuid} is in use by PID {os.getppid()}"], [])
