"""What runs inside Ray on a node: starts the agent beside itself, and passes lines on. It knows nothing of them.

The agent is there, with all that it imports, before its number is: which of the nodes are the job's is known late.

It is sent to Ray's workers by value, so that autocap need not be installed in their environment: only the standard
library is imported here, and numbers and the splitter of lines, which are sent with it. The agent trusts none of it.
Where nobody has called for `ALONE_S`, or the raylet that has started this process does not run any more, it ends by
itself, which ends the agent's input; Ray leaves an actor of a dead raylet alone for minutes. An agent leaves then; a
budget's manager waits for another line to its site.
"""

import asyncio
import os
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from autocap.limits.times import (
    ALONE_S,
    LEAVES_S,
    RAY_ANSWER_S,
    RAY_BEYOND_S,
    RAY_OTHERS_S,
    RAYLET_LOOK_S,
    RAYLET_TOLD_S,
)
from autocap.wire.lines import Lines

_CALLED = 4  # nodes that one calls itself: a call takes a millisecond of either's processor
CALLS_AT_ONCE = 3  # of one that does not answer
_REPLY_S = 0.3  # for our last answer to leave
_ANSWERS = (b'{"says":"heard"', b'{"says":"done"', b'{"says":"books"')
_MOST_BYTES = 1 << 20  # of lines, at one call
_READ_BYTES = 1 << 16
# Ray kills the children of a worker that ends, but not theirs: so the agent can still put back.
_SHELL = ("/bin/sh", "-c", '"$@"; exit $?', "autocap-agent")

Said = list[tuple[int, list[bytes], str | None]]  # of each agent: its number, its lines, and why it is gone


