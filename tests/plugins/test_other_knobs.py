"""Knobs that another package's devices offer beside their power limit, through the command: the cards of
docs/devices.md with a clock and with modes that have no order, under a job whose speed and draw follow them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.docs.pages import ROOT, blocks
from tests.doubles.waiting import eventually

# Energy times time per iteration is least at 900 MHz, and in the mode "even"; energy alone at 600 MHz, and when quiet.
JOB = """
import os, sys, time
import autocap

CARD = sys.argv[1]
OF_MODE = {0: (0.030, 80.0), 1: (0.020, 130.0), 2: (0.022, 220.0)}

def number(name):
    with open(os.path.join(CARD, name)) as file:
        return float(file.read() or "nan")

while not os.path.exists("stop"):
    clock, mode = number("clock_mhz"), number("mode")
    seconds, power_w = OF_MODE.get(mode, OF_MODE[1])
    if clock == clock:
        seconds, power_w = seconds * (0.55 + 0.45 * 1500 / clock), power_w * (0.25 + 0.75 * (clock / 1500) ** 3)
    with open(os.path.join(CARD, "new"), "w") as file:
        file.write(str(power_w))
    os.replace(os.path.join(CARD, "new"), os.path.join(CARD, "power_w"))
    time.sleep(seconds)
    autocap.step()
"""
POINTS = "[autocap.devices]\nmycard = mycard\nmyclock = myclock\n"
QUICK = ("--no-memory", "--target-stderr", "3%", "--trial-seconds", "4", "--wait", "20", "--metric", "edp")


class Place:
    """A folder with the package, a card and a job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine").mkdir()
        texts = [block.text for block in blocks(ROOT / "docs/devices.md")]
        for name, part in (("mycard.py", "class MyCard("), ("myclock.py", "class ClockedCard(")):
            (folder / "mine" / name).write_text(next(text for text in texts if part in text))
        (folder / "mine/mine-1.dist-info").mkdir()
        (folder / "mine/mine-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        (folder / "mine/mine-1.dist-info/entry_points.txt").write_text(POINTS)
        self.card = folder / "card"
        self.card.mkdir()
        self.set(power_w=200, limit_w=250, clock_mhz=1500, mode=2)
        (folder / "job.py").write_text(JOB)
        self.env = {**os.environ, "PYTHONPATH": str(folder / "mine"), "AUTOCAP_STATE_DIR": str(folder / "state")}
        self.processes: list[subprocess.Popen[str]] = []

    def set(self, **values: float) -> None:
        for name, value in values.items():
            (self.card / name).write_text(f"{value:g}")

    def at(self, name: str) -> float:
        return float((self.card / name).read_text() or "nan")  # while it is written

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "autocap", "run", "--device", f"myclock:{self.card}", *QUICK, *words]
        command += ["--out", "run", "--", sys.executable, "job.py", str(self.card)]
        process = subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def events(self, kind: str) -> list[dict[str, object]]:
        log = self.folder / "run/events.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [one for one in found if one["event"] == kind]

    def ended(self, process: "subprocess.Popen[str]") -> str:
        """What it said."""
        (self.folder / "stop").touch()
        return process.communicate(timeout=30)[1]

    def autocap(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "autocap", *words]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    (tmp_path / "stop").touch()
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knob", "strategy", "file", "best", "shown"),
    [("clock", "golden", "clock_mhz", 900.0, "900 MHz"), ("mode", "linear", "mode", 1.0, "even")],
)
def test_a_knob_is_tuned_held_reported_and_put_back(
    place: Place, knob: str, strategy: str, file: str, best: float, shown: str
) -> None:
    found = place.at(file)
    run = place.start("--knob", knob, "--strategy", strategy)
    eventually(lambda: place.events("decided"), within_s=60)
    held = place.at(file)
    said = place.ended(run)

    assert (run.returncode, held, place.at(file), place.at("limit_w")) == (0, best, found, 250.0), said
    assert f"keeping {shown}, confirmed" in said
    (device,) = place.events("device_found")
    assert device["knob"]["name"] == knob
    text = (place.folder / "run/events.jsonl").read_text()
    assert '"cap_w"' not in text
    (decided,) = place.events("decided")
    assert decided["setting"] in (shown, best)
    (back,) = place.events("limit_restored")
    assert (back["restored"], back["final_setting"]) == (True, {"clock": 1500.0, "mode": "eager"}[knob])
    report = place.autocap("report", "run").stdout
    assert shown in report
    assert "W emulated" not in report


