"""How a site reaches its nodes, in virtual time: who is gone is reached by another line."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from autocap import __version__
from autocap.limits import Restored
from autocap.limits.times import SITE_GONE_S
from autocap.plugins.fleet.nodes.protocol import (
    VERSION,
    Deed,
    Do,
    Done,
    Failed,
    Found,
    Hello,
    Lost,
    Message,
    Note,
    Share,
)
from autocap.plugins.fleet.site.nodes import Nodes
from autocap.plugins.fleet.site.parts import Parts
from autocap.records import SensorInfo
from tests.plugins.fleet.site.test_parts import FOUND_W, books, job


class FakeLine:
    """A `Channel` whose nodes answer each share, unless they are silent."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.silent, self.left = tuple(names), set[str](), False
        self.descriptors: tuple[int, ...] = ()
        self.shares: list[Share] = []
        self.heard: list[tuple[int, Message]] = [
            (number, message) for number, _ in enumerate(names) for message in (hello(), found())
        ]

    def send(self, message: Message) -> None:
        for number, name in enumerate(self.names):
            if isinstance(message, Share) and name not in self.silent:
                part_w = message.parts_w[number]
                said = books(job(), serial=message.serials[number], may_w=part_w or books().may_w)
                self.say(name, replace(said, number=message.number))
            elif isinstance(message, Do) and message.what is Deed.END and name not in self.silent:
                back = Restored(uuid=name, original_w=250.0, final_w=250.0, restored=True)
                self.say(name, Done(number=message.number, restored=(back,)))
        if isinstance(message, Share):
            self.shares.append(message)

    def say(self, name: str, message: Message) -> None:
        self.heard.append((self.names.index(name), message))

    def receive(self) -> list[tuple[int, Message]]:
        heard, self.heard = self.heard, []
        return heard

    def leave(self) -> None:
        self.left = True

    def close(self) -> None:
        self.left = True


class World:
    def __init__(self) -> None:
        self.now_s, self.lines = 0.0, list[FakeLine]()
        self.parts = Parts(1000.0)
        self.nodes = Nodes(self.open, ("a", "b"), self.parts, lambda: self.now_s, self.pause)

    def open(self, names: Sequence[str]) -> FakeLine:
        self.lines.append(FakeLine(names))
        return self.lines[-1]

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.now_s += 0.1
            self.nodes.open()
            self.nodes.tend()
            if self.parts.decide(self.now_s).orders:
                self.nodes.say()


def hello() -> Hello:
    return Hello(version=VERSION, autocap_version=__version__, node="", pid=1, boot_id="", clock_id="")


def found() -> Found:
    return Found(
        kind="nvml", emulated=True, driver=None, gpus=(), original_w=(),
        sensor=SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.5),
    )  # fmt: skip


@pytest.fixture
def world() -> World:
    one = World()
    one.run(1.0)
    assert one.nodes.are_all_there
    assert [line.names for line in one.lines] == [("a", "b")]
    return one


def standing_w(world: World) -> tuple[float, float]:
    return world.parts["a"].standing_w, world.parts["b"].standing_w


def test_who_is_gone_comes_back_by_a_line_of_its_own(world: World) -> None:
    part_w = standing_w(world)[0]
    world.lines[0].say("a", Lost(why="its agent ended with status 137"))
    world.nodes.tend()
    world.parts.decide(world.now_s)
    assert standing_w(world)[0] == FOUND_W
    assert world.nodes.gone == {"a": "its agent ended with status 137"}
    world.run(3.0)
    assert [line.names for line in world.lines] == [("a", "b"), ("a",)]
    assert world.nodes.gone == {}
    assert standing_w(world) == pytest.approx((part_w, part_w), abs=1.1)
    assert world.nodes.notes[-1] == "a is heard again"
    assert world.lines[0].shares[-1].serials[0] == 0  # whoever may hear it there has no part any more
    assert not world.lines[0].left


def test_a_line_on_which_nobody_is_heard_is_given_up(world: World) -> None:
    world.lines[0].silent = {"a", "b"}
    world.run(9.0)
    assert len(world.lines) == 1
    world.run(4.0)
    assert [line.left for line in world.lines] == [True, False]
    assert world.nodes.are_all_there


def test_a_single_node_that_is_silent_is_reached_anew_once_it_has_left_by_itself(world: World) -> None:
    world.lines[0].silent = {"a"}
    world.run(SITE_GONE_S + 2.0)
    assert len(world.lines) == 1
    assert standing_w(world)[0] == FOUND_W
    world.run(12.0)
    assert world.lines[1].names == ("a",)
    assert world.nodes.are_all_there


def test_who_has_failed_is_not_asked_again(world: World) -> None:
    world.lines[0].say("a", Note(text="careful\x1b[2J"))
    world.lines[0].say("a", Failed(why="somebody else has changed a limit"))
    world.run(60.0)
    assert len(world.lines) == 1
    assert not world.nodes.have_all_left
    assert world.nodes.notes[0].startswith("a: careful")
    assert "\x1b" not in world.nodes.notes[0]
    assert standing_w(world)[0] == FOUND_W
    world.lines[0].say("b", Failed(why="a signal asked for the end"))
    world.run(0.2)
    assert world.nodes.have_all_left


def test_another_version_has_no_part() -> None:
    world = World()
    world.nodes.open()
    world.lines[0].heard = [(0, replace(hello(), autocap_version="0.0.1"))]
    world.nodes.tend()
    assert world.nodes.gone["a"] == f"it has autocap 0.0.1, and we {__version__}"


def test_the_end_is_said_again_as_an_answer_may_come_with_the_next_word(world: World) -> None:
    (line,), late = world.lines, list[Message]()
    hears = line.send

    def send(message: Message) -> None:
        late.append(message)
        if len(late) > 1:
            hears(late[-2])

    line.send = send  # type: ignore[method-assign]
    began_s = world.now_s
    world.nodes.end(10.0)
    assert set(world.nodes.restored) == {"a", "b"}
    assert world.now_s < began_s + 1.0


def test_at_the_end_all_say_what_became_of_their_limits(world: World) -> None:
    world.lines[0].silent = {"b"}
    began_s = world.now_s
    world.nodes.end(10.0)
    assert set(world.nodes.restored) == {"a"}
    assert world.now_s >= began_s + 10.0
    assert world.lines[0].left
