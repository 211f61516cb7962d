"""Blocks of the documents that are no commands: Python compiles, the example strategy and the example device are what
they claim to be, TOML can be read."""

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from autocap.cli import settings
from tests.cli.test_cli import Cli
from tests.docs.pages import ALL_BLOCKS, Block
from tests.doubles.waiting import eventually

STRATEGY, ITS_TEST = (
    block for block in ALL_BLOCKS if "class CoarseToFine(" in block.text or "coarse import" in block.text
)
DEVICE, ITS_CONTRACT = (block for block in ALL_BLOCKS if "class MyCard(" in block.text or "mycard import" in block.text)


def _executed(block: Block, name: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(block.text, str(block), "exec"), module.__dict__)
    return module


sys.modules["coarse"] = _executed(STRATEGY, "coarse")
TestCoarseToFine = _executed(ITS_TEST, "test_coarse").TestCoarseToFine  # run as it stands, through the whole contract
sys.modules["mycard"] = _executed(DEVICE, "mycard")
TestMyCard = _executed(ITS_CONTRACT, "test_mycard").TestMyCard


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """Where the example device is installed, and a card is there."""
    made = Cli(tmp_path)
    (tmp_path / "mycard.py").write_text(DEVICE.text)
    (tmp_path / "mycard-1.dist-info").mkdir()
    (tmp_path / "mycard-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mycard\nVersion: 1\n")
    (tmp_path / "mycard-1.dist-info" / "entry_points.txt").write_text("[autocap.devices]\nmycard = mycard\n")
    (tmp_path / "card0").mkdir()
    (tmp_path / "card0" / "power_w").write_text("210")
    (tmp_path / "card0" / "limit_w").write_text("250")
    made.env["PYTHONPATH"] += os.pathsep + str(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_the_example_device_is_searched_and_put_back(cli: Cli) -> None:
    cli.job.write_text(
        "import autocap, os, time\nwhile not os.path.exists('stop'):\n    time.sleep(0.01)\n    autocap.step()\n"
    )
    words = ("run", "--device", "mycard:card0", "--strategy", "linear", "--out", "run")
    run = cli.start(*words, "--", cli.argv()[0], "job.py")
    eventually(lambda: cli.events("trial_started"))
    assert cli.ended(run) == 0
    assert float((cli.folder / "card0" / "limit_w").read_text()) == 250.0
    assert cli.events("limit_restored")[0]["restored"] is True
    assert cli.leftovers() == []


def test_the_example_device_is_refused_without_a_folder(cli: Cli) -> None:
    done = cli("run", "--device", "mycard:", "--", "true")
    assert (done.returncode, done.stderr) == (2, "autocap: name the card: --device mycard:FOLDER\n")


def test_the_example_strategy_is_short() -> None:
    assert len(STRATEGY.text.splitlines()) < 60


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "python"], ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "toml"], ids=str)
def test_toml_can_be_read(block: Block) -> None:
    read = tomllib.loads(block.text)
    assert "project" not in read or read["project"]["entry-points"]


@pytest.mark.parametrize("command", [one for one in settings.commands() if settings.of_a_job(one)])
def test_the_example_settings_are_read(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = (block for block in ALL_BLOCKS if block.page == "docs/configuration.md" and block.language == "toml")
    (tmp_path / "autocap.toml").write_text(example.text)
    monkeypatch.chdir(tmp_path)
    _, here = settings.layers(command)
    assert here["gpus"].text == ("0;0,1" if command == "sweep" else "0,1")


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in ALL_BLOCKS} <= {"", "text", "python", "toml", "udev", "yaml"}
