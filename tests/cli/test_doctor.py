"""`autocap doctor`, above an emulated NVML library in virtual time."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from autocap.cli import examination
from autocap.cli.examination import Examination, at_once, examine
from autocap.cli.findings import Finding
from autocap.clock import MonotonicClock, VirtualClock
from autocap.devices.nvml.library import open_library
from autocap.devices.permission import Privileges
from autocap.job import processes
from autocap.progress.calls import uprobe
from autocap.progress.calls.target import CallsUnavailable
from autocap.testing.nvml import (
    Episode,
    Fault,
    FileBoard,
    Limits,
    Machine,
    MemoryBoard,
    Trouble,
    emulated,
    environment,
    machine,
    times,
)
from tests.cli.test_cli import Cli, Here

NO_PERMISSION, LOST = 4, 15
Look = Callable[..., Examination]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Looks at a machine, by root on a machine of its own unless the test says otherwise."""
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("AUTOCAP_HELPER", str(tmp_path / "helper.sock"))
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "zeusd.sock"))
    monkeypatch.setenv("AUTOCAP_SYSFS", str(tmp_path / "sys"))
    monkeypatch.delenv("AUTOCAP_OBSERVE", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(examination, "likely_setters", lambda: ())
    monkeypatch.setattr(uprobe, "call_cost_s", lambda uprobes, first: 1e-6)
    by(monkeypatch, root=True)

    def looked(made: Machine, watch_s: float = 3.0) -> Examination:
        board, clock = MemoryBoard(made), VirtualClock()
        with emulated(board, clock):
            found = examine(at_once, partial(open_library, **times(clock)), clock, watch_s)
        assert board.read().changes == ()
        return found

    return looked


def by(monkeypatch: pytest.MonkeyPatch, *, root: bool, container: bool = False, namespaced: bool = False) -> None:
    """Who looks, and where."""
    rights = Privileges(admin=root, namespaced=namespaced)
    monkeypatch.setattr(examination, "own_privileges", lambda: rights)
    monkeypatch.setattr(examination, "in_container", lambda: container)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root or container else 1000)


def one_gpu(**changes: object) -> Machine:
    made = machine("quadro-rtx-6000/resnet50")
    return made.with_card(0, replace(made.cards[0], **changes))  # type: ignore[arg-type]  # a card's


def said(found: Examination, area: str, words: str) -> Finding:
    """The one finding of an area with these words."""
    (one,) = [one for one in found.findings if one.area == area and words in one.text]
    return one


@pytest.mark.slow
def test_of_a_gpu_that_can_be_tuned_everything_is_good(look: Look) -> None:
    found = look(one_gpu())
    assert (found.tunes, found.conclusion) == (True, "`autocap run -- CMD` tunes GPU 0 here")
    assert {one.verdict for one in found.findings if one.area in ("rights", "driver", "calls", "others")} == {"ok"}
    assert said(found, "driver", "NVIDIA driver 575.57.08 shows 1 GPU here").verdict == "ok"
    assert (
        said(
            found,
            "GPU 0",
            "a limit of 260 W out of 100 to 260 W (default 260 W), which, as far as that shows untried, can be set; ",
        ).verdict
        == "ok"
    )
    assert said(found, "GPU 0", "persistence mode is on; MIG does not split it").verdict == "ok"
    assert said(found, "GPU 0", "power is read from the instant field 186, fresh every 101 ms").verdict == "ok"
    assert said(found, "GPU 0", "the energy counter agrees with the power readings: ").verdict == "ok"


def test_without_a_driver_it_says_what_to_install(look: Look) -> None:
    found = look(Machine(profile="none", cards=(), has_driver=False))
    one = said(found, "driver", "no NVIDIA GPU can be used: opening NVML failed with LIBRARY_NOT_FOUND (12)")
    assert one.verdict == "trouble"
    assert one.remedy == "install the NVIDIA driver, or give the container its GPUs"
    assert not found.tunes
    assert found.conclusion == "nothing can be tuned here; `autocap run --device emulated -- CMD` plays a GPU"