class Actor:
    """One node's end. argv: of the agent, which waits for a line with its number and node. environment: added to this
    process's own; its PYTHONPATH comes after the node's. Raises OSError."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._number = -1
        # Ray starts workers at niceness 15: on a busy node they, and what they start, get no processor for seconds.
        with suppress(OSError):  # not permitted
            os.setpriority(os.PRIO_PROCESS, 0, min(0, os.getpriority(os.PRIO_PROCESS, 0)))
        self._called_s = time.monotonic()
        self._lines = Lines(_MOST_BYTES)
        self._ended = False
        self._reading = asyncio.Lock()
        self._pending: dict[int, list[asyncio.Future[Said]]] = {}
        self._actors: dict[int, Any] = {}
        self._given: dict[int, set[int]] = {}  # of which others each of those that we call has the actors
        paths = (os.environ.get("PYTHONPATH"), environment.get("PYTHONPATH"))
        environment = {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        self._process = subprocess.Popen(
            [*_SHELL, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            bufsize=0,
            start_new_session=True,  # a ^C at a raylet's terminal is not the agent's
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._raylet, self._doom = os.getppid(), ""
        threading.Thread(target=self._end_by_itself, daemon=True).start()

    async def wait(self) -> None:
        """That this process runs, and is still needed."""
        self._called_s = time.monotonic()

    async def begin(self, number: int, node: str, pids: tuple[int, ...]) -> None:
        """Tell the agent its number, the name of its node, and the processes of the job's actors there; from then on it
        waits for words."""
        self._called_s = time.monotonic()
        self._number = number
        with suppress(OSError):  # it is gone: the first exchange tells
            os.write(self._in, f"{number} {node} {' '.join(map(str, pids))}\n".encode())

    async def exchange(self, lines: bytes, answers: int, others: "list[tuple[int, Any]]") -> Said:
        """Pass lines to the agent here and those of other nodes, and give what they have said since the last time.

        answers: how many the lines ask of each agent; they are waited for a little while. others: numbers, each with
        its actor, or `None` where that was given here before, as it costs more than the call. Some of them are called
        from here, each with its share of the rest. One that cannot answer is given with the reason, one that is late
        with the next call.
        """
        self._called_s = time.monotonic()
        self._actors |= {number: actor for number, actor in others if actor is not None}
        numbers = [number for number, _ in others]
        share = max(1, -(-len(numbers) // _CALLED))
        parts = [numbers[first : first + share] for first in range(0, len(numbers), share)]
        own = asyncio.ensure_future(self._own(lines, answers))
        rest = await asyncio.gather(*(self._some(part, lines, answers) for part in parts))
        return [await own, *(one for some in rest for one in some)]

    async def leave(self) -> list[bytes]:
        """End the agent, which puts back what it set: its last lines. This process ends soon after."""
        self._called_s = time.monotonic()
        self._close()
        said: list[bytes] = []
        while not self._ended and time.monotonic() < self._called_s + LEAVES_S:
            said += self._read()
            await asyncio.sleep(0.02)
        threading.Timer(
            _REPLY_S, os._exit, (0,)
        ).start()  # Ray ends the actors of a driver that left, but takes its time
        return said

    async def _own(self, lines: bytes, answers: int) -> tuple[int, list[bytes], str | None]:
        if self._doom:
            self._close()
            return self._number, self._read(), self._doom
        with suppress(OSError):  # it is gone, or stuck: then it is not spoken to either
            os.write(self._in, lines)
        end_s = time.monotonic() + RAY_ANSWER_S
        async with self._reading:  # calls that overlap answer in their order
            said = self._read()
            while sum(line.startswith(_ANSWERS) for line in said) < answers and not self._ended:
                if not await self._readable(end_s - time.monotonic()):
                    break
                said += self._read()
        status = self._process.poll() if self._ended else None
        return self._number, said, f"its agent ended with status {status}" if status else None

    async def _some(self, numbers: list[int], lines: bytes, answers: int) -> Said:
        """Exchange with the first of these nodes, and by it with the rest."""
        first, *beyond = numbers
        calls = self._pending.setdefault(first, [])
        if len(calls) < CALLS_AT_ONCE:
            has = self._given.setdefault(first, set())
            others = [(number, None if number in has else self._actors[number]) for number in beyond]
            has.update(beyond)
            calls.append(asyncio.ensure_future(_called(self._actors[first], lines, answers, others)))
        await asyncio.wait(calls, timeout=RAY_OTHERS_S + (RAY_BEYOND_S if beyond else 0.0))
        said: Said = []
        while calls and calls[0].done():  # what is late is given the next time
            try:
                said += calls.pop(0).result()
            except Exception as error:  # noqa: BLE001 - whatever Ray says of an actor that is gone
                return [*said, (first, [], f"Ray says: {str(error).strip().splitlines()[0]}")]
        return said

    async def _readable(self, within_s: float) -> bool:
        """Wait for more of the agent's; whether there is any. Between calls nothing here runs at all."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._out, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), max(within_s, 0.0))
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._out)
        return True

    def _read(self) -> list[bytes]:
        """The whole lines that wait."""
        read, lines = 0, list[bytes]()
        while not self._ended and read < _MOST_BYTES:
            try:
                data = os.read(self._out, _READ_BYTES)
            except BlockingIOError:
                break
            self._ended = not data
            lines += self._lines.feed(data)
            read += len(data)
        if self._ended:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)  # its end of the pipe closes a moment before it ends
        return lines

    def _close(self) -> None:
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _end_by_itself(self) -> None:
        while time.monotonic() < self._called_s + ALONE_S and not self._doom:
            time.sleep(RAYLET_LOOK_S)
            self._doom = self._without_raylet()
        time.sleep(RAYLET_TOLD_S if self._doom else 0.0)
        os._exit(0)

    def _without_raylet(self) -> str:
        """Why this node is not Ray's any more, as far as can be seen from here; empty while it is."""
        if os.getppid() != self._raylet:
            return f"Ray's daemon there, process {self._raylet}, has ended"
        with suppress(OSError), open(f"/proc/{self._raylet}/stat", "rb") as stat:
            if stat.read().rpartition(b") ")[2][:1] in b"Tt":
                return f"Ray's daemon there, process {self._raylet}, is stopped"
        return ""


async def _called(actor: Any, lines: bytes, answers: int, others: "list[tuple[int, Any]]") -> Said:
    said: Said = await actor.exchange.remote(lines, answers, others)
    return said
