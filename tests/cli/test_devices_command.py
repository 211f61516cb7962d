"""`autocap devices`, above an emulated NVML library."""

import json
import os
from dataclasses import replace

import pytest

from autocap.cli import device_report
from autocap.clock import MonotonicClock
from autocap.devices.nvml import source
from autocap.devices.permission import Privileges
from autocap.testing.nvml import Fault, FileBoard, Limits, MemoryBoard, emulated, environment, machine
from tests.cli.test_cli import Cli, Here

NO_PERMISSION = 4


def test_without_a_driver_it_explains_and_exits_with_0(cli: Cli) -> None:
    done = cli("devices")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no NVIDIA GPU can be used: opening NVML failed with LIBRARY_NOT_FOUND (12)")
    assert "--device emulated" in done.stdout
    found = json.loads(cli("devices", "--json").stdout)
    assert (found["gpus"], found["driver_version"]) == ([], None)
    assert found["unavailable"].startswith("no NVIDIA GPU can be used")


@pytest.mark.slow
def test_each_gpu_is_shown_with_its_limits_and_why_they_cannot_be_set_and_none_is_touched(cli: Cli) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=3, arrivals_mw=[240_123, 260_000, 260_000])
    made = made.with_card(1, replace(made.cards[1], mig=True, energy_gain=0.5))
    made = made.with_card(2, replace(made.cards[2], limits=Limits.UNSUPPORTED, persistence=False))
    board = FileBoard.create(cli.folder / "machine.json", made)
    cli.env = environment(cli.folder / "machine.json", cli.env)
    done = cli("devices", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["driver_version"], found["unavailable"]) == (made.driver_version, None)
    first, split, laptop = found["gpus"]
    assert (first["cap_requested_w"], first["cap_min_w"], first["cap_max_w"]) == (240.123, 100.0, 260.0)
    assert first["sensor"]["source"] == "instant field 186"
    assert first["sensor"]["update_s"] == pytest.approx(0.1, rel=0.1)
    assert split["settable"] is laptop["settable"] is False
    assert "MIG instances, which share one power limit" in split["settable_why"]
    assert "has no power limit to set" in laptop["settable_why"]
    assert "where the power readings add up to" in split["sensor"]["trouble"]
    assert (laptop["cap_requested_w"], laptop["cap_enforced_w"]) == (None, 260.0)
    table = cli("devices").stdout
    assert "\x1b" not in table
    assert "240.123" in table
    assert "persistence mode is off" in table
    assert board.read().changes == ()
    assert cli.leftovers() == []


@pytest.mark.slow
def test_a_gpu_that_a_budget_caps_is_settable_for_whoever_has_no_rights(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=2)
    budget = {"watts": 400.0, "policy": "equal", "pid": 9, "gpus": (made.cards[0].uuid,)}
    monkeypatch.setattr(device_report, "budget_here", lambda: budget)
    monkeypatch.setattr(source, "own_privileges", lambda: Privileges(admin=False, namespaced=False))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with emulated(MemoryBoard(made), MonotonicClock()):
        held, other = json.loads(here("devices", "--json").stdout)["gpus"]
    assert (held["settable"], other["settable"]) == (True, False)
    assert held["settable_why"] == "the power budget that runs here (PID 9) gives its caps"
    assert [one["name"] for one in held["setters"][:2]] == ["budget", "direct"]


@pytest.mark.slow
def test_a_mig_mode_that_may_not_be_read_is_unknown(here: Here) -> None:
    denied = Fault(code=NO_PERMISSION, function="nvmlDeviceGetMigMode", times=None)
    with emulated(MemoryBoard(replace(machine("quadro-rtx-6000/resnet50"), faults=(denied,))), MonotonicClock()):
        (gpu,) = json.loads(here("devices", "--json").stdout)["gpus"]
    assert gpu["mig"] is None


def test_a_job_is_of_nodes(cli: Cli) -> None:
    done = cli("devices", "--job", "7")
    said = "autocap: --job 7 is of a job on several nodes; add --nodes, or drop it\n"
    assert (done.returncode, done.stderr) == (2, said)
