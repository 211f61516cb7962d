"""The way to the agents: a child process that carries lines to all of them, and theirs back with their numbers before.

    channel = Channel(argv, job=job, told=slurm.told(job))
    channel.send(Word(number=1, interval_s=0.1, counted=True))
    for number, message in channel.receive(): ...

The child is in a session of its own, so that ^C in the terminal is not its business. However we die, its standard
input ends, and that ends the agents.

Several ways are one as `Channels`: each child process carries the lines of some, which count from 0 there. One to a
step of Slurm's is opened anew for a while, as long as no agent has spoken: a controller that has just begun anew
refuses steps, or lets them wait for nothing, until its nodes have reported."""

import json
import logging
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Thread

from autocap.errors import EngineUnavailable
from autocap.limits.times import LEAVES_S, TERM_S
from autocap.plugins.fleet.nodes.protocol import MOST_BYTES, BadLine, FromAgent, Lost, Message, line_of, said
from autocap.text import note
from autocap.wire.stream import LineStream

_log = logging.getLogger(__name__)

_MOST_WAITING_BYTES = 1 << 18  # a child that takes no more is stuck: words and deeds are said again anyway
_MOST_READ_BYTES = 1 << 22  # at one look
_ERROR_LINES, _ERROR_CHARACTERS = 6, 300
_LOOK_EVERY_S = 0.02
_LABELLED = re.compile(rb"\s*(\d+): (.*)", re.DOTALL)
_JOB = b"job: "
_FIRST = b'{"says":'  # of every line of ours, and in the midst of none
FOR_S = 60.0
_STUCK_S = 12.0  # without a word: agents speak within a second
_APART_S = 1.0
_PASSING = (
    "Memory required by task is not available",
    "Requested nodes are busy",
    "Unable to contact slurm controller",
    "Required node not available",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """A running job, as its engine has it. nodes: their names, in the order of their agents' numbers. gpus: how many it
    was given on each, as far as its engine says."""

    id: str
    nodes: tuple[str, ...]
    gpus: tuple[int | None, ...] = ()

    def held(self, node: str) -> int | None:
        """How many GPUs it was given on a node; `None` where that is not known."""
        return dict(zip(self.nodes, self.gpus, strict=False)).get(node)

    def on(self, nodes: Sequence[str]) -> "EngineJob":
        """Its part on some of its nodes."""
        return replace(self, nodes=tuple(nodes), gpus=tuple(map(self.held, nodes)))


Told = Callable[
    [str], Sequence[tuple[int, str]]
]  # which agents a line on the child's standard error tells of, and what


class Channel:
    """One child process and the pipes to it. Nothing here waits, but `close`; nothing is said or heard
    after `leave`.

    argv: prints lines `N: {json}` of agent N, as `srun --label` does. job: `None` where the child finds it, and says
    `job: {"id": …, "nodes": […]}` before anything else. told: what its errors say of single agents.
    After that `job` says whose agents these are, and `pid` is that of the child and of its session.
    begun: is given the child's PID once an agent has spoken. ending: the signals that a child which does not end with
    its input gets from then on, one after the other; before, SIGTERM and SIGKILL.
    Raises EngineUnavailable where it cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        job: EngineJob | None = None,
        env: Mapping[str, str] | None = None,
        told: Told = lambda line: (),
        begun: Callable[[int], None] = lambda pid: None,
        ending: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
    ) -> None:
        self._name, self._told = os.path.basename(argv[0]), told
        self._begun: Callable[[int], None] | None = begun
        self._signals = ending
        self.job: EngineJob | None = None
        self._living: set[int] = set()
        if job is not None:
            self._join(job)
        self._parts: dict[int, bytearray] = {}
        self._last_errors: deque[str] = deque(maxlen=_ERROR_LINES)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineUnavailable(f"{argv[0]} cannot be started: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._in, self._out, self._err = process.stdin, process.stdout, process.stderr
        self._child = LineStream(self._out.fileno(), self._in.fileno(), MOST_BYTES)
        self._errors = LineStream(self._err.fileno(), None, MOST_BYTES)
        self._process, self.pid = process, process.pid
        self._ending: Thread | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the child, while it lives."""
        return (self.pid,) if self._process.poll() is None else ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those on which something may be heard still."""
        pairs = ((self._out, self._child), (self._err, self._errors))
        return () if self._ending is not None else tuple(pipe.fileno() for pipe, stream in pairs if not stream.ended)

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        """Say something to some agents, or all. It is left out where the child has not taken what was said before."""
        if self._ending is not None:
            return
        if self._child.waiting < _MOST_WAITING_BYTES:
            self._child.say(line_of(message, to))
        self._child.flush()

    def receive(self) -> list[tuple[int, FromAgent]]:
        """What the agents have said since the last look, with their numbers. One that is gone is `Lost`, once.

        Raises EngineUnavailable where the child has ended before it found a job.
        """
        if self._ending is not None:
            return []
        self._child.flush()
        heard: list[tuple[int, FromAgent]] = []
        for line in _read(self._child):
            heard.extend(self._message(line))
        for line in _read(self._errors):
            heard.extend(self._error(line.decode(errors="replace").strip()))
        if self._child.ended and self.job is None:
            raise EngineUnavailable(" | ".join(self._last_errors) or self._why())
        if self._child.ended:
            heard.extend(self._lost(number, self._why()) for number in sorted(self._living))
            self._living.clear()
        return heard

    def leave(self) -> None:
        """End the child and what it started, and do not wait for it: its input ends, and what then does not leave in
        time is killed. The agents put back what they set, if nobody has told them to before."""
        if self._ending is None:
            self._ending = Thread(target=self._end)
            self._ending.start()

    def close(self) -> None:
        """`leave`, and wait until the child has ended and all it left has been sent SIGKILL."""
        self.leave()
        assert self._ending is not None
        self._ending.join()

    def _end(self) -> None:
        self._child.flush()
        self._in.close()
        has_ended = self._await_end(LEAVES_S)
        # As long as no agent has spoken, nothing is set that any of them would have to put back: they may be ended,
        # rather than begin and wait in vain for a word.
        silent = (signal.SIGTERM, signal.SIGKILL)
        for signum in () if has_ended else silent if self._begun is not None else self._signals:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signum)
            if self._await_end(TERM_S):
                break
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it left in its session
        self._out.close()
        self._err.close()

    def _await_end(self, patience_s: float) -> bool:
        end_s = time.monotonic() + patience_s
        while self._process.poll() is None and time.monotonic() < end_s:
            _read(self._child)  # who cannot write cannot leave
            _read(self._errors)
            time.sleep(_LOOK_EVERY_S)
        return self._process.returncode is not None

    def _join(self, job: EngineJob) -> None:
        self.job, self._living = job, set(range(len(job.nodes)))

    def _message(self, line: bytes) -> list[tuple[int, FromAgent]]:
        """srun cuts a line after 1,024 bytes and labels each part; no beginning of a message is a message."""
        if self.job is None and line.startswith(_JOB):
            said_of = json.loads(line.removeprefix(_JOB))
            self._join(EngineJob(id=said_of["id"], nodes=tuple(said_of["nodes"])))
            return []
        labelled = _LABELLED.fullmatch(line)
        if labelled is None or int(labelled[1]) not in self._living:
            _log.debug("%s: %r", self._name, line[:_ERROR_CHARACTERS])
            return []
        number, text = int(labelled[1]), labelled[2]
        if text.startswith(_FIRST):
            self._parts[number] = bytearray()
        elif number not in self._parts:
            _log.debug("agent %d: %r", number, text[:_ERROR_CHARACTERS])
            return []
        part = self._parts[number]
        part += text
        if len(part) > MOST_BYTES:
            del self._parts[number]
        if len(part) > MOST_BYTES or not text.endswith(b"}"):
            return []
        try:
            message = said(bytes(part))
        except BadLine as error:
            _log.debug("agent %d, so far: %s", number, error)
            return []
        del self._parts[number]
        if isinstance(message, Lost):
            return [self._lost(number, message.why)]
        if not isinstance(message, FromAgent):
            _log.debug("agent %d said what only we say: %s", number, type(message).__name__)
            return []
        if self._begun is not None:
            self._begun(self.pid)
            self._begun = None
        return [(number, message)]

    def _error(self, line: str) -> list[tuple[int, FromAgent]]:
        if not line:
            return []
        _log.debug("%s: %s", self._name, line)
        self._last_errors.append(line[:_ERROR_CHARACTERS])
        return [self._lost(number, why) for number, why in self._told(line) if number in self._living]

    def _lost(self, number: int, why: str) -> tuple[int, Lost]:
        self._living.discard(number)
        self._parts.pop(number, None)
        return number, Lost(why=why)

    def _why(self) -> str:
        status = self._process.poll()
        ended = f"{self._name} has ended" + (f" with status {status}" if status else "")
        return ": ".join([ended, " | ".join(self._last_errors)]) if self._last_errors else ended


def _read(stream: LineStream) -> list[bytes]:
    stream.read(_MOST_READ_BYTES)
    return stream.lines()


class Channels:
    """As `Channel`. parts: of the job's nodes one after the other, as `job` has them all."""

    def __init__(self, parts: Sequence[Channel], job: EngineJob) -> None:
        self._parts = tuple(parts)
        self.job = job
        sizes = [len(part.job.nodes) if part.job is not None else 0 for part in parts]
        self._firsts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for part in self._parts for pid in part.pids)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(fd for part in self._parts for fd in part.descriptors)

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        for part, first, end in zip(self._parts, self._firsts, self._firsts[1:], strict=False):
            numbers = None if to is None else [number for number in to if first <= number < end]
            if numbers is None or numbers:
                part.send(message, numbers)

    def receive(self) -> list[tuple[int, FromAgent]]:
        pairs = zip(self._parts, self._firsts, strict=False)
        return [(first + number, message) for part, first in pairs for number, message in part.receive()]

    def leave(self) -> None:
        for part in self._parts:
            part.leave()

    def close(self) -> None:
        self.leave()
        for part in self._parts:
            part.close()


