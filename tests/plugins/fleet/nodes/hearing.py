"""What a test does with a channel, and what became of the processes behind it."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autocap.plugins.fleet.nodes.channel import Channel
from autocap.plugins.fleet.nodes.protocol import FromAgent, Heartbeat
from tests.doubles.waiting import eventually

PATIENCE_S = 60.0  # for what comes within a second, on a machine that does much else
MARK = "CLUSTER_TEST_MARK"


def heard(channel: Channel, count: int, number: int | None = None) -> dict[int, FromAgent]:
    """The last message of each of so many agents; with a number, words are said all the while."""
    found: dict[int, FromAgent] = {}
    end_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < end_s, f"only {found}"
        if number is not None:
            channel.send(Heartbeat(number=number, interval_s=0.1, counted=True))
        found.update(channel.receive())
        time.sleep(0.05)
    return found


def until(reached: Callable[[], bool], what: str) -> None:
    eventually(reached, PATIENCE_S, what)


def marked(mark: str) -> list[str]:
    """The processes of this machine that have it in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "cmdline").read_text().replace("\0", " "))
    return found