def test_a_driver_without_a_gpu_is_no_trouble_of_ours(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, root=True, container=True)
    one = said(look(Machine(profile="none", cards=())), "driver", "shows no GPU here")
    assert (one.verdict, one.remedy) == ("trouble", "give the container its GPUs (`--gpus all`)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "text", "remedy"),
    [
        (
            {"limits": Limits.UNSUPPORTED},
            "has no power limit to set, as on many laptops",
            "pass --observe to measure it",
        ),
        (
            {"limits": Limits.UNSUPPORTED, "virtual": True},
            "is a virtual GPU, whose power limit belongs to its host",
            "pass --observe",
        ),
        (
            {"mig": True},
            "is split into MIG instances, which share one power limit",
            "`sudo nvidia-smi -i 0 -mig 0` while nobody uses it, or pass --observe",
        ),
        ({"min_mw": 260_000}, "accepts no limit but 260 W", "pass --observe to measure it"),
    ],
)
def test_a_limit_that_nobody_can_set_is_trouble(look: Look, card: dict[str, object], text: str, remedy: str) -> None:
    found = look(one_gpu(**card))
    one = said(found, "GPU 0", text)
    assert (one.verdict, one.follows, one.remedy) == ("trouble", "`autocap run` can only observe it", remedy)
    assert not found.tunes
    assert found.conclusion == "nothing can be tuned here; `autocap run --observe -- CMD` measures GPU 0"


@pytest.mark.slow
def test_a_user_is_told_of_sudo_and_the_helper(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, root=False)
    found = look(one_gpu())
    rights = said(found, "rights", "we are not root, and setting a limit needs root or CAP_SYS_ADMIN")
    assert rights.remedy == "run autocap with sudo, or have an administrator run `sudo autocap helper install` once"
    one = said(found, "GPU 0", "which cannot be set: setting a limit needs root or CAP_SYS_ADMIN")
    assert one.verdict == "trouble"
    assert one.remedy is not None
    assert one.remedy.startswith("run autocap with sudo, have an administrator")
    assert said(found, "helper", "no helper serves ").remedy is not None
    assert not found.tunes
    assert found.conclusion == "nothing is tuned here without root; `sudo autocap run -- CMD` may tune GPU 0"


@pytest.mark.slow
def test_a_container_without_the_capability_is_told_of_it(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, root=False, container=True)
    found = look(one_gpu())
    rights = said(found, "rights", "we are root in a container, and setting a limit needs root or CAP_SYS_ADMIN")
    assert rights.remedy is not None
    assert rights.remedy.startswith("start the container with --cap-add SYS_ADMIN, or ")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert said(look(one_gpu()), "rights", "we are not root in a container").remedy == (
        "start the container as root with --cap-add SYS_ADMIN, or have an administrator run `sudo autocap helper "
        "install` once"
    )
    assert "sudo" not in found.conclusion
    assert said(found, "others", "but not all of the machine's may show here").verdict == "note"


@pytest.mark.slow
def test_in_a_user_namespace_it_is_not_known(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, root=True, container=True, namespaced=True)
    found = look(one_gpu())
    assert said(found, "GPU 0", "of which it is not known whether it can be set").verdict == "note"
    assert not found.tunes
    assert found.conclusion == "whether `autocap run -- CMD` tunes GPU 0 here, only trying tells"


@pytest.mark.slow
def test_under_sudo_it_names_the_command_with_sudo(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr("autocap.limits.state_dir.invoking_user", lambda: None)
    assert look(one_gpu()).conclusion == "`sudo autocap run -- CMD` tunes GPU 0 here"


@pytest.mark.slow
def test_where_setting_is_forbidden_nothing_is_tuned(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
    found = look(one_gpu())
    one = said(found, "rights", "AUTOCAP_OBSERVE forbids every command to set anything")
    assert (one.verdict, one.remedy) == ("trouble", "`unset AUTOCAP_OBSERVE`")
    assert (found.tunes, found.conclusion) == (False, "nothing is tuned here while AUTOCAP_OBSERVE is set")


@pytest.mark.slow
def test_persistence_that_is_off_loses_limits(look: Look) -> None:
    one = said(look(one_gpu(persistence=False)), "GPU 0", "persistence mode is off")
    assert (one.verdict, one.remedy) == ("note", "`sudo nvidia-smi -i 0 -pm 1`")
    assert one.follows == "a limit is lost when nobody uses the GPU"


@pytest.mark.slow
def test_a_limit_that_something_else_lowers_is_said(look: Look) -> None:
    one = said(look(one_gpu(ceiling_mw=180_000)), "GPU 0", "180 W is enforced, although 260 W is requested")
    assert one.verdict == "note"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "text"),
    [
        ({"energy_counter": False}, "no energy counter can be read"),
        ({"energy_gain": 0.5}, "where the power readings add up to"),
        ({"energy_gain": 1.5}, "where the power readings add up to"),
        ({"episodes": (Episode(trouble=Trouble.COUNTER_STANDS),)}, "does not move although power is drawn"),
    ],
)
def test_a_counter_that_is_absent_or_wrong_is_not_used(look: Look, card: dict[str, object], text: str) -> None:
    found = look(one_gpu(**card))
    one = said(found, "GPU 0", text)
    assert one.verdict == "note"
    assert one.follows is not None
    assert "energy is added up from power readings" in one.follows
    assert found.tunes