def test_whoever_kills_autocap_finds_the_clock_as_it_was(place: Place) -> None:
    run = place.start("--knob", "clock", "--strategy", "linear")
    eventually(lambda: place.at("clock_mhz") < 1500, within_s=30)
    run.send_signal(signal.SIGKILL)
    eventually(lambda: place.at("clock_mhz") == 1500.0, within_s=5)


@pytest.mark.slow
def test_with_its_watchdog_killed_as_well_the_next_command_puts_it_back(place: Place) -> None:
    run = place.start("--knob", "clock", "--strategy", "linear")
    eventually(lambda: place.at("clock_mhz") < 1500, within_s=30)
    (child,) = place.events("run_started")
    ours = [one for one in psutil.Process(run.pid).children(recursive=True) if one.pid != child["pid"]]
    for process in (*ours, psutil.Process(run.pid)):
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    for process in (*ours, psutil.Process(run.pid)):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    run.wait()
    assert place.at("clock_mhz") < 1500
    said = place.autocap("restore").stdout
    assert place.at("clock_mhz") == 1500.0
    assert "clock 1500 MHz put back, where autocap with PID" in said


@pytest.mark.slow
def test_somebody_else_s_clock_stays(place: Place) -> None:
    run = place.start("--knob", "clock", "--strategy", "linear")
    eventually(lambda: place.at("clock_mhz") < 1500, within_s=30)
    place.set(clock_mhz=1111)
    eventually(lambda: any("1111 MHz" in str(one["text"]) for one in place.events("warned")), within_s=10)
    said = place.ended(run)
    assert place.at("clock_mhz") == 1111.0
    assert "tuning ended, the job goes on" in said
    assert " W should be" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--knob", "fan"), "has no knob 'fan'; choose of clock, mode, power-limit"),
        (("--knob", "clock", "--strategy", "model"), "strategy model"),
        (("--knob", "mode", "--strategy", "golden"), "strategy golden"),
        (
            ("--knob", "mode", "--strategy", "linear", "--knob-settings", "loud"),
            "'loud' is no setting of the knob",
        ),
        (("--knob", "clock", "--caps", "100"), "--caps is of the power limit alone"),
        (("--knob-settings", "eager"), "--knob-settings are of another knob"),
    ],
)
def test_what_cannot_be_is_refused_before_the_job_starts(place: Place, words: tuple[str, ...], said: str) -> None:
    run = place.start(*words)
    message = run.communicate(timeout=30)[1]
    assert run.returncode != 0
    assert said in message
    assert not (place.folder / "run").exists()


@pytest.mark.slow
def test_nothing_faster_than_what_was_found_is_tried_unasked(place: Place) -> None:
    place.set(clock_mhz=900)
    run = place.start("--knob", "clock", "--strategy", "linear")
    eventually(lambda: place.events("decided"), within_s=60)
    place.ended(run)
    assert {one["setting"] for one in place.events("trial_started")} <= {600.0, 900.0}
    assert place.at("clock_mhz") == 900.0


@pytest.mark.slow
def test_observed_nothing_is_set(place: Place) -> None:
    run = place.start("--knob", "mode", "--strategy", "linear", "--observe")
    eventually(lambda: place.events("would_try"), within_s=30)
    before = time.time()
    place.ended(run)
    assert (place.card / "mode").stat().st_mtime < before
    assert place.events("would_try")[0]["settings"] != []
    assert place.at("mode") == 2.0
