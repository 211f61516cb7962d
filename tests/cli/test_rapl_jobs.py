"""CPU jobs as a user meets them: real processes, above a powercap tree whose counters move in real time."""

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_cli import Cli, require_said
from tests.doubles.rapl_tree import WINDOW_US, RaplTree
from tests.doubles.waiting import eventually

FOUND = (125.0, WINDOW_US, 1)
CAP = ("--strategy", "fixed", "--strategy-option", "cap=80", "--target-stderr", "20%", "--trial-seconds", "20")
JOB = (sys.executable, "job.py")


class Machine(Cli):
    """A machine with one package, which draws its limit, or 110 W."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tree = RaplTree(folder / "sys")
        self.zone = self.tree.package()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._draw)
        self._thread.start()

    def setting(self) -> tuple[float, int, int]:
        return self.tree.setting(self.zone)

    def is_capped(self) -> bool:
        return self.tree.number(self.zone, "constraint_0_power_limit_uw") == 80_000_000

    def end(self) -> None:
        super().end()
        self._ended.set()
        self._thread.join()

    def _draw(self) -> None:
        last_s = time.monotonic()
        while not self._ended.wait(0.01):
            now_s = time.monotonic()
            power_w = 80.0 if self.is_capped() else 110.0
            self.tree.use(self.zone, power_w * (now_s - last_s))
            self.tree.use(f"{self.zone}:1", 10.0 * (now_s - last_s))
            last_s = now_s


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_a_cpu_job_gets_its_cap_and_the_package_its_limit_window_and_flag_back(machine: Machine) -> None:
    run = machine.start("run", "--device", "rapl", *CAP, "--metric", "energy", "--out", "run", "--", *JOB, "30")
    eventually(machine.is_capped)
    eventually(lambda: machine.setting() == (80.0, 1_000_000, 1), 1.0)
    eventually(lambda: machine.events("trial_ended"))
    run.send_signal(signal.SIGTERM)
    assert run.wait(120) == 128 + signal.SIGTERM
    assert machine.setting() == FOUND
    assert machine.leftovers() == []
    result = json.loads((machine.folder / "run" / "result.json").read_text())
    assert (result["device"]["kind"], result["device"]["emulated"]) == ("rapl", False)
    (package,) = result["device"]["gpus"]
    assert (package["uuid"], package["cap_original_w"], package["cap_final_w"]) == ("intel-rapl-0", 125.0, 125.0)
    assert result["baseline"]["power_w"] == pytest.approx(120.0, rel=0.05)
    assert result["trials"][0]["measurement"]["power_w"] == pytest.approx(90.0, rel=0.05)


@pytest.mark.slow
def test_after_sigkill_of_a_run_everything_is_back_within_a_second(machine: Machine) -> None:
    run = machine.start("run", "--device", "rapl", *CAP, "--out", "run", "--", *JOB, "30")
    eventually(machine.is_capped)
    run.kill()
    killed_s = time.monotonic()
    eventually(lambda: machine.setting() == FOUND, 5.0)
    assert time.monotonic() - killed_s < 1.0
    eventually(lambda: machine.leftovers() == [], 5.0)


@pytest.mark.slow
def test_a_package_without_a_limit_leaves_the_job_untuned(machine: Machine) -> None:
    machine.tree.package(1, limit_w=None)
    done = machine("run", "--device", "rapl", "--gpus", "1", "--", "sh", "-c", "sleep 1; exit 3")
    require_said(done, 3, "the job runs untuned: package 1 counts its energy but takes no power limit")


def test_devices_shows_the_packages_and_writes_nothing(machine: Machine) -> None:
    machine.tree.package(1, limit_w=None, memory=False)
    found = json.loads(machine("devices", "--json").stdout)
    first, second = found["packages"]
    assert found["packages_unavailable"] is None
    assert (first["cap_requested_w"], first["cap_min_w"], first["cap_max_w"]) == (125.0, 31.0, 125.0)
    assert (first["settable"], first["memory"], first["trouble"]) == (True, True, None)
    assert (second["settable"], second["cap_max_w"], second["memory"]) == (False, None, False)
    shown = machine("devices").stdout
    assert "package 1 is intel-rapl-1; package 1 counts its energy but takes no power limit" in shown
    assert machine.setting() == FOUND
