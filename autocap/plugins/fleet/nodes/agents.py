"""The agents as the controller knows them, and what they note."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from autocap import __version__
from autocap.limits import Restored
from autocap.plugins.fleet.nodes.clocks import Offset
from autocap.plugins.fleet.nodes.protocol import VERSION, Done, Found, Hello

_TOGETHER_S = 1.0  # agents that say the same do so at nearly the same time


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
