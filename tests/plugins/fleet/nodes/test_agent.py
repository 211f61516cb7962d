"""What an agent does about each message and as time passes: on an emulated machine, in virtual time."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from autocap.limits import Guardian
from autocap.limits.asking import Waiting
from autocap.limits.times import HOLDS_S
from autocap.plugins.fleet.nodes.agent.agent import Agent
from autocap.plugins.fleet.nodes.agent.finding import JobHere
from autocap.plugins.fleet.nodes.agent.preparing import NodeJob, Preparation
from autocap.plugins.fleet.nodes.protocol import (
    Command,
    CommandKind,
    Done,
    Failed,
    Fault,
    Found,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    JobEnded,
    Rows,
)
from autocap.progress.counter import IterationCounter
from autocap.session.via import Actuation
from autocap.testing.nvml import Steps, machine, times
from autocap.testing.nvml.board import requested
from bench.faults.virtual import Unwatched
from tests.doubles.nvml_stand import Stand, stand
from tests.plugins.fleet.nodes.world import BEGIN

CAPS_W = (200.0, 190.0)
ARRIVALS_MW = [250_123, 249_001]


@dataclass
class Job:
    is_alive: bool = True

    def is_there(self) -> bool:
        return self.is_alive


@dataclass
class Ready:
    """A preparation that takes one step."""

    here: NodeJob
    next_s: float = 0.0

    def step(self) -> NodeJob:
        return self.here


@dataclass
class Play:
    """An agent on its machine. said: all that it said."""

    stand: Stand
    job: Job
    agent: Agent
    said: list[FromAgent] = field(default_factory=list)
    number: int = 0
    interval_s: float = 0.1  # of its words

    def word(self, interval_s: float | None = None, *, since: int = 1) -> None:
        """since: how long ago the last answer was that we have heard, in words."""
        self.number += 1
        interval_s = interval_s or self.interval_s
        self.agent.hear(Heartbeat(number=self.number, interval_s=interval_s, counted=False, since=(9, since)))
        self.agent.spoken()

    def advance(self, seconds: float, *, words: bool) -> None:
        """Let time pass, with a word each half second or with none."""
        until_s = self.stand.clock.now() + seconds
        word_s = self.stand.clock.now() if words else math.inf
        while (now_s := self.stand.clock.now()) < until_s and not self.agent.is_leaving:
            if now_s >= word_s:
                self.word()
                word_s = now_s + 0.5
            self.agent.due()
            self.stand.clock.wait_until(min(max(self.agent.next_s, now_s + 1e-6), word_s, until_s))
        self.agent.due()

    def do(self, number: int, what: CommandKind, caps_w: tuple[float, ...] = ()) -> Done:
        self.agent.hear(Command(number=number, what=what, caps_w=caps_w))
        self.agent.spoken()
        done = self.said[-1]
        assert isinstance(done, Done)
        return done

    @property
    def limits_w(self) -> list[float]:
        return [self.stand.requested_mw(gpu) / 1000 for gpu in (0, 1)]


ARRIVALS_W = [250.123, 249.001]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made = machine("quadro-rtx-6000/alexnet", gpus=2, arrivals_mw=ARRIVALS_MW)
    with stand(made) as stood, IterationCounter("period") as counting:
        device = stood.device()
        clock = Waiting(now=stood.clock.now, pause=times(stood.clock)["pause"])
        new = partial(Guardian, state_dir=tmp_path / "state", sync=lambda fd: None, start_watch=Unwatched, clock=clock)
        with new(kind="nvml", gpus=device.gpus, limits=device.limits(), job=None) as guardian:
            job = Job()
            here = NodeJob(
                clock=stood.clock,
                job=cast(JobHere, job),
                device=device,
                counting=counting,
                meter=None,
                way=Actuation(name="direct", gpus=device.gpus, guardian=lambda job: guardian),
                guardian=guardian,
            )
            said: list[FromAgent] = []
            agent = Agent(1, stood.clock, said.append, lambda begin: cast(Preparation, Ready(here)))
            yield Play(stood, job, agent, said)
        device.close()


def begun(play: Play) -> Play:
    play.agent.hear(BEGIN)
    play.word()
    play.advance(1.0, words=True)
    assert any(isinstance(each, Found) for each in play.said)
    return play


@pytest.mark.parametrize("ends_too", [True, False])
def test_a_signal_that_ends_the_job_as_well_is_told_as_the_jobs_end(play: Play, ends_too: bool) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    began_s, looks = play.stand.clock.now(), iter([True, True, not ends_too])
    play.job.is_there = lambda: next(looks, not ends_too)  # type: ignore[method-assign]
    play.agent.told_to_end()
    last = play.said[-1]
    assert isinstance(last, JobEnded if ends_too else Failed)
    assert [one.restored for one in last.restored] == [True, True]
    assert play.stand.clock.now() <= began_s + 0.9  # of which setting limits takes some
    assert play.agent.is_leaving


@pytest.mark.parametrize("interval_s", [0.05, 0.1])
def test_what_is_read_is_sent_each_tenth_of_a_second_in_batches_whose_numbers_follow_each_other(
    play: Play, interval_s: float
) -> None:
    play.interval_s = interval_s
    begun(play).advance(9.0, words=True)
    rows = [each for each in play.said if isinstance(each, Rows)]
    sent = [row for each in rows for row in each.rows]
    assert [each.first for each in rows] == [sum(len(one.rows) for one in rows[:index]) for index in range(len(rows))]
    assert [row.t_s - sent[0].t_s for row in sent] == pytest.approx(
        [index * interval_s for index in range(len(sent))], abs=1e-5
    )
    assert 9.5 <= (len(sent) - 1) * interval_s <= 10.01
    assert 90 <= len(rows) <= 102


def test_a_longer_interval_is_obeyed_and_a_shorter_one_at_once(play: Play) -> None:
    begun(play).word(interval_s=5.0)
    play.stand.clock.wait_until(play.stand.clock.now() + 0.1)
    play.agent.due()
    before_s = play.stand.clock.now()
    assert play.agent.next_s > before_s
    play.said.clear()
    play.word(interval_s=0.1)
    play.advance(0.5, words=False)
    assert sum(len(each.rows) for each in play.said if isinstance(each, Rows)) >= 3


@pytest.mark.parametrize("lag_s", [0.008, 0.5])
def test_a_node_whose_cards_take_limits_in_steps_holds_what_they_make_of_ours_and_puts_back_what_it_found(
    play: Play, lag_s: float
) -> None:
    begun(play)
    firmware = Steps(step_mw=25_000, lag_s=lag_s, untouched_mw=tuple(ARRIVALS_MW))
    for gpu in (0, 1):
        state = play.stand.board.read()
        made = state.machine.with_card(gpu, replace(state.machine.cards[gpu], steps=firmware))
        play.stand.board.update(lambda state, made=made: replace(state, machine=made))
    for number, caps_w in enumerate([(210.0, 190.0), (200.0, 170.0)]):
        assert play.do(number + 1, CommandKind.SET, caps_w) == Done(number=number + 1)
        play.advance(3.0, words=True)
        assert play.limits_w == [25.0 * (cap_w // 25) for cap_w in caps_w]
    play.advance(4.0, words=False)  # the controller is gone
    assert play.limits_w == ARRIVALS_W
    assert not any(isinstance(each, Failed) for each in play.said)


def test_a_deed_is_done_once_the_job_is_found_and_answered_each_time(play: Play) -> None:
    assert play.do(1, CommandKind.SET, CAPS_W).fault is Fault.GUARD
    assert play.limits_w == ARRIVALS_W
    begun(play)
    first = play.do(2, CommandKind.SET, CAPS_W)
    assert first == Done(number=2)
    changes = len(play.stand.board.read().changes)
    assert play.do(2, CommandKind.SET, CAPS_W) == first
    assert len(play.stand.board.read().changes) == changes
    assert play.limits_w == list(CAPS_W)
    said = len(play.said)
    play.do(3, CommandKind.SET, (210.0, 200.0))
    play.agent.hear(Command(number=2, what=CommandKind.SET, caps_w=CAPS_W))  # late: neither done nor answered
    assert play.limits_w == [210.0, 200.0]
    assert len(play.said) == said + 1


def test_restoring_says_what_became_of_each_limit(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    restored = play.do(2, CommandKind.RESTORE).restored
    assert [one.final_w for one in restored] == ARRIVALS_W
    assert play.limits_w == ARRIVALS_W
    assert play.do(3, CommandKind.SET, CAPS_W) == Done(number=3)
    assert [one.restored for one in play.do(4, CommandKind.END).restored] == [True, True]
    assert play.agent.is_leaving


def test_silence_puts_back_again_and_again_and_is_told_with_the_next_answer(play: Play) -> None:
    begun(play).word()
    for number in (1, 2, 3):
        play.word()
        play.do(number, CommandKind.SET, CAPS_W)
        play.advance(HOLDS_S - 0.1, words=False)
        assert play.limits_w == list(CAPS_W)
        play.advance(0.2, words=False)
        assert play.limits_w == ARRIVALS_W
        play.word()
        play.word()
        heard = [each.put_backs for each in play.said if isinstance(each, HeartbeatReply)][-2:]
        assert heard == [number, number]
    assert not play.agent.is_leaving


def test_a_row_that_shows_a_limit_that_was_put_back_is_never_said_without(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    play.advance(1.0, words=True)
    said, told = len(play.said), []

    def beat(job: NodeJob) -> bool:  # as of a helper that was started anew: it has put back, and says so when asked
        told.append(play.limits_w == ARRIVALS_W)
        return told.count(True) == 1 and told[-1]

    monkeypatch.setattr(NodeJob, "beat", beat)
    for gpu, limit_w in enumerate(ARRIVALS_W):
        mw, t_s = round(1000 * limit_w), play.stand.clock.now()
        play.stand.board.update(lambda state, gpu=gpu, mw=mw, t_s=t_s: requested(state, gpu, mw, t_s))  # type: ignore[misc]
    play.advance(1.0, words=True)
    showing = [
        rows.put_backs
        for rows in play.said[said:]
        if isinstance(rows, Rows)
        and any(reading.requested_w in ARRIVALS_W for row in rows.rows for reading in row.readings)
    ]
    assert showing
    assert set(showing) == {1}


def test_words_of_a_controller_that_hears_nothing_hold_no_limit(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    for half in range(1, 10):
        play.advance(0.5, words=False)
        play.word(since=half + 1)
    assert play.limits_w == ARRIVALS_W
    said = len(play.said)
    play.agent.hear(Command(number=2, what=CommandKind.SET, caps_w=CAPS_W))
    play.agent.spoken()
    play.advance(0.05, words=False)
    assert play.limits_w == ARRIVALS_W
    assert not any(isinstance(each, Done) for each in play.said[said:])
    play.word()
    assert play.do(2, CommandKind.SET, CAPS_W) == Done(number=2)
    assert play.limits_w == list(CAPS_W)
    assert not play.agent.is_leaving


def test_six_seconds_of_silence_end_it(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    said_s = play.stand.clock.now()
    play.advance(60.0, words=False)
    assert play.agent.is_leaving
    assert play.agent.is_alone
    assert 6.0 <= play.stand.clock.now() - said_s <= 6.5
    assert play.limits_w == ARRIVALS_W


def test_one_that_is_to_be_stopped_puts_back_and_sets_again_only_once_it_goes_on_and_is_heard(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    play.agent.stand_still()
    assert play.limits_w == ARRIVALS_W
    play.word()
    play.agent.due()
    play.agent.hear(Command(number=2, what=CommandKind.SET, caps_w=CAPS_W))
    assert play.limits_w == ARRIVALS_W
    play.stand.clock.wait_until(play.stand.clock.now() + 30.0)  # stopped, and nobody speaks
    play.agent.due()
    assert not play.agent.is_leaving
    play.word()
    play.word()
    assert isinstance(heard := play.said[-1], HeartbeatReply)
    assert heard.put_backs == 1
    play.do(3, CommandKind.SET, CAPS_W)
    assert play.limits_w == list(CAPS_W)


def test_the_jobs_end_is_told_once_and_nothing_is_set_after_it(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    play.job.is_alive = False
    play.advance(0.7, words=True)
    play.job.is_alive = True  # its next step
    play.advance(2.0, words=True)
    assert play.limits_w == list(CAPS_W)
    play.job.is_alive = False
    play.advance(1.6, words=True)
    assert play.limits_w == ARRIVALS_W
    play.advance(5.0, words=True)
    (ended,) = [each for each in play.said if isinstance(each, JobEnded)]
    assert [(one.restored, one.final_w) for one in ended.restored] == [(True, limit_w) for limit_w in ARRIVALS_W]
    done = play.do(2, CommandKind.SET, CAPS_W)
    assert done.fault is Fault.GUARD
    assert play.limits_w == ARRIVALS_W


def test_a_refused_cap_and_a_foreign_limit_are_told_apart(play: Play) -> None:
    begun(play)
    assert play.do(1, CommandKind.SET, (10.0, 10.0)).fault is Fault.REFUSED
    play.do(2, CommandKind.SET, CAPS_W)
    play.stand.request(180_000, gpu=1)
    play.advance(0.5, words=True)
    done = play.do(3, CommandKind.SET, (210.0, 210.0))
    assert done.fault is Fault.FOREIGN
    play.do(4, CommandKind.RESTORE)
    assert play.limits_w == [ARRIVALS_W[0], 180.0]


def test_a_fault_puts_back_and_says_why_last_of_all(play: Play) -> None:
    begun(play).do(1, CommandKind.SET, CAPS_W)
    play.agent.fail(RuntimeError("out of luck"))
    last = play.said[-1]
    assert isinstance(last, Failed)
    assert last.why == "RuntimeError: out of luck"
    assert [(one.restored, one.final_w) for one in last.restored] == [(True, limit_w) for limit_w in ARRIVALS_W]
    assert play.agent.is_leaving
    assert play.limits_w == ARRIVALS_W
