"""A meter that answers one question at a time, such as a program that is started for each; it is never waited for. Its
last reading is held until the next one comes, and is a gap once that is overdue."""

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from autocap.clock import Clock
from autocap.errors import DeviceUnavailable
from autocap.job.supervised import Supervised
from autocap.records import NodeReading

_WATTS = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?=\s*[Ww]?(?:atts)?$)")
_MOST_W = 1e6  # no machine draws more: it is another unit
_OVERDUE = 5.0  # refreshes without a reading
_LEAST_OVERDUE_S = 3.0
_REMEMBERED_S = 120.0  # how soon a value changed is forgotten after so long, as the machine may have got busier
_FEWEST = 10  # readings that show how often they come
_MOST_WARNINGS = 3  # of a kind; more of them say nothing new
_SHOWN_CHARS = 40  # characters of what is no power


def watts(text: str) -> float | None:
    """The power on a line, with or without its unit W; `None` where there is none above 0."""
    match = _WATTS.match(text.strip())
    value = float(match[0]) if match else 0.0
    return value if 0 < value < _MOST_W else None


class HeldPower:
    """Keeps the readings of one meter, whose class it is the base of. called: what sentences call the meter. every_s:
    seconds between readings at most, as far as is known before they come.

    A meter may be asked more often than it looks. So a value that comes again is a fresh reading only once so much time
    has passed as there was between two different ones; else it is the old one, held, under its old stamp.
    """

    whole = True

    def __init__(self, called: str, every_s: float) -> None:
        self._called = called
        self._interval_s, self._readings = every_s, 0  # between two readings, and how many there were
        self._changes_s = math.inf  # the shortest time between two values that differ
        self._forget_s = math.inf
        self._last_s: float | None = None
        self._changed_s: float | None = None
        self._stamp_s = 0.0
        self._watts: float | None = None
        self._warned: dict[str, int] = {}
        self._notes: list[str] = []

    @property
    def refresh_s(self) -> float | None:
        """Seconds between two fresh readings; `None` while there were too few."""
        return self._expected_s if self._readings >= _FEWEST else None

    @property
    def _expected_s(self) -> float:
        return self._interval_s if math.isinf(self._changes_s) else max(self._changes_s, self._interval_s)

    @property
    def known(self) -> bool:
        """Whether there is a reading."""
        return self._watts is not None

    def put(self, t_s: float, watts: float) -> None:
        """The meter gives this reading now."""
        if self._last_s is not None and t_s > self._last_s:
            since_s = t_s - self._last_s
            if self._readings == 1 and since_s < self._interval_s:  # which was only the most that was to be expected
                self._interval_s = since_s
            self._interval_s += 0.2 * (since_s - self._interval_s)
        self._last_s = t_s
        self._readings += 1
        if watts != self._watts:
            self._learn(t_s)
        if watts != self._watts or t_s - self._stamp_s >= 0.9 * self._expected_s:
            self._stamp_s = t_s
        self._watts = watts

    def refuse(self, t_s: float, text: str) -> None:
        """The meter gives something now that is no power: a gap from here on."""
        self._watts, self._last_s = None, t_s
        shown = text.strip()[:_SHOWN_CHARS]
        self._say("rubbish", f"{self._called} says '{shown}', which is no power in watts above 0")

    def lose(self, why: str) -> None:
        """The meter gives no more readings: a gap for good."""
        self._watts = None
        self._say("lost", f"{self._called} {why}")

    def at(self, now_s: float) -> NodeReading:
        """The reading that stands for now."""
        silent_s = 0.0 if self._last_s is None else now_s - self._last_s
        if self._watts is not None and silent_s > max(_OVERDUE * self._expected_s, _LEAST_OVERDUE_S):
            self._watts = None
            self._say("silent", f"{self._called} has said nothing for {silent_s:.0f} s")
        return NodeReading(t_s=self._stamp_s, power_w=self._watts, whole=self.whole)

    def notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def _learn(self, t_s: float) -> None:
        """How long a value lasts, from the shortest of late."""
        if self._watts is not None and self._changed_s is not None:
            lasted_s = t_s - self._changed_s
            if lasted_s <= self._changes_s or t_s >= self._forget_s:
                self._changes_s, self._forget_s = lasted_s, t_s + _REMEMBERED_S
        self._changed_s = t_s

    def _say(self, kind: str, what: str) -> None:
        self._warned[kind] = self._warned.get(kind, 0) + 1
        if self._warned[kind] <= _MOST_WARNINGS:
            self._notes.append(f"{what}; until it tells the node's power again nothing is measured")


_ANSWER_S = 10.0  # the longest that an answer may take
_LOOK_EVERY_S = 0.01  # for the first one; then it is looked for with every sample
_END = re.compile(r"\0(\d{1,3})\n\Z")
_MOST_BYTES = 1 << 16  # of an answer
_SHOWN = 80
# For each line that it is told it asks once, and ends the answer with a zero byte and the status on a line. One shell
# for all questions: starting each costs little, and needs nothing new of us while a cap is set.
_ASKING = """while read -r _; do "$@" </dev/null; printf '\\000%d\\n' "$?"; done"""