def sensor(**card: object) -> Machine:
    """A machine whose draw changes, seen so early that it shows."""
    return replace(one_gpu(**card), sensor="rtx-4090")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "power", "usage"),
    [
        ({}, "by the energy counter these are no means over a second", "beside these, moves as these do"),
        (
            {"usage_is_average": True},
            "by the energy counter these are no means over a second",
            "shows the mean of these over about a second",
        ),
        (
            {"usage_is_average": True, "instant_scope": None},
            "read from nvmlDeviceGetPowerUsage, fresh every 100 ms; by the energy counter these are means over about a "
            "second",
            None,
        ),
    ],
)
def test_readings_that_are_means_over_a_second_are_told_from_others(
    look: Look, card: dict[str, object], power: str, usage: str | None
) -> None:
    found = look(sensor(**card), watch_s=10.0)
    assert said(found, "GPU 0", power).verdict == ("ok" if usage else "note")
    about_usage = [one for one in found.findings if one.text.startswith("nvmlDeviceGetPowerUsage")]
    assert [usage in one.text for one in about_usage if usage] == [True] * len(about_usage)
    assert bool(about_usage) == (usage is not None)


@pytest.mark.slow
def test_the_power_of_the_module_is_not_taken_for_the_gpus(look: Look) -> None:
    one = said(look(one_gpu(instant_scope=1)), "GPU 0", "instant field 186 of the whole module")
    assert (one.verdict, one.follows) == ("note", "that is the power of the whole module, CPU included")


@pytest.mark.slow
def test_a_sensor_at_rest_tells_nothing(look: Look) -> None:
    found = look(one_gpu(episodes=(Episode(trouble=Trouble.STUCK),)))
    one = said(found, "GPU 0", "so how often it is fresh did not show")
    assert one.verdict == "note"
    assert said(found, "GPU 0", "nvmlDeviceGetPowerUsage, beside these, did not show whether").verdict == "note"


@pytest.mark.slow
def test_a_sensor_without_a_reading_leaves_nothing_to_tune(look: Look) -> None:
    found = look(one_gpu(episodes=(Episode(trouble=Trouble.MISSING),)))
    assert said(found, "GPU 0", "no power reading came while it was watched").verdict == "trouble"
    assert not found.tunes


@pytest.mark.slow
def test_what_the_driver_keeps_to_itself_is_unknown(look: Look) -> None:
    getters = ("PowerManagementLimitConstraints", "PowerManagementLimit", "PersistenceMode", "MigMode")
    getters += ("TotalEnergyConsumption", "ComputeRunningProcesses_v3")
    denied = tuple(Fault(code=NO_PERMISSION, function=f"nvmlDeviceGet{name}", times=None) for name in getters)
    found = look(replace(one_gpu(limit_fields=False), faults=denied))
    one = said(found, "GPU 0", "the driver does not let us read which power limits GPU 0")
    assert one.verdict == "trouble"
    assert one.remedy is not None
    assert "start the container with --cap-add SYS_ADMIN" in one.remedy
    state = said(found, "GPU 0", "it does not tell whether persistence mode is on; it does not tell whether MIG splits")
    assert state.verdict == "note"
    assert said(found, "GPU 0", "the driver does not tell who computes on it").verdict == "note"
    assert said(found, "GPU 0", "no energy counter can be read").verdict == "note"


@pytest.mark.slow
def test_a_gpu_that_is_lost_keeps_no_other_from_being_seen(look: Look) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=3)
    at_once_, later = (Fault(code=LOST, times=None, gpu=gpu, from_s=from_s) for gpu, from_s in ((0, 0.0), (1, 2.0)))
    found = look(replace(made, faults=(at_once_, later)))
    assert said(found, "GPU 0", "GPU_IS_LOST (15)").remedy == (
        "look at the kernel log (dmesg, Xid 79), it needs a reboot"
    )
    assert [one.verdict for one in found.findings if one.area == "GPU 1"] == ["trouble"]
    assert found.conclusion == "`autocap run -- CMD` tunes GPU 2 here"
    gpus = [one.area for one in found.findings if one.area.startswith("GPU")]
    assert gpus == sorted(gpus)


