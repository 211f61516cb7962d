"""`--energy-price` and `--carbon` through the command line: what is refused, and jobs that no bad source touches."""

import json
import sys
from pathlib import Path

from autocap.config.values import carbon, energy_price
from tests.cli.test_cli import EMULATED, Cli, Here, require_said

JOB = """
import time
from pathlib import Path

log, end_s = Path("run/events.jsonl"), time.monotonic() + 60
while time.monotonic() < end_s and not all(word in log.read_text() for word in ("sourced", "quoted", "no net")):
    time.sleep(0.05)
raise SystemExit(7)
"""
ROWS = "time,EUR/MWh\n2020-01-01T00:00Z,120\n2120-01-01T00:00Z,80\n"


def test_sources_of_prices_and_of_carbon_are_taken_as_they_are_written() -> None:
    for text in ("file:rows.csv", "command:./rows --now", "entsoe:DE_LU"):
        assert energy_price(text) == text
    for text in ("file:/a b/c", "command:a:b", "gb", "electricitymaps:US-CAL-CISO"):
        assert carbon(text) == text
    assert (energy_price("0.3"), carbon("380")) == (0.3, 380.0)


def test_a_file_that_cannot_be_used_is_said_before_the_job_starts(cli: Cli, here: Here) -> None:
    (cli.folder / "rows.csv").write_text("time,EUR/MWh\n2026-01-31T16:00,80\n")
    done = here("run", *EMULATED, "--energy-price", "file:rows.csv", "--", "touch", "started")
    require_said(done, 1, "rows.csv, line 2: time is '2026-01-31T16:00'; give a date with a zone")
    assert not (cli.folder / "started").exists()
    assert not (cli.folder / "autocap-runs").exists()


def test_a_job_runs_as_it_would_while_a_source_fails(cli: Cli, here: Here) -> None:
    (cli.folder / "rows.csv").write_text(ROWS)
    (cli.folder / "job.py").write_text(JOB)
    fails = "echo no net >&2; exit 3"
    done = here(
        "run", *EMULATED, "--out", "run", "--energy-price", "file:rows.csv", "--carbon", f"command:{fails}",
        "--", sys.executable, "job.py",
    )  # fmt: skip
    require_said(done, 7, "the energy price is read from 'file:rows.csv'")
    assert "the energy price is 0.12 EUR per kWh" in done.stderr
    (warned,) = [line for line in done.stderr.splitlines() if "the carbon intensity cannot be read" in line]
    assert "'echo no net >&2; exit 3' ended with status 3: 'no net'; give rows under a heading" in warned
    assert json.loads((Path(cli.folder) / "run" / "result.json").read_text())["warnings"] != []
