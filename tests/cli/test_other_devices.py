"""A device of another package's is tuned like one of ours; a device lives in a file, and comes by an entry point."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.cli import main
from tests.cli.test_cli import Cli
from tests.doubles import file_device
from tests.doubles.waiting import eventually

# A job of many short steps.
STEPS = "import autocap, os, time\nwhile not os.path.exists('stop'):\n    time.sleep(0.002)\n    autocap.step()\n"
QUICK = ("--target-stderr", "20%", "--trial-seconds", "2", "--strategy", "golden", "--metric", "energy")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    made.env["PYTHONPATH"] += os.pathsep + file_device.INSTALLED
    made.job.write_text(STEPS)
    yield made
    made.end()


@pytest.fixture
def device(tmp_path: Path) -> str:
    return file_device.make(tmp_path).uuid


@pytest.mark.slow
def test_a_device_from_an_entry_point_is_searched_and_put_back(cli: Cli, device: str) -> None:
    run = cli.start("run", "--device", f"file:{device}", *QUICK, "--out", "run", "--", cli.argv()[0], "job.py")
    eventually(lambda: len(cli.events("trial_ended")) >= 2)
    assert cli.ended(run) == 0
    result = json.loads((cli.folder / "run" / "result.json").read_text())
    assert (result["device"]["kind"], result["device"]["emulated"]) == ("file", False)
    assert result["baseline"]["power_w"] == pytest.approx(0.9 * 260.0)
    tried_w = {cap_w for _, cap_w in file_device.sets(device)} - {260.0}
    assert {trial["cap_w"][0] for trial in result["trials"]} <= tried_w
    assert file_device.sets(device)[-1][1] == 260.0
    assert result["device"]["gpus"][0]["restored"] is True
    assert cli.leftovers() == []


@pytest.mark.slow
def test_a_sweep_and_an_attach_have_it_too(cli: Cli, device: str) -> None:
    words = ("--device", f"file:{device}", "--caps", "200")
    swept = cli("sweep", *words, "--repeats", "1", "--no-warm-up", "--cool-down", "0", "--", "sleep", "0.2")
    assert swept.returncode == 0, swept.stderr
    assert {cap_w for _, cap_w in file_device.sets(device)} == {200.0, 260.0}
    refused = cli("attach", "--pid", str(os.getpid()), "--device", f"file:{device}", "--max-cap", "500")
    assert "--max-cap 500 W is above the 400 W maximum of GPU 0" in refused.stderr


def test_it_is_shown_among_the_devices(cli: Cli) -> None:
    assert "`--device file` is there too, from another package (tests.doubles.file_device)" in cli("devices").stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fille",
            "unknown device 'fille' (did you mean file?); choose one of auto, nvml, rapl, emulated[:PROFILE], file",
        ),
        ("nvml:0", "unknown device 'nvml:0'; choose one of auto, nvml, rapl"),
        ("auto:", "unknown device 'auto:'; choose one of auto, nvml, rapl"),
        ("file:", "name the file: --device file:PATH"),
    ],
)
def test_a_name_that_is_no_device_is_a_usage_error(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--device", name, "--", "true"]) == 2
    assert message in capsys.readouterr().err
