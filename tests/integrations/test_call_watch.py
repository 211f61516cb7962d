"""A call that was left is noticed, however it was left."""

from collections.abc import Callable
from threading import Event

import pytest

from autocap.integrations.tuned import CallWatch

LOOK_EVERY_S = 0.001
LONG_S = 20.0


def train(inside: Callable[[], object]) -> None:
    """A call of the module `framework.trainer` within another."""
    namespace: dict[str, Callable[[Callable[[], object]], None]] = {"__name__": "framework.trainer"}
    exec("def loop(inside): inside()\ndef train(inside): loop(inside); inside()", namespace)
    namespace["train"](inside)


def test_a_call_is_left_by_an_exception_while_the_thread_goes_on() -> None:
    left, begun = Event(), []

    def fail() -> None:
        begun.append(CallWatch("framework.trainer", left.set, LOOK_EVERY_S))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(fail)
    assert len(begun) == 1
    assert left.wait(LONG_S)


def test_the_outermost_call_counts_and_is_under_way_until_it_returns() -> None:
    left, seen = Event(), []

    def step() -> None:
        if not seen:
            CallWatch("framework.trainer", left.set, LOOK_EVERY_S)
        seen.append(left.wait(0.03))  # the second time the inner call has been left

    train(step)
    assert seen == [False, False]
    assert left.wait(LONG_S)


def test_a_watch_that_was_closed_or_finds_no_such_call_under_way_calls_nobody() -> None:
    left = Event()
    train(lambda: CallWatch("framework.trainer", left.set, LOOK_EVERY_S).close())
    CallWatch("framework.trainer", left.set, LOOK_EVERY_S)
    assert not left.wait(0.03)
