"""`--node-power` through the command line: what is refused, and a run with a meter of the user's."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from autocap.config.values import node_power
from tests.cli.test_cli import EMULATED, Cli, Here, require_said
from tests.doubles.waiting import eventually
from tests.runlog.test_runlog import rows


def test_sources_are_taken_as_they_are_written_and_watts_in_any_way() -> None:
    for text in ("none", "rapl", "ipmi", "slurm", "command:yokotool read P", "command:a:b"):
        assert node_power(text) == text
    assert node_power("3.5e2") == "350"


def test_a_meter_that_gives_nothing_is_said_before_the_job_starts(cli: Cli, here: Here) -> None:
    done = here("run", *EMULATED, "--node-power", "command:echo no bus >&2; exit 4", "--", "touch", "started")
    require_said(done, 1, "it ended with status 4: no bus before its first reading")
    assert not (cli.folder / "started").exists()
    assert not (cli.folder / "autocap-runs").exists()


@pytest.mark.slow
def test_a_run_counts_what_the_users_meter_prints_and_shows_the_gpus_beside_it(cli: Cli) -> None:
    meter = "echo $$ > meter.pid; while :; do echo 700.5; sleep 0.1; done"
    run = cli.start(
        "run", *EMULATED, "--node-power", f"command:{meter}", "--idle-power", "300", "--standard-idle", "200",
        "--observe", "--target-stderr", "50%", "--out", "run", "--json", "--", sys.executable, "job.py", "40",
    )  # fmt: skip
    eventually(lambda: cli.events("baseline_measured"))
    assert cli.ended(run) == 0
    result = json.loads((cli.folder / "out").read_text().splitlines()[-1])
    baseline = result["baseline"]
    assert baseline["power_w"] == pytest.approx(700.5, rel=1e-3)
    assert 25 < baseline["gpu"]["power_w"] < 260  # idle, 20 W
    node = result["node"]
    assert (node["source"], node["whole"], node["idle_source"]) == (f"command:{meter}", True, "given")
    assert 0.05 < node["refresh_s"] < 0.5  # 0.1; on a busy machine its lines come late
    assert node["idle_share"] == pytest.approx(300 / 700.5, rel=1e-3)
    standard_j = baseline["energy_per_iteration_j"] - 100 * baseline["period_s"]
    assert node["standard"][0]["energy_per_iteration_j"] == pytest.approx(standard_j)
    assert {row["node_power_w"] for row in rows(cli.folder / "run")} == {"700.5"}
    said = (cli.folder / "err").read_text()
    assert said.count("energy is the whole node's, as its meter reads it: command:") == 1
    assert "energy is the whole node's, without the emulated GPUs', as command:" in said
    assert not Path("/proc", (cli.folder / "meter.pid").read_text().strip()).exists()


def test_the_users_meter_dies_with_a_run_that_is_killed_and_that_no_watchdog_watches(cli: Cli) -> None:
    meter = "trap '' TERM; echo $$ > meter.pid; while :; do echo 700.5; sleep 0.1; done | cat"
    words = ["--node-power", f"command:{meter}", "--observe", "--", "sh", "-c", "echo $$ > job.pid; exec sleep 60"]
    run = cli.start("run", *EMULATED, *words)
    eventually(lambda: (cli.folder / "job.pid").exists() and (cli.folder / "job.pid").read_text() != "")
    run.kill()
    run.wait(120)
    os.kill(int((cli.folder / "job.pid").read_text()), signal.SIGKILL)
    eventually(lambda: not Path("/proc", (cli.folder / "meter.pid").read_text().strip()).exists())
