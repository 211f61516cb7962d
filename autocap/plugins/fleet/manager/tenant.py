"""Who has GPUs of a budget, and what they draw there."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autocap.plugins.fleet.budget.account import Order
from autocap.plugins.fleet.budget.curves import JobCurve
from autocap.plugins.fleet.manager.belief import Unbound
from autocap.plugins.fleet.manager.claims import Claim
from autocap.plugins.fleet.manager.clocks import Clocks
from autocap.records import Reading

DRAWN_S, _QUANTILE = 10.0, 0.95  # over which a draw's upper quantile is taken
_SETTLED_W, _SETTLED_SHARE, _SETTLED_S = 3.0, 0.03, 2.0  # a draw that is not above its cap; or long enough after it


@dataclass(slots=True, kw_only=True)
class Tenant:
    """One job, or one device that nobody uses (free). gpus: by their place among the devices. tuned: a tuner sets its
    caps below the ceiling; silent: it has not been heard of for too long. put_back: it is to hear that other caps were
    set than its own. since_s: its caps are as they are. claim: of its tuner, who has said that of the job. waits: the
    job does not compute on all of its GPUs yet, or any more; since some_s it does on some of them. groups: that its
    processes belong to. ended: why its tuner has it no more. unbound: what it draws where no cap binds it. clocks: at
    its caps. said: by its tuner, of which believed is what is followed; doubt: why that is not followed. held: the cap
    in force, watts, and the slowdown there with its error, as said last. beyond: whether it is slower than its tuner
    allows, as said last."""

    name: str
    gpus: tuple[int, ...]
    pid: int | None = None
    free: bool = False
    tuned: bool = False
    silent: bool = False
    put_back: bool = False
    ceiling_w: float = 0.0
    missed: int = 0
    draws_w: deque[tuple[float, float]] = field(default_factory=deque)
    since_s: float = 0.0
    claim: Claim | None = None
    waits: bool = False
    some_s: float | None = None
    groups: frozenset[int] = frozenset()
    ended: str = ""
    unbound: Unbound | None = None
    clocks: Clocks = field(default_factory=Clocks)
    said: JobCurve | None = None
    believed: JobCurve | None = None
    doubt: str | None = None
    held: tuple[float, float, float] | None = None
    beyond: bool = False

    def drew(self, t_s: float, readings: Sequence[Reading]) -> None:
        """Its devices were read. Where a driver says that the cap binds, it does, whatever is drawn: a job of short
        phases is held down in some of them, and draws less on average."""
        draws_w = [reading.power_w for reading in readings if reading.power_w is not None]
        if any(reading.cap_binding for reading in readings):
            draws_w.append(self.ceiling_w)
        if draws_w:
            self.draws_w.append((t_s, max(draws_w)))
        while self.draws_w and self.draws_w[0][0] < t_s - DRAWN_S:
            self.draws_w.popleft()

    def reset(self, t_s: float) -> None:
        """It has other caps from now on."""
        self.since_s = t_s
        self.draws_w.clear()

    def most_drawn_w(self, t_s: float) -> float | None:
        """What one of its devices draws at most under the caps that it has, watts; `None` while that is not known."""
        return upper(self.draws_w) if self.draws_w and t_s >= self.since_s + DRAWN_S else None


@dataclass(slots=True, kw_only=True)
class Lowering:
    """An order to lower that is carried out, and not confirmed yet."""

    order: Order
    given_s: float

    def is_done(self, t_s: float, draws_w: Sequence[float], devices: int) -> bool:
        """Whether the devices are seen to draw no more, or have had the time: the cap was read back, and the card sees
        to it."""
        most_w = self.order.cap_w + max(_SETTLED_W, _SETTLED_SHARE * self.order.cap_w)
        drawn = len(draws_w) == devices and max(draws_w) <= most_w
        return t_s > self.given_s and (drawn or t_s >= self.given_s + _SETTLED_S)


def upper(series: Iterable[tuple[float, float]]) -> float:
    """The upper quantile of some values with their times."""
    return float(np.quantile([value for _, value in series], _QUANTILE))
