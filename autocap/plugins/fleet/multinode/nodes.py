"""The nodes of a budget as the site reaches them: what they say goes into the parts, and the parts go to them.

Nothing here waits, but `end`. A node that cannot be reached any more is tried again by a line of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from autocap import __version__
from autocap.limits import Restored
from autocap.limits.times import LINE_STUCK_S, REOPEN_S, SITE_GONE_S, WORD_S
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.multinode.node_allocations import NodeAllocations, require_sane
from autocap.plugins.fleet.nodes.agent_pool import Channel
from autocap.plugins.fleet.nodes.guardian import Reopen
from autocap.plugins.fleet.nodes.protocol import (
    VERSION,
    Command,
    CommandKind,
    Done,
    Failed,
    Found,
    Hello,
    Lost,
    Message,
    NodeReport,
    Note,
    SetAllocation,
)
from autocap.text import printable

BEGINNING_S = 60.0  # for a node's end to begin
_MOST_S = 30.0  # until nodes that are gone are tried again
_MOST_WORDS = 64  # unanswered
_LOOK_S = 0.01
_LONGEST = 300  # characters of a sentence


@dataclass(slots=True, kw_only=True)
class Line:
    """One channel, to some nodes. words: when which was said. answered: the latest that each has. heard_s: any."""

    channel: Channel
    names: tuple[str, ...]
    heard_s: float
    opened_s: float
    living: set[str]
    words: dict[int, float] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)


class Nodes:
    """reach: starts a node's end on each of some nodes, numbered in this order. names: of all. gone: why each that is
    has left. found: the devices of each. notes: sentences for the user, taken
    by whoever reads them. next_s: when the next word is due."""

    def __init__(
        self,
        reach: Reopen,
        names: Sequence[str],
        parts: NodeAllocations,
        now: Callable[[], float],
        pause: Callable[[float], object],
    ) -> None:
        self._reach, self.names, self._parts, self._now, self._pause = reach, tuple(names), parts, now, pause
        self._lines: list[Line] = []
        self._left: list[Line] = []
        self._numbers, self.next_s = count(1), now()
        self._next_open_s, self._wait_s = now(), REOPEN_S
        self.policy = Policy.FAIR
        self.gone: dict[str, str] = {}
        self.found: dict[str, Found] = {}
        self.notes: list[str] = []
        self.restored: dict[str, tuple[Restored, ...]] = {}
        self._ended: set[str] = set()
        self._complaints: set[str] = set()
        self._failed: set[str] = set()  # of themselves: they are not asked again

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Those on which a node may be heard."""
        return tuple(fd for line in self._lines for fd in line.channel.descriptors)

    @property
    def are_all_there(self) -> bool:
        """Whether all have told of their devices and their jobs."""
        return all(name in self.found and self._parts.is_heard(name) for name in self.names)

    @property
    def have_all_left(self) -> bool:
        """Whether none will come back."""
        return len(self._failed) == len(self.names)

    def open(self) -> None:
        """Reach those that are not. Raises EngineUnavailable."""
        living = {name for line in self._lines for name in line.living} | self._failed
        missing = [name for name in self.names if name not in living]
        now_s = self._now()
        if missing and now_s >= self._next_open_s:
            self._next_open_s, self._wait_s = now_s + self._wait_s, min(_MOST_S, 2 * self._wait_s)
            channel, names = self._reach(missing), tuple(missing)
            self._lines.append(Line(channel=channel, names=names, heard_s=now_s, opened_s=now_s, living=set(missing)))
        elif not missing and self.are_all_there:
            self._wait_s = REOPEN_S

    def tend(self) -> None:
        """Take in what was said, and say a word where it is time to."""
        for line in list(self._lines):
            for number, message in line.channel.receive():
                if number < len(line.names) and line.names[number] in line.living:
                    line.heard_s = self._now()
                    self._take(line, line.names[number], message)
            self._give_up(line)
        if self._now() >= self.next_s:
            self.say()

    def say(self) -> None:
        """Tell all nodes their parts, and that we live."""
        now_s = self._now()
        self.next_s = now_s + WORD_S
        for line in self._lines:
            number = next(self._numbers)
            line.words[number] = now_s
            if len(line.words) > _MOST_WORDS:
                del line.words[next(iter(line.words))]
            parts = [self._parts.part(name) if name in line.living else (0, 0.0) for name in line.names]
            line.channel.send(
                SetAllocation(
                    number=number,
                    policy=self.policy,
                    since=tuple(number - line.answered.get(name, 0) for name in line.names),
                    serials=tuple(serial for serial, _ in parts),
                    parts_w=tuple(watts for _, watts in parts),
                )
            )

    def end(self, within_s: float) -> None:
        """Have all put back and leave; those that do not say so in time do it by themselves."""
        until_s = self._now() + within_s
        next_s = self._say_end()
        waited = {name for line in self._lines for name in line.living}
        while waited - self._ended - set(self.gone) and self._now() < until_s:
            if self._now() >= next_s:
                next_s = self._say_end()
            self._pause(_LOOK_S)
            for line in self._lines:
                for number, message in line.channel.receive():
                    self._take(line, line.names[number], message)
        for line in self._lines:
            line.channel.leave()
        for line in (*self._lines, *self._left):
            line.channel.close()

    def _say_end(self) -> float:
        """When it is to be said again: over Ray, answers that took a while come with the next word."""
        for line in self._lines:
            line.channel.send(Command(number=1, what=CommandKind.END))
        return self._now() + WORD_S

    def _take(self, line: Line, name: str, message: Message) -> None:
        match message:
            case Hello(version=version, autocap_version=theirs) if (version, theirs) != (VERSION, __version__):
                self._lose(line, name, f"it has autocap {printable(theirs)[:40]}, and we {__version__}")
            case Found():
                self.found[name] = message
            case NodeReport():
                self._enter(line, name, message)
            case Note(text=text):
                self.notes.append(f"{name}: {printable(text)[:_LONGEST]}")
            case Failed(why=why) | Lost(why=why):
                if isinstance(message, Failed) and name in line.answered:
                    self._failed.add(name)
                    self.restored[name] = message.restored
                self._lose(line, name, printable(why)[:_LONGEST])
            case Done(restored=restored):
                self.restored[name] = restored
                self._ended.add(name)
            case _:  # what only agents say
                pass

    def _enter(self, line: Line, name: str, books: NodeReport) -> None:
        try:
            require_sane(books)
        except ValueError as error:
            text = f"{name} said what cannot be: {printable(str(error))[:_LONGEST]}"
            if text not in self._complaints:
                self._complaints.add(text)
                self.notes.append(text)
            return
        answered_s = line.opened_s
        if books.number in line.words:
            line.answered[name], answered_s = books.number, line.words[books.number]
        self._parts.report(self._now(), name, books, answered_s)
        if self.gone.pop(name, None) is not None:
            self.notes.append(f"{name} is heard again")

    def _lose(self, line: Line, name: str, why: str) -> None:
        line.living.discard(name)
        if name not in self._ended:
            if name not in self.gone:
                self.notes.append(f"{name} is outside the budget now, and counted with its limits found: {why}")
            self.gone[name] = why
            self._parts.gone(self._now(), name)
        if not line.living and line in self._lines:
            self._lines.remove(line)
            self._left.append(line)
            line.channel.leave()

    def _give_up(self, line: Line) -> None:
        """On who was silent for too long: of a whole line soon, as another may do; of a single node once it has left by
        itself."""
        now_s = self._now()
        if now_s - line.heard_s > (LINE_STUCK_S if line.answered else BEGINNING_S):
            for name in sorted(line.living):
                self._lose(line, name, f"nothing was heard of it for {now_s - line.heard_s:.0f} s")
            return
        for name in sorted(line.living):
            silence_s = self._parts.silence_s(now_s, name)
            if name in line.answered and silence_s > SITE_GONE_S + LINE_STUCK_S:
                self._lose(line, name, f"nothing was heard of it for {silence_s:.0f} s")
