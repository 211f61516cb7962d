"""Plays scenes in processes of their own, and gives the tests what was told of them."""

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.test_cli import Cli
from tests.doubles import file_device
from tests.frameworks.stage import ARRIVAL_W, GPU, QUICK, TOLD

RUN = ("autocap", "run", "--out=run", *(f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()))
# With --cpu it would leave the second rank to mpirun. The scripts ask for the CPU themselves.
ACCELERATE = (
    *("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no"),
    "--dynamo_backend=no",
)
_LONGEST_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a play. told: of each scene, what its processes told; leftovers: files in the state directory."""

    folder: Path
    status: int
    err: str
    told: dict[str, list[dict[str, object]]]
    leftovers: list[str]
    pid: int

    def events(self, run: str, name: str) -> list[dict[str, object]]:
        log = self.folder / run / "events.jsonl"
        lines = log.read_text().splitlines()
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    def states(self, run: str) -> list[object]:
        return [event["state"] for event in self.events(run, "state_entered")]

    def require_paused(self, run: str) -> None:
        """A validation in the middle of the search was a pause."""
        states = self.states(run)
        assert "PAUSED" in states[states.index("SEARCHING") :]

    @property
    def limit_w(self) -> float:
        return json.loads((self.folder / GPU).read_text())["requested_w"]

    def require_untouched(self) -> None:
        """Whatever happened, the limit is the one found on arrival, and nobody holds anything."""
        assert (self.limit_w, self.leftovers) == (ARRIVAL_W, [])


def play(folder: Path, *words: str) -> Played:
    """Run modules one within the other: words are those after `python -m`, `--` stands for another `python -m`.

    The device is a file whose limit on arrival is neither its default nor its maximum; there is no GPU.
    """
    file_device.make(folder, ARRIVAL_W, GPU)
    cli = Cli(folder)
    cli.env["PYTHONPATH"] += f":{file_device.INSTALLED}"
    cli.env |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    python = [sys.executable, "-m"]
    command = [*python]
    for word in words:
        command += ["--", *python] if word == "--" else [word]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            command, cwd=folder, env=cli.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True
        )
        try:
            status = process.wait(_LONGEST_S)
        finally:
            process.kill()
    said = (folder / "err").read_text()
    told: dict[str, list[dict[str, object]]] = {}
    for line in (folder / TOLD).read_text().splitlines() if (folder / TOLD).exists() else ():
        facts = json.loads(line)
        told.setdefault(facts["scene"], []).append(facts)
    print(said)  # what pytest shows of a failure
    return Played(folder=folder, status=status, err=said, told=told, leftovers=cli.leftovers(), pid=process.pid)


def require(*names: str) -> None:
    """Skip the module, or the test, where a framework is not installed."""
    for name in names:
        if find_spec(name) is None:  # importing it here would take seconds
            reason = f"{name} is not installed; `make test-frameworks` installs what can be"
            pytest.skip(reason, allow_module_level=True)


def on_file(folder: Path) -> str:
    return f"--device=file:{folder / GPU}"
