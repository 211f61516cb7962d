"""Which part of a budget each node has and how a site reaches them, in virtual time, with lines that lose and break."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest

from autocap import __version__
from autocap.events import Event
from autocap.limits import Restored
from autocap.limits.times import LEASE_S, PART_HOLDS_S, SITE_GONE_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.protocol import JobStanding
from autocap.plugins.fleet.budget.shares import prior
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.multinode.node_allocations import EventsFromReports, NodeAllocations, require_sane
from autocap.plugins.fleet.multinode.nodes import Nodes
from autocap.plugins.fleet.nodes.protocol import (
    VERSION,
    Command,
    CommandKind,
    Done,
    Failed,
    Found,
    Hello,
    JobReport,
    Lost,
    Message,
    NodeReport,
    Note,
    SetAllocation,
)
from autocap.records import SensorInfo

LOW_W, HIGH_W, RESERVED_W = 100.0, 250.0, 1.5
GPUS = 2
FLOOR_W, FOUND_W = GPUS * LOW_W + RESERVED_W, GPUS * HIGH_W + RESERVED_W


def job(name: str = "train 1", *, devices: int = GPUS, weight: float = 1.0, high_w: float = HIGH_W) -> JobReport:
    curve = prior(LOW_W, high_w)
    at = JobStanding(
        name=name,
        devices=tuple(f"{name}-{place}" for place in range(devices)),
        pid=1,
        tuned=False,
        cap_w=LOW_W,
        lowest_w=LOW_W,
        draw_w=None,
        weight=weight,
        slowdown=0.0,
        slowdown_stderr=0.0,
        ceiling_w=100.0,
    )
    return JobReport(
        at=at,
        caps_w=tuple(map(float, curve.caps_w)),
        slowdown=tuple(map(float, curve.slowdown)),
        energy=tuple(map(float, curve.energy)),
    )


def books(*jobs: JobReport, serial: int = 0, may_w: float = FLOOR_W, floor_w: float = FLOOR_W) -> NodeReport:
    of_jobs_w = sum(len(one.at.devices) * LOW_W for one in jobs)
    return NodeReport(
        number=1,
        serial=serial,
        may_w=may_w,
        floor_w=floor_w,
        fixed_w=floor_w - of_jobs_w,
        found_w=FOUND_W,
        reserved_w=RESERVED_W,
        jobs=jobs,
        free=(),
        powers_w=(None,) * GPUS,
        power_w=None,
    )


def begun(budget_w: float, **nodes: NodeReport) -> NodeAllocations:
    """All nodes have told how they stand, and hold what they were given."""
    parts = NodeAllocations(budget_w)
    for name, one in nodes.items():
        parts.report(0.0, name, one, 0.0)
    settle(parts, 0.0)
    return parts


def settle(parts: NodeAllocations, t_s: float) -> None:
    """All do what they are told, until nobody is told anything."""
    while parts.decide(t_s).orders:
        obey(parts, t_s)


def obey(parts: NodeAllocations, t_s: float) -> None:
    for name, one in list(parts.books.items()):
        serial, part_w = parts.part(name)
        parts.report(t_s, name, replace(one, serial=serial, may_w=part_w or one.floor_w), t_s)


def parts_w(parts: NodeAllocations) -> dict[str, float]:
    return {one.name: one.standing_w for one in parts}


def test_a_part_is_what_its_jobs_get_and_what_the_node_needs_beside_them() -> None:
    parts = begun(800.0, a=books(job()), b=books(job()), c=books())
    assert parts_w(parts) == {"a": pytest.approx(298.5, abs=1.0), "b": pytest.approx(298.5, abs=1.0), "c": FLOOR_W}
    assert 0 <= parts.room_w < 1.5
    parts = begun(5000.0, a=books(job()), b=books(job(high_w=180.0)))
    assert parts_w(parts) == {"a": FOUND_W, "b": GPUS * 180.0 + RESERVED_W}


def test_jobs_of_all_nodes_are_slowed_down_alike_by_their_weights() -> None:
    two = job("x 1", devices=1), job("y 2", devices=1, weight=2.0)
    parts = begun(720.0, a=books(job()), b=books(*two))
    slowdown = prior(LOW_W, HIGH_W)
    a, x, y = (parts._caps_w[key] for key in (("a", "train 1"), ("b", "x 1"), ("b", "y 2")))
    at = np.interp([a, x, y], slowdown.caps_w, slowdown.slowdown)
    assert (at[0], at[2]) == (pytest.approx(at[1], abs=0.005), pytest.approx(at[1] / 2, abs=0.005))
    parts.policy(Policy.THROUGHPUT)
    settle(parts, 1.0)
    assert parts.room_w >= 0


def test_nobody_is_raised_before_those_who_make_room_have_confirmed() -> None:
    parts = begun(800.0, a=books(job()), b=books())
    assert parts_w(parts)["a"] == FOUND_W
    parts.report(1.0, "b", books(job("new 1")), 1.0)
    first = {order.name: order for order in parts.decide(1.0).orders}
    assert set(first) == {"a"}
    assert parts.part("b") == (parts.part("b")[0], FLOOR_W)
    parts.report(1.1, "a", books(job(), serial=first["a"].serial, may_w=FOUND_W), 1.0)  # set, and not seen to hold yet
    assert parts.decide(1.1).orders == ()
    parts.report(1.2, "a", books(job(), serial=first["a"].serial, may_w=first["a"].cap_w), 1.0)
    assert [order.name for order in parts.decide(1.2).orders] == ["b"]
    assert parts.room_w >= 0


def test_who_is_not_heard_has_its_part_for_a_lease_then_its_floor_then_its_limits_found() -> None:
    parts = begun(800.0, a=books(job()), b=books(job()))
    part_w = parts_w(parts)["a"]

    def others_w(t_s: float) -> tuple[float, float]:
        serial, held_w = parts.part("b")
        parts.report(t_s, "b", books(job(), serial=serial, may_w=held_w), t_s)
        parts.decide(t_s)
        return parts_w(parts)["a"], parts_w(parts)["b"]

    assert others_w(LEASE_S - 0.1) == (part_w, pytest.approx(part_w, abs=1.1))
    assert parts.part("a")[1] == part_w  # should it hear us still
    assert others_w(LEASE_S + 0.1) == (FLOOR_W, pytest.approx(FOUND_W))
    assert parts.part("a") == (0, 0.0)
    assert others_w(SITE_GONE_S - 0.1)[0] == FLOOR_W
    a_w, b_w = others_w(SITE_GONE_S + 0.1)
    assert a_w == FOUND_W
    serial, lower_w = parts.part("b")
    assert (b_w, lower_w) == (FOUND_W, pytest.approx(800.0 - FOUND_W, abs=1.0))
    parts.report(20.0, "b", books(job(), serial=serial, may_w=lower_w), 20.0)
    parts.report(20.0, "a", books(job()), 20.0)
    settle(parts, 20.0)
    assert parts_w(parts)["a"] == pytest.approx(part_w, abs=1.1)


def test_who_is_gone_is_counted_with_the_limits_found_at_once() -> None:
    parts = begun(800.0, a=books(job()), b=books(job()))
    parts.gone(1.0, "a")
    (order,) = parts.decide(1.0).orders
    assert (order.name, parts_w(parts)["a"]) == ("b", FOUND_W)
    assert order.cap_w <= 800.0 - FOUND_W


def test_a_floor_that_rises_is_counted_and_others_make_room() -> None:
    parts = begun(800.0, a=books(job()), b=books())
    higher = books(job(), serial=parts.part("a")[0], may_w=FOUND_W)
    parts.report(1.0, "b", books(floor_w=FLOOR_W + 150.0, may_w=FLOOR_W + 150.0), 1.0)
    parts.report(1.0, "a", higher, 1.0)
    orders = {order.name: order.cap_w for order in parts.decide(1.0).orders}
    assert orders["a"] <= 800.0 - FLOOR_W - 150.0


def test_even_floors_above_the_budget_are_said_with_the_jobs_to_pause() -> None:
    parts = begun(FLOOR_W + 100.0, a=books(job()), b=books(job("late 2")))
    decision = parts.decide(1.0)
    assert (decision.short_w, decision.pause) == (pytest.approx(FLOOR_W - 100.0), ("b: late 2",))
    assert parts.part("a")[1] == FLOOR_W


def test_what_cannot_be_is_no_books() -> None:
    require_sane(books(job()))
    for bad in (books(may_w=float("inf")), books(may_w=-1.0), books(replace(job(), slowdown=(0.1,)))):
        with pytest.raises(ValueError, match=r"W$|curve"):
            require_sane(bad)


def test_the_record_names_jobs_with_their_nodes() -> None:
    said: list[Event] = []
    reported, parts = EventsFromReports(said.append), begun(800.0, a=books(job()), b=books(job()))
    reported.write(0.0, parts, parts.decide(0.0))
    assert [one.name for one in said if isinstance(one, budget.JobJoined)] == ["a: train 1", "b: train 1"]
    parts.budget(1.0, 700.0)
    reported.write(1.0, parts, parts.decide(1.0))
    obey(parts, 1.4)
    said.clear()
    reported.write(1.4, parts, parts.decide(1.4))
    lowered = [one for one in said if isinstance(one, budget.CapLowered)]
    assert [(one.name, one.after_s) for one in lowered] == [("a", pytest.approx(0.4)), ("b", pytest.approx(0.4))]
    parts.report(2.0, "a", books(serial=parts.part("a")[0], may_w=FLOOR_W), 2.0)
    reported.write(2.0, parts, parts.decide(2.0))
    assert [one.name for one in said if isinstance(one, budget.JobLeft)] == ["a: train 1"]


# Nodes that obey, behind lines that may fail in any way.


@dataclass
class Wire:
    """Carries things to somebody after a while, unless it is cut: then they wait, or are lost."""

    delay_s: float = 0.01
    cut: bool = False
    held: deque[tuple[float, object]] = field(default_factory=deque)

    def put(self, t_s: float, what: object) -> None:
        self.held.append((t_s, what))

    def take(self, t_s: float) -> Iterator[object]:
        while not self.cut and self.held and t_s >= self.held[0][0] + self.delay_s:
            yield self.held.popleft()[1]


class Node:
    """Holds its part as `Bond` does: by answers that it knows to be heard, 2 s long. in_force_w: a lower part takes a
    while to hold."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name, self.rng = name, rng
        self.to, self.back = Wire(), Wire()
        self.serial, self.part_w = 0, FLOOR_W
        self.in_force_w, self.lower_s = FLOOR_W, 0.0
        self.heard_s = -PART_HOLDS_S
        self.answers: dict[int, float] = {}
        self.number = 0
        self.jobs: tuple[JobReport, ...] = (job(),)

    def live(self, t_s: float) -> None:
        for word in self.to.take(t_s):
            assert isinstance(word, tuple)
            number, known, serial, part_w = word
            self.heard_s = max(self.heard_s, self.answers.get(known, self.heard_s))
            self.answers[number], self.number = t_s, number
            self.hold(t_s, serial, part_w)
            self.say(t_s)
        if self.serial and t_s >= self.heard_s + PART_HOLDS_S:
            self.hold(t_s, 0, 0.0)
        if t_s >= self.lower_s:
            self.in_force_w = self.part_w

    def hold(self, t_s: float, serial: int, part_w: float) -> None:
        self.serial = 0 if t_s >= self.heard_s + PART_HOLDS_S else serial
        part_w = max(part_w, FLOOR_W) if self.serial else FLOOR_W
        if part_w < self.in_force_w and part_w != self.part_w:
            self.lower_s = t_s + self.rng.uniform(0.05, 0.8)
        elif part_w >= self.in_force_w:
            self.in_force_w = part_w
        self.part_w = part_w

    def say(self, t_s: float) -> None:
        may_w = max(self.part_w, self.in_force_w)
        self.back.put(t_s, replace(books(*self.jobs, serial=self.serial, may_w=may_w), number=self.number))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_lines_do_the_sum_in_force_is_within_the_budget_but_after_a_drop(seed: int) -> None:
    rng = Random(seed)
    nodes, budget_w = [Node(name, rng) for name in "abcd"], 1500.0
    parts, words, answered = NodeAllocations(budget_w), dict[int, float](), dict.fromkeys("abcd", 0)
    number, next_word_s, dropped_s, most_w = 0, 0.0, -10.0, 0.0
    for node in nodes:  # a site begins once all have spoken
        parts.report(0.0, node.name, books(job()), 0.0)
    for step in range(6000):
        t_s = 0.02 * step
        if step == 5200:  # from here on all lines work: all come back
            for node in nodes:
                node.to.cut = node.back.cut = False
        calm = step >= 5200
        if rng.random() < 0.004 and not calm:
            wire = rng.choice([rng.choice(nodes).to, rng.choice(nodes).back])
            wire.cut = not wire.cut and sum(node.to.cut + node.back.cut for node in nodes) < 2
        if rng.random() < 0.002 and not calm:
            budget_w, dropped_s = rng.choice([1000.0, 1250.0, 1500.0]), t_s
            parts.budget(t_s, budget_w)
        if rng.random() < 0.004 and not calm:
            one = rng.choice(nodes)
            one.jobs = () if one.jobs else (job(),)
        for node in nodes:
            node.live(t_s)
            for said in node.back.take(t_s):
                assert isinstance(said, NodeReport)
                answered[node.name] = said.number
                parts.report(t_s, node.name, said, words[said.number])
        if parts.decide(t_s).orders or t_s >= next_word_s:
            number, next_word_s = number + 1, t_s + 0.4
            words[number] = t_s
            for node in nodes:
                node.to.put(t_s, (number, answered[node.name], *parts.part(node.name)))
        in_force_w = sum(node.in_force_w for node in nodes)
        most_w = max(most_w, in_force_w / budget_w)
        if t_s > dropped_s + LEASE_S + 1.0:
            assert in_force_w <= budget_w + 1e-6, f"at {t_s:.2f} s"
    assert most_w > 0.95  # it is used
    targets_w = {one.name: one.target_w for one in parts}
    assert {node.name: node.part_w for node in nodes} == pytest.approx(targets_w)


class FakeLine:
    """A `Channel` whose nodes answer each share, unless they are silent."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.silent, self.left = tuple(names), set[str](), False
        self.descriptors: tuple[int, ...] = ()
        self.shares: list[SetAllocation] = []
        self.heard: list[tuple[int, Message]] = [
            (number, message) for number, _ in enumerate(names) for message in (hello(), found())
        ]

    def send(self, message: Message) -> None:
        for number, name in enumerate(self.names):
            if isinstance(message, SetAllocation) and name not in self.silent:
                part_w = message.parts_w[number]
                said = books(job(), serial=message.serials[number], may_w=part_w or books().may_w)
                self.say(name, replace(said, number=message.number))
            elif isinstance(message, Command) and message.what is CommandKind.END and name not in self.silent:
                back = Restored(uuid=name, original_w=250.0, final_w=250.0, restored=True)
                self.say(name, Done(number=message.number, restored=(back,)))
        if isinstance(message, SetAllocation):
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
        self.parts = NodeAllocations(1000.0)
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
