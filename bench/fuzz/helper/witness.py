"""A client that behaves well beside those that do not, and how long each of its requests took."""

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.helper.people import become
from bench.helper.talk import Lost, Refused, lend

_BETWEEN_S = 0.05
_LOW_MW, _HIGH_MW = 120_000, 240_000


def start(uid: int, path: str, uuid: str, log: Path, seed: int) -> int:
    """PID of a process that asks twenty times a second for this and that until SIGTERM, and then writes down the
    milliseconds of each."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(log, "w") as file:
                become(uid)
                stopped: list[int] = []
                signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
                json.dump(_asked(path, uuid, Random(seed), stopped), file)
            status = 0
        finally:
            os._exit(status)
    return pid


@dataclass(frozen=True, slots=True)
class Asked:
    """at_s: when, by the system's monotonic clock. taken_ms: until it was answered."""

    op: str
    at_s: float
    taken_ms: float


def read(log: Path) -> tuple[list[Asked], list[str]]:
    """What was asked, and what went wrong."""
    found = json.loads(log.read_text() or '[[], ["the witness wrote nothing"]]')
    return [Asked(*one) for one in found[0]], list(found[1])


def _asked(
    path: str, uuid: str, random: Random, stopped: Sequence[int]
) -> tuple[list[tuple[str, float, float]], list[str]]:
    taken: list[tuple[str, float, float]] = []
    wrong: list[str] = []
    try:
        talk = lend(path, [uuid])
        due_s = time.monotonic()
        while not stopped:
            due_s = max(due_s + _BETWEEN_S, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
            op = random.choice(("beat", "beat", "beat", "beat", "hello", "devices", "status", "set", "restore"))
            own = {"watts": [random.randint(_LOW_MW, _HIGH_MW) / 1000]} if op == "set" else {}
            began_s = time.monotonic()
            try:
                talk.ask(op, **own)
            except Refused as error:
                if error.code != "too_fast":
                    raise
            taken.append((op, began_s, 1000 * (time.monotonic() - began_s)))
        talk.ask("give_back")
        talk.close()
    except (Lost, Refused, OSError) as error:
        wrong.append(f"the well-behaved client: {type(error).__name__}: {error}")
    return taken, wrong