class RetriedChannels(Channels):
    """opened: begins its parts. now: seconds on any clock. `receive` raises EngineUnavailable where they cannot be
    started again."""

    def __init__(
        self,
        opened: Callable[[], Sequence[Channel]],
        job: EngineJob,
        now: Callable[[], float] = time.monotonic,
        tell: Callable[[str], object] = note,
    ) -> None:
        super().__init__(opened(), job)
        self._open, self._now, self._tell = opened, now, tell
        self._opened_s = now()
        self._end_s = self._opened_s + FOR_S
        self._again_s: float | None = None
        self._said: list[tuple[Message, Sequence[int] | None]] = []  # to nobody, as yet
        self._waits, self._is_told = True, False

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        if self._waits:
            self._said.append((message, to))
        super().send(message, to)

    def receive(self) -> list[tuple[int, FromAgent]]:
        heard = super().receive()
        if not self._waits:
            return heard
        now_s = self._now()
        lost = [message.why for _, message in heard if isinstance(message, Lost)]
        if len(lost) < len(heard):
            self._waits = False
        elif now_s < self._end_s and self._again_s is None:
            why = next((text for text in _PASSING if any(text in one for one in lost)), None)
            if why is None and now_s > self._opened_s + _STUCK_S:
                why = "it is not started"
            if why is not None:
                self._leave_these(why)
                self._again_s = now_s + _APART_S
        if self._again_s is None:
            return heard
        if now_s >= self._again_s:
            self._parts, self._opened_s, self._again_s = tuple(self._open()), now_s, None
            for message, to in self._said:
                super().send(message, to)
        return []

    def _leave_these(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(f"Slurm has not taken the step of the agents ({why}); it is tried again for a minute")
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # on which it withdraws a step that waits
        self.leave()
