"""What the record of a budget over several nodes says of its jobs, from what the nodes say of them. Pure."""

from collections.abc import Callable, Iterator

from autocap.events import Event
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.orders import Decision
from autocap.plugins.fleet.budget.words import JobStanding
from autocap.plugins.fleet.nodes.sharing import Books
from autocap.plugins.fleet.site.parts import Parts, named

_NEAR_W = 0.05  # a cap that differs by less is the same
_LEFT = "it computes no more"


class Chronicle:
    """say: takes what has happened."""

    def __init__(self, say: Callable[[Event], None]) -> None:
        self._say = say
        self._jobs: dict[str, JobStanding] = {}
        self._free_w: dict[str, float] = {}
        self._reserved_w = -1.0
        self._short: tuple[float, tuple[str, ...]] = (0.0, ())
        self._lowering: dict[str, tuple[int, float, float]] = {}  # by node: serial, part, since when

    def write(self, t_s: float, parts: Parts, decision: Decision) -> None:
        """Say what is different from the last time."""
        for event in (*self._of_jobs(t_s, parts), *self._of_all(t_s, parts, decision), *self._lowered(t_s, parts)):
            self._say(event)
        for order in decision.orders:
            if parts[order.name].standing_w > order.cap_w:
                self._lowering[order.name] = (order.serial, order.cap_w, self._since_s(order.name, order.serial, t_s))

    def _since_s(self, name: str, serial: int, t_s: float) -> float:
        before = self._lowering.get(name)
        return before[2] if before is not None and before[0] == serial else t_s

    def _of_jobs(self, t_s: float, parts: Parts) -> Iterator[Event]:
        now = {named(node, job): job.at for node, books in parts.books.items() for job in books.jobs}
        for name in [name for name in self._jobs if name not in now]:
            yield budget.JobLeft(t_s=t_s, name=name, why=_LEFT)
        for name, job in now.items():
            before = self._jobs.get(name)
            if before is None or (before.devices, before.tuned) != (job.devices, job.tuned):
                yield budget.JobJoined(t_s=t_s, name=name, uuids=job.devices, pid=job.pid, tuned=job.tuned)
                before = None
            if job.weight != (1.0 if before is None else before.weight):
                yield budget.JobWeighed(t_s=t_s, name=name, weight=job.weight, why="its node says so")
            ceiling_w = job.ceiling_w or job.cap_w
            if before is None or abs((before.ceiling_w or before.cap_w) - ceiling_w) > _NEAR_W:
                yield budget.CapGranted(t_s=t_s, name=name, cap_w=ceiling_w)
            if before is None or abs(before.cap_w - job.cap_w) > _NEAR_W or before.slowdown != job.slowdown:
                yield budget.CapHeld(
                    t_s=t_s, name=name, cap_w=job.cap_w, slowdown=job.slowdown, slowdown_stderr=job.slowdown_stderr
                )
        self._jobs = now

    def _of_all(self, t_s: float, parts: Parts, decision: Decision) -> Iterator[Event]:
        reserved_w = sum(books.reserved_w for books in parts.books.values())
        if abs(reserved_w - self._reserved_w) > _NEAR_W:
            self._reserved_w = reserved_w
            yield budget.BudgetReserved(t_s=t_s, reserved_w=reserved_w)
        for node, books in parts.books.items():
            free_w = _free_w(books)
            if abs(self._free_w.get(node, 0.0) - free_w) > _NEAR_W:
                self._free_w[node] = free_w
                yield budget.CapGranted(t_s=t_s, name=f"{node}: no job", cap_w=free_w)
        short = (round(decision.short_w), decision.pause)
        if short != self._short:
            self._short = short
            yield budget.BudgetShort(t_s=t_s, short_w=decision.short_w, pause=decision.pause)

    def _lowered(self, t_s: float, parts: Parts) -> Iterator[Event]:
        for name, (_, part_w, since_s) in list(self._lowering.items()):
            if parts[name].order is None:
                del self._lowering[name]
                if parts.is_heard(name):
                    yield budget.CapLowered(t_s=t_s, name=name, cap_w=part_w, after_s=t_s - since_s)


def _free_w(books: Books) -> float:
    """The caps of its devices that no job has."""
    return max(0.0, books.fixed_w - books.reserved_w)
