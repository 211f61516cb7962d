"""`python -m autocap.plugins.fleet.nodes.agent`: the agent as a process."""

import argparse
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING

from autocap.clock import Clock, MonotonicClock
from autocap.job.processes import ProcessId, identify
from autocap.limits.times import AT_LATEST_S, LAST_WORDS_S
from autocap.plugins.fleet.nodes.agent.agent import Agent
from autocap.plugins.fleet.nodes.agent.standard_streams import Inbox, Outbox, awaited, hello, own_stdout
from autocap.plugins.fleet.nodes.protocol import Begin

if TYPE_CHECKING:
    from autocap.plugins.fleet.nodes.agent.preparing import Preparation

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MOST_SIGNALS = 64  # at one look
_BUSY_S = 0.5  # a reader that takes nothing is tried again so often


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.plugins.fleet.nodes.agent", description=__doc__)
    parser.add_argument("--number", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--spare", action="store_true", help="be ready, and begin once a line says number and node")
    given = parser.parse_args(argv)
    number, node = given.number, os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    workers: tuple[ProcessId, ...] = ()
    if given.spare:
        from autocap.plugins.fleet.nodes.agent.preparing import HEAVY

        for module in HEAVY:
            import_module(module)
        if (told := awaited()) is None:
            return 0
        number, node, pids = told
        workers = tuple(worker for pid in pids if (worker := identify(pid)) is not None)
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for signum in (*_ENDING, signal.SIGTSTP):
        signal.signal(signum, lambda signum, frame: None)  # the wake-up says it
    signals, teller = os.pipe()
    outbox = Outbox(own_stdout())
    outbox.put(hello(node))
    clock = MonotonicClock()
    clock.origin_s = 0.0  # as the controller has our clock
    with ExitStack() as stack:

        def prepared(begin: Begin) -> "Preparation":
            from autocap.plugins.fleet.nodes.agent.preparing import Preparation  # who only settles does without

            return Preparation(begin, clock, stack, agent.note, workers)

        agent = Agent(number, clock, outbox.put, prepared)
        threading.Thread(target=_attend, args=(sys.stdin.fileno(), woken, teller), daemon=True).start()
        _loop(agent, Inbox(sys.stdin.fileno(), number), outbox, signals, clock)
    if not agent.is_alone:
        outbox.deliver(LAST_WORDS_S)
    return 0


def _attend(stdin: int, woken: int, teller: int) -> None:
    """Pass signals on, and end this process a while after its input or one of them has asked for that, also where a
    call does not come back: whoever guards the limits then, the helper or a watchdog, puts them back."""
    asked, signums = select.poll(), b""
    asked.register(stdin, 0)  # the other end is closed
    asked.register(woken, select.POLLIN)
    while not set(signums) & set(_ENDING) and stdin not in (ready := dict(asked.poll())):
        signums = os.read(woken, _MOST_SIGNALS) if woken in ready else b""
        os.write(teller, signums)
    time.sleep(AT_LATEST_S)
    os._exit(1)


def _loop(agent: Agent, inbox: Inbox, outbox: Outbox, signals: int, clock: Clock) -> None:
    """Hear and do, until the agent leaves, the controller is gone, or a signal asks for the end."""
    stdin = sys.stdin.fileno()
    while not agent.is_leaving:
        wait_s = max(0.0, agent.next_s - clock.now())
        ready, _, _ = select.select([stdin, signals], [], [], wait_s if not outbox.waiting else min(wait_s, _BUSY_S))
        if stdin in ready:
            for message in inbox.messages():
                agent.hear(message)
            if inbox.speaks:
                agent.spoken()
        signums = os.read(signals, _MOST_SIGNALS) if signals in ready else b""
        if set(signums) & set(_ENDING) or inbox.ended or outbox.broken:
            agent.told_to_end() if signums else agent.leave()
            return
        if signums:
            agent.stand_still()
        agent.due()
        outbox.flush()


if __name__ == "__main__":
    # All is closed. The interpreter's own end takes as long again, and for that long Slurm keeps the node.
    os._exit(main(sys.argv[1:]))
