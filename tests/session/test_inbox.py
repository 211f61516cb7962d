"""Who may ask for a job's end, and what happens then: limits first, the signal after them."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from autocap.job.signals import ReceivedSignal
from autocap.reports.live.terminal import Reporter
from autocap.session.inbox import SignalInbox
from autocap.session.recorder import Recorder
from autocap.session.roles import Order, Sink


class Played:
    """A job, its limits and a follower, which write down what is asked of them. wanted: when the end is wanted."""

    ended_because = None

    def __init__(self, wanted_s: float) -> None:
        self.story: list[str] = []
        self.wanted_s = wanted_s
        self.reporter = Reporter()

    def restore(self) -> None:
        self.story.append("limits put back")

    def end(self, signum: int, *, from_terminal: bool) -> None:
        self.story.append(f"{signal.Signals(signum).name} to {'all' if from_terminal else 'the first'}")

    forward = end

    def kill(self) -> None:
        self.story.append("killed")

    def suspend(self, *, from_terminal: bool) -> None: ...

    def set_caps(self, caps_w: Sequence[float]) -> None: ...

    def beat(self) -> bool:
        return False

    def begin(self, sink: Sink, t_s: float, run_dir: Path) -> None: ...

    def finish(self, t_s: float, exit_status: int, *, signalled: bool) -> None: ...

    def wants_end(self, t_s: float) -> bool:
        wants, self.wanted_s = t_s >= self.wanted_s, self.wanted_s if t_s < self.wanted_s else float("inf")
        return wants


@pytest.fixture
def played() -> Played:
    return Played(wanted_s=5.0)


@pytest.fixture
def inbox(played: Played) -> SignalInbox:
    made = SignalInbox(played, cast(Recorder, None), kill_after_s=10.0, follower=played)
    made.setter = played
    return made


def test_a_follower_has_the_whole_job_end_once_the_limits_are_back(played: Played, inbox: SignalInbox) -> None:
    assert [inbox.due(t_s) for t_s in (4.0, 5.0, 6.0)] == [Order.NOTHING, Order.STOP_TUNING, Order.NOTHING]
    assert played.story == ["limits put back", "SIGTERM to all"]
    assert not inbox.signalled, "nobody has sent us a signal"
    inbox.due(15.1)
    assert played.story[2:] == ["killed"], "--kill-after counts from there"


def test_a_signal_that_was_sent_to_us_is_remembered(played: Played, inbox: SignalInbox) -> None:
    inbox.receive(ReceivedSignal(signal.SIGUSR2), 1.0)
    assert not inbox.signalled
    assert inbox.receive(ReceivedSignal(signal.SIGTERM), 2.0) is Order.STOP_TUNING
    assert inbox.signalled
    assert played.story == ["SIGUSR2 to the first", "limits put back", "SIGTERM to the first"]