@pytest.mark.slow
def test_who_computes_and_who_may_set_limits_is_said(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "likely_setters", lambda: (("DCGM (nv-hostengine)", 77),))
    found = look(one_gpu(pids=(os.getpid(), 12)))
    assert said(found, "GPU 0", "the driver lists 2 processes that compute on it now").verdict == "ok"
    assert (
        said(found, "others", "DCGM (nv-hostengine) runs here (PID 77), which can set power limits").verdict == "note"
    )


@pytest.mark.slow
def test_calls_that_the_kernel_does_not_count_are_said(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(uprobes: object, first: bytes) -> float:
        raise CallsUnavailable("the kernel does not let autocap count calls (no); run it as root")

    monkeypatch.setattr(uprobe, "call_cost_s", refused)
    found = look(one_gpu())
    one = said(found, "calls", "the kernel does not let autocap count calls (no)")
    assert (one.verdict, one.remedy) == ("note", "run it as root")
    assert found.tunes


@pytest.mark.slow
def test_a_budget_gives_caps_to_who_has_no_rights(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    by(monkeypatch, root=False)
    made = one_gpu()
    budget = {"watts": 400.0, "policy": "equal", "pid": 9, "gpus": (made.cards[0].uuid,)}
    monkeypatch.setattr(examination, "budget_here", lambda: budget)
    found = look(made)
    assert said(found, "budget", "a power budget of 400 W runs here (PID 9)").verdict == "ok"
    assert found.conclusion == "`autocap run -- CMD` tunes GPU 0 here"


@pytest.mark.slow
def test_an_area_that_fails_leaves_the_others(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("odd")

    for name in ("Setters", "likely_setters", "settle", "budget_here"):
        monkeypatch.setattr(examination, name, broken)
    monkeypatch.setattr(examination, "own_privileges", broken)
    found = look(one_gpu())
    failed = [one for one in found.findings if one.text.endswith(" is not known: ValueError: odd")]
    assert {(one.area, one.verdict) for one in failed} == {("helper", "note"), ("others", "note"), ("state", "note")}
    assert said(found, "rights", "/proc does not tell which rights we have").verdict == "note"
    assert not found.tunes


@pytest.mark.slow
def test_a_state_directory_that_is_refused_is_trouble(look: Look, tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(tmp_path)
    one = said(look(one_gpu()), "state", "is a symbolic link")
    assert one.verdict == "trouble"


@pytest.mark.slow
def test_processes_that_may_not_be_looked_at_are_hidden(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(look(one_gpu()), "others", "no other program is seen").verdict == "ok"
    allowed = os.access

    def access(path: str, mode: int) -> bool:
        return path != "/proc/1/stat" and allowed(path, mode)  # as with hidepid=1, where the folder shows

    monkeypatch.setattr(os, "access", access)
    assert said(look(one_gpu()), "others", "but not all of the machine's may show here").verdict == "note"


def test_where_no_thread_is_to_be_had_it_looks_all_the_same(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert examination.in_a_thread(lambda: 7).result(0.0) == 7


@pytest.mark.slow
def test_a_driver_that_hangs_holds_nothing_up(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, within_s in (("_OPENED_S", 0.5), ("_FACTS_S", 1.0), ("_WITHIN_S", 2.0), ("_SPARE_S", 0.3)):
        monkeypatch.setattr(examination, name, within_s)
    made = machine("quadro-rtx-6000/resnet50", gpus=3)
    hangs = Fault(code=0, times=None, gpu=1, delay_s=30.0)
    later = Fault(code=0, function="nvmlDeviceGetTotalEnergyConsumption", times=None, after=20, gpu=2, delay_s=30.0)
    clock, begun_s = MonotonicClock(), time.monotonic()
    with emulated(MemoryBoard(replace(made, faults=(hangs, later))), clock):
        found = examine(open_nvml=partial(open_library, pause=time.sleep), clock=clock, watch_s=1.5)
    assert time.monotonic() - begun_s < 8.0  # on a machine that is busy
    assert said(found, "GPU 1", "the driver has not told within 1 s what GPU 1 is").verdict == "trouble"
    assert said(found, "GPU 0", "power is read from").area == "GPU 0"
    assert said(found, "GPU 2", "power is read from").area == "GPU 2"  # as far as it was seen
    hangs = Fault(code=0, function="nvmlSystemGetDriverVersion", times=None, delay_s=30.0)
    with emulated(MemoryBoard(replace(made, faults=(hangs,))), clock):
        found = examine(clock=clock)
    assert said(found, "driver", "the NVIDIA driver has not told within 0.5 s").verdict == "trouble"


@pytest.mark.slow
def test_it_is_printed_a_line_a_finding_and_its_status_tells_whether_tuning_is_possible(
    look: Look, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = look(one_gpu(mig=True)), look(one_gpu())
    monkeypatch.setattr(examination, "examine", lambda: bad)
    done = here("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("TROUBLE")]
    assert lines[at].startswith("TROUBLE  GPU 0   GPU 0 (Quadro RTX 6000 (emulated NVML)) is split into MIG instances")
    assert lines[at + 1].strip() == "`autocap run` can only observe it"
    assert lines[at + 2].strip().startswith("what to do: `sudo nvidia-smi -i 0 -mig 0`")
    assert lines[-1] == bad.conclusion
    monkeypatch.setattr(examination, "examine", lambda: good)
    assert here("doctor").returncode == 0


def test_what_is_sent_with_a_bug_report_names_nobody(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("USER", "alice")
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr("socket.gethostname", lambda: "node17.example.org")
    uuid = machine("quadro-rtx-6000/resnet50").cards[0].uuid
    text = f"alice on node17 (node17.example.org) ran /home/alice/venv/bin/autocap on {uuid}; root, malice"
    findings = (Finding(area="GPU 0", verdict="note", text=text, remedy=f"`sudo -u alice ls {uuid}`"),)
    found = Examination(findings=findings, driver="575.57.08", tunes=False, conclusion="alice may not")
    monkeypatch.setattr(examination, "examine", lambda: found)
    said = json.loads(here("doctor", "--json").stdout)
    assert said["findings"] == [
        {
            "area": "GPU 0",
            "verdict": "note",
            "text": "USER on HOST (HOST) ran ~/venv/bin/autocap on UUID; root, malice",
            "follows": None,
            "remedy": "`sudo -u USER ls UUID`",
        }
    ]
    assert (said["tunes"], said["conclusion"]) == (False, "USER may not")
    assert said["versions"].keys() == {"autocap", "driver", "kernel", "python", "machine"}


def test_as_a_command_without_a_driver_it_changes_nothing(cli: Cli) -> None:
    done = cli("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert "TROUBLE  driver" in done.stdout
    assert cli.leftovers() == []
    assert not cli.state.exists()


_UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--mount", "--net", "--fork", "--mount-proc")


@pytest.mark.slow
def test_as_a_command_in_namespaces_of_its_own_without_a_home_it_says_what_is_so(cli: Cli) -> None:
    try:
        if subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=20.0).returncode:
            pytest.skip("no namespaces can be had here")
    except OSError:
        pytest.skip("there is no unshare here")
    FileBoard.create(cli.folder / "container.json", one_gpu())
    left_out = ("HOME", "USER", "LOGNAME")
    env = {
        key: value for key, value in environment(cli.folder / "container.json", cli.env).items() if key not in left_out
    }
    words = [*_UNSHARE, *cli.argv("doctor")]
    begun_s = time.monotonic()
    done = subprocess.run(words, cwd=cli.folder, env=env, capture_output=True, text=True, timeout=60.0, check=False)
    assert time.monotonic() - begun_s < 20.0  # 15, on a machine that is busy
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    rights = (
        "note     rights  we are root in a container, and we have CAP_SYS_ADMIN in a user namespace of our own alone"
    )
    assert lines[0].startswith(rights)
    assert any("GPU 0   " in line and "it is not known whether it can be set" in line for line in lines)
    assert any("but not all of the machine's may show here" in line for line in lines)
    assert not any("Error" in line or "this is not known" in line for line in lines)
    assert lines[-1] == "whether `autocap run -- CMD` tunes GPU 0 here, only trying tells"


def test_setters_of_limits_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        def __init__(self, pid: int, name: str | None) -> None:
            self.pid, self.info = pid, {"name": name}

    names = ["python3", "nv-hostengine", None, "lact", "autocap", "autocap"]
    running = [Process(pid, name) for pid, name in enumerate(names[:-1], 70)] + [Process(os.getpid(), names[-1])]
    monkeypatch.setattr(psutil, "process_iter", lambda wanted: running)
    found = processes.likely_setters()
    assert found == (("DCGM (nv-hostengine)", 71), ("LACT (lact)", 73), ("another autocap", 74))
