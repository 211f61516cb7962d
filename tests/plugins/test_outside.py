"""What another package adds, one file each, is found by its entry point and used as ours is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

DIST = "mine-1.dist-info"
FILES = {
    "mine_strategy.py": """
from autocap.strategies.base import Strategy

class Lowest(Strategy):
    "The lowest cap alone."

    def _next(self):
        return None if self.tried(self.grid[0]) else self.grid[0]
""",
    "mine_metric.py": """
from autocap.metrics import Terms

def terms(metric, baseline):
    return Terms(energy=1.0, power=3, time=0.0)
""",
    "mine_source.py": """
from autocap.session.prices.series import parse

ZONED = True

def missing():
    return None

def read(zone, wall_s):
    return parse(b"time,gCO2/kWh\\n2020-01-01T00:00Z,123\\n2120-01-01T00:00Z,80\\n", zone, "carbon")
""",
    "mine_device.py": next(block.text for block in blocks(ROOT / "docs/devices.md") if "class MyCard" in block.text),
    "mine_inventory.py": """
from autocap.devices.inventory import DescribedDevice, Inventory, ListedDevice
from autocap.devices.permission import Settable

class Cards(Inventory):
    noun = "card"

    def described(self):
        card = ListedDevice(index=0, uuid="card0", kind="mycard", name="My Card", noun=self.noun, requested_w=250.0)
        return (DescribedDevice(device=card, direct=Settable(answer=True, why="anybody may")),)
""",
    "mine_transport.py": """
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.protocol import Target
from autocap.plugins.fleet.nodes.transport import Carrier

LABELLED = ["sh", "-c", '"$@" | sed -u "s/^/0: /"', "sh"]

class Here:
    "This machine, as if it were a node."

    has_job_around = False

    def nodes(self, address, job):
        return EngineJob(id=job or "1", nodes=(address or "me",))

    def carrier(self, address, job, *, driver, agent):
        found = self.nodes(address, job)
        target = Target(engine="mine", job=found.id)
        return Carrier(target=target, names=found.nodes, open=lambda: Channel([*LABELLED, *agent], job=found))
""",
    "mine_progress.py": """
import time
from autocap.progress.counting import Counting
from autocap.records import StepReading

class Ticks(Counting):
    "As many iterations a second as the argument says."

    kind, what = "ticks", "tick"

    def __init__(self, argument, *, ours):
        super().__init__()
        self.hz, self.began_s = float(argument), time.monotonic()

    def read(self, origin_s, *, needed=True):
        count = int((time.monotonic() - self.began_s) * self.hz)
        return StepReading(t_s=self.began_s + count / self.hz - origin_s, count=count) if count else None
""",
    "mine_section.py": """
from autocap.reports.document import Sentences

def section(summary, events):
    yield Sentences(lines=(f"{len(events)} events, says mine",))

def broken(summary, events):
    raise LookupError("nothing")
""",
    "mine_command.py": """
class Hello:
    "Say hello."

    is_session = False

    def prepare_parser(self, parser):
        parser.add_argument("--loud", action="store_true")

    def run(self, args):
        print("HELLO" if args.loud else "hello")
        return 0
""",
}
SLEEPS = (sys.executable, "-c", "import time; time.sleep(1.2)")
POINTS = """[autocap.strategies]
lowest = mine_strategy:Lowest
[autocap.metrics]
ed3p = mine_metric:terms
[autocap.carbon]
mine = mine_source
[autocap.commands]
hello = mine_command:Hello
[autocap.devices]
mycard = mine_device
[autocap.inventories]
mycard = mine_inventory:Cards
[autocap.progress]
ticks = mine_progress:Ticks
[autocap.sections]
mine = mine_section:section
worse = mine_section:broken
[autocap.transports]
mine = mine_transport:Here
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / DIST).mkdir()
    (folder / DIST / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (folder / DIST / "entry_points.txt").write_text(POINTS)
    return folder


def autocap(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "autocap", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_command(outside: Path) -> None:
    assert autocap(outside, "hello", "--loud").stdout == "HELLO\n"
    assert "  hello       from another package (mine_command:Hello)\n" in autocap(outside, "--help").stdout


@pytest.mark.slow
def test_a_strategy_a_metric_and_a_source_of_carbon(outside: Path) -> None:
    words = ("--device", "emulated", "--no-memory", "--strategy", "lowest", "--metric", "ed3p", "--carbon", "mine:DE")
    words += ("--progress", "ticks:20")

    run = autocap(outside, "run", *words, "--out", "run", "--", *SLEEPS)

    assert run.returncode == 0, run.stderr
    events = [json.loads(line) for line in (outside / "run/events.jsonl").read_text().splitlines()]
    assert (events[0]["strategy"], events[0]["metric"]["name"]) == ("lowest", "ed3p")
    assert [one["value"] for one in events if one["event"] == "quoted"][:1] == [123.0]
    assert [one["kind"] for one in events if one["event"] == "progress_found"] == ["ticks"]
    report = autocap(outside, "report", "run")
    assert report.returncode == 0
    assert f"{len(events)} events, says mine" in report.stdout
    assert "the section worse of this report failed: LookupError: nothing" in report.stdout
    refused = autocap(outside, "run", "--device", "emulated", "--carbon", "mine", "--", "true")
    assert "unknown source 'mine'; give a number" in refused.stderr
    refused = autocap(outside, "attach", "--pid", "1", "--progress", "tics:2")
    assert "unknown progress 'tics:2' (did you mean ticks?)" in refused.stderr


@pytest.mark.slow
def test_a_device_and_a_transport(outside: Path) -> None:
    card = outside / "card"
    card.mkdir()
    (card / "power_w").write_text("123")
    (card / "limit_w").write_text("300")

    run = autocap(outside, "run", "--device", f"mycard:{card}", "--no-memory", "--out", "carded", "--", *SLEEPS)
    assert (run.returncode, "My Card" in run.stderr) == (0, True), run.stderr
    assert float((card / "limit_w").read_text()) == 300

    shown = autocap(outside, "devices", "--nodes", "mine:elsewhere", "--json")
    (found,) = json.loads(shown.stdout)["nodes"].values()
    assert (shown.returncode, found["gpus"][-1]["name"], found["gpus"][-1]["settable"]) == (0, "My Card", True)
    refused = autocap(outside, "run", "--nodes", "min", "--", "true")
    assert "there is no 'min' (did you mean mine?); choose slurm, ray, mine" in refused.stderr
