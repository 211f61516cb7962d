"""One agent as the controller knows it."""

from dataclasses import dataclass, field

from autocap.limits import Restored
from autocap.plugins.fleet.nodes.clocks import Offset
from autocap.plugins.fleet.nodes.protocol import VERSION, Done, Found, Hello
from autocap.version import __version__


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
