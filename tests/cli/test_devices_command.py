"""`autocap devices`, above an emulated NVML library."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autocap.cli.device_inventory import inventory_of
from autocap.cli.device_tables import show_nodes
from autocap.clock import VirtualClock
from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.cli.device_nodes import heard
from autocap.plugins.fleet.nodes.channel import EngineJob
from autocap.plugins.fleet.nodes.protocol import Listed, Lost, Message, Word
from bench.nvml_emulation import FileBoard, Limits, environment, machine
from tests.cli.test_cli import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    made.end()


def test_without_a_driver_it_explains_and_exits_with_0(cli: Cli) -> None:
    done = cli("devices")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no NVIDIA GPU can be used: opening NVML failed with LIBRARY_NOT_FOUND (12)")
    assert "--device emulated" in done.stdout
    found = json.loads(cli("devices", "--json").stdout)
    assert found["gpus"] == []
    assert found["driver_version"] is None
    assert found["unavailable"].startswith("no NVIDIA GPU can be used")


def test_each_gpu_is_shown_with_its_limits_and_why_they_cannot_be_set_and_none_is_touched(cli: Cli) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=3, arrivals_mw=[240_123, 260_000, 260_000])
    made = made.with_card(1, replace(made.cards[1], mig=True, energy_gain=0.5))
    made = made.with_card(2, replace(made.cards[2], limits=Limits.UNSUPPORTED, persistence=False))
    board = FileBoard.create(cli.folder / "machine.json", made)
    cli.env = environment(cli.folder / "machine.json", cli.env)
    done = cli("devices", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["driver_version"] == made.driver_version
    assert found["unavailable"] is None
    first, split, laptop = found["gpus"]
    assert (first["cap_requested_w"], first["cap_min_w"], first["cap_max_w"]) == (240.123, 100.0, 260.0)
    assert first["sensor"]["source"] == "instant field 186"
    assert first["sensor"]["update_s"] == pytest.approx(0.1, rel=0.1)
    assert split["settable"] is laptop["settable"] is False
    assert "MIG instances, which share one power limit" in split["settable_why"]
    assert "has no power limit to set" in laptop["settable_why"]
    assert "where the power readings add up to" in split["sensor"]["trouble"]
    assert (laptop["cap_requested_w"], laptop["cap_enforced_w"]) == (None, 260.0)
    assert board.read().changes == ()
    assert cli.leftovers() == []


def test_the_table_is_plain_text_and_says_what_a_user_should_know_of_a_gpu(cli: Cli) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=2, arrivals_mw=[240_123, 260_000])
    made = made.with_card(1, replace(made.cards[1], limits=Limits.UNSUPPORTED, persistence=False))
    board = FileBoard.create(cli.folder / "machine.json", made)
    cli.env = environment(cli.folder / "machine.json", cli.env)
    shown = cli("devices").stdout
    assert "\x1b" not in shown
    assert "240.123" in shown
    assert "persistence mode is off" in shown
    assert board.read().changes == ()
    assert cli.leftovers() == []


@dataclass
class Nodes:
    """A `Channel` to nodes that answer a word each. job: known once they are asked."""

    answers: list[list[tuple[int, Message]]]
    names: tuple[str, ...] | None
    job: EngineJob | None = None
    asked: int = 0

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        assert isinstance(message, Word)
        self.asked += 1
        self.job = None if self.names is None else EngineJob(id="7", nodes=self.names)

    def receive(self) -> list[tuple[int, Message]]:
        return self.answers.pop(0) if self.answers else []

    def leave(self) -> None: ...

    def close(self) -> None: ...


def test_several_nodes_are_shown_together_and_those_that_do_not_answer_with_why(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=2, arrivals_mw=[240_123, 260_000])
    made = made.with_card(1, replace(made.cards[1], limits=Limits.UNSUPPORTED))
    FileBoard.create(cli.folder / "machine.json", made)
    cli.env = environment(cli.folder / "machine.json", cli.env)
    listed = Listed(devices=cli("devices", "--json").stdout)
    clock = VirtualClock()
    other = Listed(devices='{"gpus": 3}')
    nodes = Nodes(
        [[(2, listed)], [], [(1, Lost(why="it is down")), (0, listed)], [(3, other)]], ("a", "b", "c", "d", "e")
    )
    found = heard(nodes, lambda s: clock.wait_until(clock.now() + s), clock.now)
    assert clock.now() == pytest.approx(60.0, abs=1.0)
    assert nodes.asked > 100
    assert found["a"] == found["c"] == inventory_of(json.loads(listed.devices))
    assert found["b"] == "it is down"
    assert str(found["d"]).startswith("it said what autocap here does not say")
    assert found["e"] == "nothing was heard of it within 60 s"
    show_nodes(found)
    shown = capsys.readouterr().out
    assert re.search(r"^node +GPU +name", shown)
    assert re.search(r"^c +0 +Quadro RTX 6000 \(emulated NVML\) +240\.123 ", shown, re.MULTILINE)
    assert "c: GPU 1: " in shown
    assert "b: it is down\n" in shown
    with pytest.raises(EngineUnavailable, match="the nodes are not known after 60 s"):
        heard(Nodes([], None), lambda s: clock.wait_until(clock.now() + s), clock.now)


def test_nodes_and_the_job_they_are_of_go_together(cli: Cli) -> None:
    done = cli("devices", "--job", "7")
    assert (done.returncode, done.stderr) == (2, "autocap: --job 7 names a Slurm job; add --nodes slurm, or drop it\n")
    done = cli("devices", "--job", "7", "--nodes", "ray")
    assert (done.returncode, done.stderr) == (2, "autocap: --job 7 names a Slurm job; use --nodes slurm, or drop it\n")
