"""Agents as real processes: whatever becomes of them or of their controller, limits are back to the milliwatt."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from autocap.plugins.fleet.nodes.protocol import (
    Command,
    CommandKind,
    Failed,
    Heartbeat,
    HeartbeatReply,
    Hello,
    JobEnded,
    Rows,
    line_of,
    said,
)
from tests.doubles.waiting import eventually
from tests.plugins.fleet.nodes.agent_stand import Controller, Node

WAIT_S = 60.0  # under load


@dataclass
class Stage:
    folder: Path
    nodes: list[Node] = field(default_factory=list)
    controllers: list[Controller] = field(default_factory=list)

    def node(self, name: str = "n1", step_map: Path | None = None) -> Node:
        self.nodes.append(Node(self.folder, name, step_map))
        return self.nodes[-1]

    def controller(self, node: Node) -> Controller:
        self.controllers.append(Controller(node.agent()))
        return self.controllers[-1]

    def capped(self) -> tuple[Node, Controller]:
        """A node whose job computes under caps."""
        node = self.node()
        node.play()
        controller = self.controller(node)
        controller.begin()
        eventually(lambda: controller.found, WAIT_S)

        def is_done() -> object:
            controller.set(1)
            return controller.done(1)

        eventually(is_done, WAIT_S)
        assert node.is_capped
        return node, controller


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        for controller in made.controllers:
            controller.end()
        for node in made.nodes:
            node.end()


@pytest.mark.slow
def test_an_agent_finds_measures_sets_whatever_else_it_is_told_and_says_what_it_put_back(stage: Stage) -> None:
    node, controller = stage.capped()
    assert isinstance(controller.said[0], Hello)
    assert controller.said[0].node == "n1"
    found = controller.found
    assert found.original_w == (250.123, 249.001)
    eventually(lambda: sum(len(each.rows) for each in controller.said if isinstance(each, Rows)) >= 20, WAIT_S)
    firsts = [(each.first, len(each.rows)) for each in controller.said if isinstance(each, Rows)]
    assert all(first + many == after for (first, many), (after, _) in pairwise(firsts))
    for line in (
        b"\0\xff garbage\n",
        b"{}\n",
        b'{"says":"do","with":{"number":2,"what":"set","caps_w":[1,2]},"to":[5]}\n',
    ):
        controller.raw(line)
    controller.tell(Command(number=3, what=CommandKind.SET, caps_w=(1.0, 2.0)))
    eventually(lambda: controller.done(3), WAIT_S)
    assert "below the 100 W minimum" in controller.done(3).why
    assert node.is_capped
    assert not any(isinstance(each, Failed) for each in controller.said)
    controller.tell(Command(number=4, what=CommandKind.END))
    eventually(lambda: controller.done(4), WAIT_S)
    done = controller.done(4)
    assert done.fault is None
    assert [one.final_w for one in done.restored] == [250.123, 249.001]
    assert all(one.restored for one in done.restored)
    assert controller.agent.wait(WAIT_S) == 0
    assert node.is_back


@pytest.mark.slow
def test_the_end_of_its_input_puts_back_and_ends(stage: Stage) -> None:
    node, controller = stage.capped()
    controller.agent.send_signal(signal.SIGTSTP)  # as Slurm says that it suspends the job: puts back as well
    eventually(lambda: node.is_back, WAIT_S)
    controller.hang_up()
    assert controller.agent.wait(WAIT_S) == 0
    assert node.is_back


@pytest.mark.parametrize("signum", [None, signal.SIGTERM])
def test_one_whose_call_does_not_come_back_leaves_all_the_same(signum: signal.Signals | None) -> None:
    stuck = "import time; from autocap.plugins.fleet.nodes.agent import __main__ as m; m.AT_LATEST_S = 0.0"
    stuck += "; m._loop = lambda *_: time.sleep(600); m.main([])"
    with subprocess.Popen([sys.executable, "-c", stuck], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        agent.stdout.readline()  # that it is there
        agent.stdin.close() if signum is None else agent.send_signal(signum)
        try:
            assert agent.wait(WAIT_S) == 1
        finally:
            agent.kill()


@pytest.mark.slow
def test_a_killed_agent_is_put_back_by_its_watchdog(stage: Stage) -> None:
    node, controller = stage.capped()
    controller.agent.kill()
    eventually(lambda: node.is_back, WAIT_S)


@pytest.mark.slow
def test_a_stopped_agent_is_put_back_and_sets_again_once_it_goes_on_until_sigint(stage: Stage) -> None:
    node, controller = stage.capped()
    controller.agent.send_signal(signal.SIGSTOP)
    eventually(lambda: node.is_back, WAIT_S)
    controller.agent.send_signal(signal.SIGCONT)
    eventually(lambda: any(isinstance(each, HeartbeatReply) and each.put_backs for each in controller.said), WAIT_S)
    eventually(lambda: controller.caps(node), WAIT_S)
    controller.agent.send_signal(signal.SIGINT)
    assert controller.agent.wait(WAIT_S) == 0
    assert node.is_back


@pytest.mark.slow
def test_the_jobs_end_puts_back_and_is_told(stage: Stage) -> None:
    node = stage.node()
    job = node.play()
    controller = stage.controller(node)
    controller.begin()
    eventually(lambda: controller.found, WAIT_S)
    controller.set(1)
    eventually(lambda: controller.done(1), WAIT_S)
    job.kill()
    job.wait()
    eventually(lambda: any(isinstance(each, JobEnded) for each in controller.said), WAIT_S)
    assert node.is_back
    controller.set(2)
    eventually(lambda: controller.done(2), WAIT_S)
    done = controller.done(2)
    assert "has ended" in done.why
    assert node.is_back
    controller.agent.send_signal(signal.SIGHUP)
    assert controller.agent.wait(WAIT_S) == 0


@pytest.mark.slow
def test_one_who_does_not_read_keeps_nothing_from_being_put_back(stage: Stage) -> None:
    node = stage.node()
    node.play()
    stage.controllers.append(controller := Controller(node.agent(), listens=False))
    controller.begin()
    eventually(lambda: controller.caps(node), WAIT_S)  # once there is something to set
    eventually(lambda: controller.is_full, WAIT_S)
    controller.silent.set()
    eventually(lambda: node.is_back, WAIT_S)
    assert controller.agent.wait(WAIT_S) == 0


@pytest.mark.slow
def test_agents_that_share_a_machine_and_a_map_count_their_own_processes(stage: Stage) -> None:
    step_map = Path("/dev/shm") / f"autocap-steps-2-{os.urandom(16).hex()}"
    nodes = [stage.node(name, step_map) for name in ("n1", "n2")]
    first, second = (stage.controller(node) for node in nodes)
    nodes[0].play()  # before there is a map
    for controller in (first, second):
        controller.begin(step_map)
    eventually(lambda: first.count > 0, WAIT_S)
    assert second.found is None
    nodes[1].play()
    eventually(lambda: second.count > 0, WAIT_S)
    before = first.count
    eventually(lambda: first.count > before, WAIT_S)
    assert second.count < first.count
    for controller in (first, second):
        controller.hang_up()
        assert controller.agent.wait(WAIT_S) == 0
    assert not step_map.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "heard"), [(b"3 rack1\n", [7]), (b"", None)])
def test_a_spare_agent_begins_once_it_is_told_which_it_is(first: bytes, heard: list[int] | None) -> None:
    words = [line_of(Heartbeat(number=number, interval_s=0.1, counted=True), to=(number % 4,)) for number in (6, 7)]
    spare = subprocess.run(
        [sys.executable, "-m", "autocap.plugins.fleet.nodes.agent", "--spare"],
        env={**os.environ, "SLURM_PROCID": "2"},
        input=b"".join([first, *words] if first else []),
        capture_output=True,
        timeout=WAIT_S,
        check=True,
    )
    messages = [said(line) for line in spare.stdout.splitlines()]
    if heard is None:
        assert messages == []
    else:
        hello = messages.pop(0)
        assert isinstance(hello, Hello)
        assert hello.node == "rack1"
        assert [message.number for message in messages if isinstance(message, HeartbeatReply)] == heard
