"""The agents as the controller knows them, what they note, and how far the clocks of their nodes are ahead of ours:
bounds from each word and its answer, and how they age.

A word that we said at `a` was heard at `b` of the agent's clock, and what it said at `c` was here at `d`. Nothing is
heard before it was said: so its clock is at most `b - a` ahead, and at least `c - d`. That holds however long each way
took; clocks drift apart, so the bounds widen until the next exchange narrows them (Marzullo and Owicki 1983)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autocap import __version__
from autocap.limits import Restored
from autocap.plugins.fleet.nodes.protocol import VERSION, Done, Found, Hello

# Linux bends each of both clocks to the time of day by at most 500 ppm, whatever their crystals do.
_DRIFT = 1e-3
_BOOT, _CLOCK = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/time")
_TOGETHER_S = 1.0  # agents that say the same do so at nearly the same time


def machine() -> tuple[str, str]:
    """boot_id and clock_id, as `Hello` has them: where both are the same, clocks are. Empty where it cannot be told."""
    try:
        return _BOOT.read_text().strip(), str(_CLOCK.readlink())
    except OSError:
        return "", ""


class Offset:
    """Seconds that an agent's clock is ahead of ours, so that `theirs_s - ahead_s` is a time of ours.

    It moves only where it is shown to be wrong, so that times of one agent keep their distances.
    """

    def __init__(self) -> None:
        self._low_s, self._high_s, self._at_s = -math.inf, math.inf, 0.0
        self._ahead_s: float | None = None
        self._drift = _DRIFT

    @classmethod
    def same(cls, ahead_s: float) -> "Offset":
        """Of a clock that is ours, but for its zero."""
        made = cls()
        made._low_s = made._high_s = made._ahead_s = ahead_s
        made._drift = 0.0
        return made

    @property
    def is_known(self) -> bool:
        """Whether there was an exchange."""
        return self._ahead_s is not None

    @property
    def ahead_s(self) -> float:
        """The estimate; 0 while nothing is known."""
        return self._ahead_s or 0.0

    def error_s(self, now_s: float) -> float:
        """By how much the estimate may be wrong, seconds; infinite while nothing is known."""
        if self._ahead_s is None:
            return math.inf
        aged_s = self._drift * max(0.0, now_s - self._at_s)
        return max(self._high_s - self._ahead_s, self._ahead_s - self._low_s) + aged_s

    def exchanged(self, said_s: float, heard_s: float, answered_s: float, back_s: float) -> None:
        """Take in a word said at `said_s` and answered by `back_s`, on our clock; heard and answered on theirs."""
        if self._drift == 0.0:
            return
        meanwhile_s = self._drift * (back_s - said_s)  # the bounds are of then; by now it may be so much more, or less
        low_s, high_s = answered_s - back_s - meanwhile_s, heard_s - said_s + meanwhile_s
        if low_s > high_s:  # an answer before its question: a broken clock says nothing
            return
        aged_s = self._drift * max(0.0, back_s - self._at_s)
        self._low_s, self._high_s, self._at_s = (
            max(self._low_s - aged_s, low_s),
            min(self._high_s + aged_s, high_s),
            back_s,
        )
        if self._low_s > self._high_s:  # a clock has jumped, as when a machine slept
            self._low_s, self._high_s, self._ahead_s = low_s, high_s, None
        if self._ahead_s is None:
            self._ahead_s = (self._low_s + self._high_s) / 2
        self._ahead_s = min(max(self._ahead_s, self._low_s), self._high_s)


@dataclass(slots=True, kw_only=True)
class Agent:
    """name: of its node. said_s: when it last said anything. gone: why it is. ended_s: when the job had ended on its
    node. answered, answered_s: the number of the last word that it has answered, 0 before, and when that was said.
    restored: what it said of its limits before it was asked. put_backs: as in `Rows`, the last that it said."""

    number: int
    name: str
    said_s: float
    offset: Offset = field(default_factory=Offset)
    found: Found | None = None
    gone: str | None = None
    answered: int = 0
    answered_s: float = -1.0
    ended_s: float | None = None
    done: Done | None = None
    restored: tuple[Restored, ...] = ()
    put_backs: int = 0

    def greet(self, hello: Hello, here: tuple[str, str], origin_s: float) -> None:
        """It has come. here: which machine and clock ours are; origin_s: our zero on that clock."""
        self.name = hello.node
        if (hello.version, hello.autocap_version) != (VERSION, __version__):
            self.gone = (
                f"autocap there is {hello.autocap_version}, here it is {__version__}; install the same on all nodes"
            )
        if all(here) and (hello.boot_id, hello.clock_id) == here:
            self.offset = Offset.same(origin_s)


class Notes:
    """What agents note, until it is handed out, with the same words of several nodes as one sentence."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._of_agents: dict[str, tuple[float, list[str]]] = {}

    def add(self, sentence: str) -> None:
        """One of our own."""
        self._ready.append(sentence)

    def said(self, name: str, sentence: str, t_s: float) -> None:
        """One of the agent of a node with that name."""
        _, names = self._of_agents.setdefault(sentence, (t_s, []))
        if name not in names:
            names.append(name)

    def take(self, living: Sequence[str], t_s: float) -> tuple[str, ...]:
        """Those that are new, once: of agents as soon as all of those living have said the same, or a moment after the
        first has. living: the names of those who may yet say it; none where nobody is heard any more."""
        for sentence, (since_s, names) in list(self._of_agents.items()):
            everywhere = bool(living) and set(living) <= set(names)
            if everywhere or not living or t_s - since_s >= _TOGETHER_S:
                del self._of_agents[sentence]
                who = "all nodes" if everywhere and len(names) > 1 else ", ".join(names)
                self._ready.append(f"{who}: {sentence}")
        taken, self._ready = tuple(self._ready), []
        return taken
