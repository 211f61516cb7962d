"""Signals end the clock's wait, carry their origin, and mean what the policy says."""

import math
import signal
import subprocess
import sys
import textwrap

import pytest

from autocap.job.signals import Reaction, ReceivedSignal, SignalClock, SignalPolicy, from_terminal


def in_a_process_of_its_own(body: str, *, prefix: str = "", status: int = 0) -> str:
    """Run `body` where no thread of the test runner can catch a signal; its standard output.

    status: how the process is to end, negative for a signal.
    """
    program = "import os, signal, subprocess, sys, time\nfrom autocap.job.signals import *\n" + textwrap.dedent(body)
    command = ["sh", "-c", f'{prefix} exec "$0" -c "$1"', sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout.strip()


def test_a_wait_ends_at_its_time_and_not_before() -> None:
    with SignalClock() as clock:
        due_s = clock.now() + 0.02

        assert clock.wait_until(due_s) is None
        assert clock.now() >= due_s


def test_a_time_in_the_past_returns_at_once() -> None:
    with SignalClock() as clock:
        assert clock.wait_until(-1.0) is None


PROGRAMS = {
    "a signal ends the wait, and no handler or default action runs": """
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert sorted([clock.wait_until(60), clock.wait_until(60)]) == [signal.SIGINT, signal.SIGTERM]
            assert clock.now() < 20
            assert clock.wait_until(0) is None
        """,
    "an overloaded loop whose deadlines have passed still sees signals": """
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGTERM)
            assert clock.wait_until(-5) == signal.SIGTERM
        """,
    "a signal sent by a process is not taken for the terminal's": """
        with SignalClock() as clock:
            subprocess.run(["sh", "-c", "kill -INT $PPID"])
            seen = clock.wait_until(60)
            while seen == signal.SIGCHLD:
                seen = clock.wait_until(60)
            assert seen == signal.SIGINT
            assert from_terminal(seen) is False
        """,
    "a child that ends wakes the clock": """
        with SignalClock() as clock:
            with clock.lifted():
                child = subprocess.Popen(["sleep", "0.1"])
            assert clock.wait_until(60) == signal.SIGCHLD
            assert clock.now() < 20
            assert child.wait() == 0
        """,
    "a child that is only stopped and continued does not wake the clock": """
        with SignalClock() as clock:
            with clock.lifted():
                child = subprocess.Popen(["sleep", "100"])
            for _ in range(10):
                child.send_signal(signal.SIGSTOP)
                time.sleep(0.005)
                child.send_signal(signal.SIGCONT)
                time.sleep(0.005)
            woken = clock.wait_until(clock.now() + 0.1)
            child.send_signal(signal.SIGSTOP)
            time.sleep(0.01)
            child.kill()  # this SIGCHLD falls together with the one of the stop
            assert woken is None
            assert clock.wait_until(60) == signal.SIGCHLD
            assert child.wait() == -9
        """,
    "a child is waited for even where SIGCHLD was ignored on arrival": """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with SignalClock() as clock:
            with clock.lifted():
                child = subprocess.Popen(["sh", "-c", "exit 7"])
            assert clock.wait_until(60) == signal.SIGCHLD
            assert child.wait() == 7
        """,
    "a child started with the mask lifted blocks nothing": """
        with SignalClock() as clock:
            with clock.lifted():
                blocked = subprocess.check_output(["grep", "-E", "SigBlk", "/proc/self/status"])
        assert int(blocked.split()[1], 16) == 0
        """,
    "a signal that arrives while the mask is lifted is not lost": """
        with SignalClock() as clock:
            with clock.lifted():
                os.kill(os.getpid(), signal.SIGTERM)
            assert clock.wait_until(60) == signal.SIGTERM
            assert clock.wait_until(0) is None
        """,
    "a signal that an earlier thread catches is reported within seconds": """
        import threading
        # It began before the mask, so signals may go to it.
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGTERM)
            assert clock.wait_until(60) == signal.SIGTERM
            assert clock.now() < 20
        """,
    "mask and handlers are put back, and late signals do not kill": """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM)
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGTERM)  # nobody waits for it any more
        assert (signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM)) == before
        """,
    "what asks for no end waits until a session is prepared": """
        with SignalClock() as clock:
            with clock.preparing(), clock.lifted():
                pass
            with clock.preparing():
                os.kill(os.getpid(), signal.SIGUSR1)
            assert clock.wait_until(60) == signal.SIGUSR1
            os.kill(os.getpid(), signal.SIGTERM)  # held back again
            assert clock.wait_until(60) == signal.SIGTERM
        """,
    "no signal reaches a thread that is started deaf": """
        import threading
        masks = []
        with deaf():
            thread = threading.Thread(target=lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
            thread.start()
        thread.join()
        assert signal.SIGTERM in masks[0]
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
        """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_finds_its_signals_as_it_should(program: str) -> None:
    in_a_process_of_its_own(program)


def test_origin_is_known_only_of_an_arrival() -> None:
    assert from_terminal(ReceivedSignal(signal.SIGINT, from_terminal=True))
    assert not from_terminal(ReceivedSignal(signal.SIGINT))
    assert not from_terminal(signal.SIGINT)
    assert int(ReceivedSignal(signal.SIGINT)) == signal.SIGINT


def test_what_was_ignored_on_arrival_is_neither_reported_nor_fatal() -> None:
    out = in_a_process_of_its_own(
        """
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGINT)
            print(clock.wait_until(clock.now() + 0.05), flush=True)  # before what grep writes
            with clock.lifted():
                subprocess.run(["grep", "SigIgn", "/proc/self/status"])
        """,
        prefix="trap '' HUP INT;",
    )
    first, ignored = out.split("\n")
    assert first == "None"
    bits = int(ignored.split()[1], 16)
    assert bits >> (signal.SIGHUP - 1) & 1
    assert bits >> (signal.SIGINT - 1) & 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_session_prepares_ends_the_process_at_once_whatever_it_does(signum: signal.Signals) -> None:
    out = in_a_process_of_its_own(
        f"""
        import ctypes
        with SignalClock() as clock, clock.preparing():
            subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -{int(signum)} {{os.getpid()}}"])
            print("preparing", flush=True)
            ctypes.PyDLL(None).sleep(50)  # holds the interpreter: no handler of Python's could run
        print("went on")
        """,
        status=-signum,
    )
    assert out == "preparing"


def test_a_signal_from_before_the_preparation_ends_the_process_as_it_begins() -> None:
    out = in_a_process_of_its_own(
        """
        with SignalClock() as clock:
            os.kill(os.getpid(), signal.SIGTERM)
            print("still here", flush=True)
            with clock.preparing():
                print("and here", flush=True)
        """,
        status=-signal.SIGTERM,
    )
    assert out == "still here"


def test_what_was_ignored_on_arrival_is_ignored_by_a_session_that_prepares() -> None:
    out = in_a_process_of_its_own(
        """
        with SignalClock() as clock, clock.preparing():
            os.kill(os.getpid(), signal.SIGHUP)
            print("still here")
        """,
        prefix="trap '' HUP;",
    )
    assert out == "still here"


def test_a_signal_that_comes_before_the_job_is_started_ends_the_process_once_all_is_closed() -> None:
    out = in_a_process_of_its_own(
        """
        try:
            with SignalClock() as clock:
                clock.end_if_asked()
                os.kill(os.getpid(), signal.SIGUSR1)
                clock.end_if_asked()  # is no such request
                os.kill(os.getpid(), signal.SIGTERM)
                clock.end_if_asked()
        except EndedBySignal as ended:
            print("closed", flush=True)
            ended.die()
            print("went on")
        """,
        status=-signal.SIGTERM,
    )
    assert out == "closed"


INT, TERM, HUP, QUIT = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT
PASSED_ON = Reaction.RESTORE_AND_FORWARD


@pytest.mark.parametrize(
    ("received", "reactions"),
    [
        ([INT, HUP, QUIT], [PASSED_ON] * 3),
        ([INT, INT, INT], [PASSED_ON, PASSED_ON, Reaction.KILL]),  # the third, however far apart they come
        ([INT, TERM, TERM, INT, TERM], [PASSED_ON] * 5),  # others are no interrupts
    ],
)
def test_what_asks_for_the_end_restores_the_caps_and_is_forwarded(received, reactions) -> None:
    policy = SignalPolicy()
    assert [policy.receive(one, 1.0 + 500.0 * place) for place, one in enumerate(received)] == reactions


def test_the_other_signals_have_meanings_of_their_own() -> None:
    policy = SignalPolicy(kill_after_s=1.0)

    assert policy.receive(signal.SIGUSR1, 1.0) is Reaction.RETUNE
    assert policy.receive(signal.SIGUSR2, 1.0) is Reaction.FORWARD
    assert policy.receive(signal.SIGTSTP, 1.0) is Reaction.SUSPEND
    assert policy.receive(signal.SIGCHLD, 1.0) is Reaction.CHECK_CHILDREN
    assert policy.kill_at_s is None  # none of them asks the child to end


def test_patience_is_endless_unless_asked_for() -> None:
    policy = SignalPolicy()
    policy.receive(signal.SIGTERM, 10.0)

    assert not policy.kill_is_due(1e9)


def test_kill_after_counts_from_the_first_signal() -> None:
    policy = SignalPolicy(kill_after_s=20.0)
    assert not policy.kill_is_due(math.inf)
    policy.receive(signal.SIGTERM, 10.0)
    policy.receive(signal.SIGTERM, 25.0)  # asking again does not buy the child more time

    assert policy.kill_at_s == 30.0
    assert not policy.kill_is_due(29.9)
    assert policy.kill_is_due(30.0)
