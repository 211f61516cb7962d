"""Processes that play cases against a served helper: each as one user, one case after the other."""

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.fuzz.case import Case
from bench.fuzz.helper.law import Law
from bench.fuzz.helper.listener import Listener
from bench.fuzz.helper.speech import Step, script
from bench.helper.people import become

_BEHIND = 10  # nice: a client in a hurry shall not be what keeps others from being served, on a machine of two cores
_TRIES = 20  # to connect where that was too often


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """path: of the socket. refuses_s: how long it may take until one is refused who connects too often."""

    path: str
    refuses_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One case. messages: that were answered. began_s, ended_s: by the system's monotonic clock."""

    index: int
    messages: int
    began_s: float
    ended_s: float
    complaints: tuple[str, ...]


def start(cases: Sequence[Case], uid: int, law: Law, door: Door, log: Path) -> int:
    """PID of a process that plays them as a user, and writes a line for each into a file."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.nice(_BEHIND)
            with open(log, "w", buffering=1) as file:  # before it is another user's
                become(uid)
                for case in cases:
                    file.write(json.dumps(asdict(play(case, uid, law, door))) + "\n")
            status = 0
        finally:
            os._exit(status)
    return pid


def read(log: Path) -> list[Played]:
    """What was played so far."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [Played(**{**found, "complaints": tuple(found["complaints"])}) for found in map(json.loads, lines)]


def play(case: Case, uid: int, law: Law, door: Door) -> Played:
    """Play one case, and judge its answers."""
    steps = script(case.random(), law, uid)
    began_s = time.monotonic()
    if steps[0].act == "die":
        messages, complaints = _dying(steps[1:], law, uid, door)
    else:
        messages, complaints = _carried_out(steps, law, uid, door)
    return Played(
        index=case.index,
        messages=messages,
        began_s=began_s,
        ended_s=time.monotonic(),
        complaints=tuple(complaints),
    )


def _dying(steps: Sequence[Step], law: Law, uid: int, door: Door) -> tuple[int, list[str]]:
    """In a process that is killed before it can close anything."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = json.dumps(_carried_out(steps, law, uid, door, leave_open=True))
            os.write(writer, told.encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    messages, complaints = json.loads(text) if text else (0, ["the case could not be played"])
    return messages, complaints


def _carried_out(
    steps: Sequence[Step], law: Law, uid: int, door: Door, leave_open: bool = False
) -> tuple[int, list[str]]:
    there: dict[int, Listener] = {}
    complaints: list[str] = []
    try:
        for step in steps:
            if step.act == "open":
                there[step.connection] = _connected(door, law, uid)
            elif step.act == "wait":
                time.sleep(step.seconds)
            else:
                _done(step, there[step.connection])
    except OSError as error:
        complaints.append(f"{type(error).__name__}: {error}")
    for one in there.values():
        complaints += one.complaints
        if not leave_open:
            one.close()
    return sum(one.answered for one in there.values()), complaints


def _done(step: Step, one: Listener) -> None:
    match step.act:
        case "send":
            one.send(step.data)
        case "read":
            one.read()
        case "mute":
            one.stop_reading()
        case "half":
            one.half()
        case "close":
            one.close()


def _connected(door: Door, law: Law, uid: int) -> Listener:
    """A connection that the helper takes, where it takes one; or the last that it did not."""
    for _ in range(_TRIES):
        one = Listener(door.path, law, uid)
        one.look(door.refuses_s)
        if one.wait_s is None:
            break
        with suppress(OSError):
            one.close()
        time.sleep(one.wait_s)
    return one