class Shell(Protocol):
    """What `Supervised` is to whoever asks by it."""

    def poll(self) -> int | None: ...

    def tell(self, data: bytes) -> None: ...

    def output(self) -> bytes: ...

    def errors(self) -> bytes: ...

    def close(self) -> None: ...


def asking(command: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a shell that asks by that command."""
    return ("/bin/sh", "-c", _ASKING, "sh", *command)


def shell(command: tuple[str, ...], env: Mapping[str, str] | None = None) -> Shell:
    """One that asks by that command. env: its variables, ours when `None`. Raises OSError."""
    return Supervised(asking(command), grace_s=0.0, talks=True, env=env)


class AskedMeter(HeldPower):
    """A PowerSource: the power in a program's answers, one question at a time, each by a process of its own beside us.

    command: that prints an answer. reading: the power in it, as the first group. called: the program's name, for
    sentences. every_s: between two questions. needs: what there must be for a power; it is said where the first answer,
    which is waited for, has none, and DeviceUnavailable raised. start: starts a shell that asks so.
    """

    name: str

    def __init__(
        self,
        clock: Clock,
        command: tuple[str, ...],
        *,
        reading: re.Pattern[str],
        called: str,
        every_s: float,
        needs: str,
        start: Callable[[tuple[str, ...]], Shell] | None = None,
    ) -> None:
        super().__init__(called, every_s)
        self._clock, self._command, self._reading = clock, command, reading
        self._every_s, self._needs, self._start = every_s, needs, start or shell
        self._shell: Shell | None = None
        self._asked_s = clock.now()
        self._waiting = False
        self._heard = b""  # of an answer that has not ended yet
        self._said = b""  # beside it
        try:
            self.put(self._asked_s, self._first())
        except BaseException:
            self.close()
            raise

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        if self._waiting:
            self._listen(now_s)
        elif now_s - self._asked_s >= self._every_s:
            self._asked_s = now_s
            try:
                self._ask()
            except OSError as error:
                self._drop()
                self.refuse(now_s, f"it cannot be started: {error.strerror}")
        return self.at(now_s)

    def close(self) -> None:
        self._drop()

    def _first(self) -> float:
        name = self._command[0]
        deadline_s = time.monotonic() + _ANSWER_S
        try:
            self._ask()
        except OSError as error:
            raise useless(self.name, f"{name} cannot be started: {error.strerror}") from error
        while (answer := self._answer()) is None:
            if time.monotonic() > deadline_s:
                raise useless(self.name, f"{self._called} gave no answer within {_ANSWER_S:g} s; look at it by hand")
            time.sleep(_LOOK_EVERY_S)
        text, status = answer
        power_w = self._power_w(text)
        if power_w is None:
            said = self._said.decode(errors="replace").strip()[:_SHOWN]
            why = f"{' '.join(self._command)} ended with status {status} and told no power"
            raise useless(self.name, f"{why}{f' ({said})' if said else ''}; {self._needs}")
        return power_w

    def _ask(self) -> None:
        """Ask, without waiting. Raises OSError."""
        if self._shell is None:
            self._shell = self._start(self._command)
        self._shell.tell(b"\n")
        self._waiting = True

    def _listen(self, now_s: float) -> None:
        answer = self._answer()
        if answer is None:
            if now_s - self._asked_s > _ANSWER_S:
                self._drop()
                self.refuse(now_s, f"nothing within {_ANSWER_S:g} s")
            return
        text, status = answer
        power_w = self._power_w(text)
        if power_w is None:
            found = self._reading.search(text)
            self.refuse(now_s, (found[0] if found else text) or f"nothing, with status {status}")
        else:
            self.put(now_s, power_w)

    def _power_w(self, text: str) -> float | None:
        found = self._reading.search(text)
        return None if found is None else watts(found[1])

    def _answer(self) -> tuple[str, int] | None:
        """The answer and its status; `None` while there is none, and nothing is waited for."""
        assert self._shell is not None  # asked
        ended = self._shell.poll()
        self._said = (self._said + self._shell.errors())[-_MOST_BYTES:]
        self._heard = (self._heard + self._shell.output())[-_MOST_BYTES:]
        text = self._heard.decode(errors="replace")
        if (end := _END.search(text)) is not None:
            self._waiting, self._heard = False, b""
            return text[: end.start()], int(end[1])
        if ended is None:
            return None
        self._drop()
        return text, ended

    def _drop(self) -> None:
        """End it; the next question starts another."""
        shell, self._shell = self._shell, None
        self._waiting, self._heard = False, b""
        if shell is not None:
            shell.close()


def useless(source: str, why: str) -> DeviceUnavailable:
    """A source that gives no power."""
    return DeviceUnavailable(f"--node-power {source}: {why}, or choose another source of the node's power")
