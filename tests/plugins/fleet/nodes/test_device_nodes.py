"""`autocap devices --nodes`: what several nodes say is shown together."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from autocap.cli.device_report import report_of
from autocap.cli.devices import show_nodes
from autocap.clock import VirtualClock
from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.cli.device_nodes import heard
from autocap.plugins.fleet.nodes.channel import EngineJob
from autocap.plugins.fleet.nodes.protocol import Heartbeat, Listed, Lost, Message
from autocap.testing.nvml import FileBoard, Limits, environment, machine
from tests.cli.test_cli import (
    Cli,
    cli,  # noqa: F401 - a fixture
)


@dataclass
class Nodes:
    """A `Channel` to nodes that answer a word each. job: known once they are asked."""

    answers: list[list[tuple[int, Message]]]
    names: tuple[str, ...] | None
    job: EngineJob | None = None
    asked: int = 0

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        assert isinstance(message, Heartbeat)
        self.asked += 1
        self.job = None if self.names is None else EngineJob(id="7", nodes=self.names)

    def receive(self) -> list[tuple[int, Message]]:
        return self.answers.pop(0) if self.answers else []

    def leave(self) -> None: ...

    def close(self) -> None: ...


def test_several_nodes_are_shown_together_and_those_that_do_not_answer_with_why(
    cli: Cli,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
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
    assert found["a"] == found["c"] == report_of(json.loads(listed.devices))
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
