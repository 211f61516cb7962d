"""The emulated machine that the helper serves, who computes on it, the policy, and what follows for each user: worked
out here anew, as that is what is looked at.
"""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autocap.testing.nvml import Machine, machine
from bench.helper.people import USER, forked

ARRIVALS_MW = (247_123, 251_007, 240_001, 255_500, 238_750, 244_444, 249_999, 252_252)
OUTSIDER = -1  # computes as whoever has PID 1
_NOBODY_MW = (0, 10**9)


@dataclass(frozen=True, slots=True)
class Users:
    """By number; without root's rights they are all the same. witness: the one who behaves well."""

    a: int
    b: int
    c: int
    d: int
    witness: int

    @property
    def hostile(self) -> tuple[int, ...]:
        """Who the cases are played as; root as well."""
        return tuple(dict.fromkeys((self.a, self.b, self.c, self.d, os.geteuid())))


def users() -> Users:
    mine = os.geteuid()
    return Users(*range(USER, USER + 5)) if mine == 0 else Users(mine, mine, mine, mine, mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """As in the policy. users: `None` for all."""

    users: tuple[int, ...] | None
    gpus: tuple[int, ...]
    min_mw: int = 0
    max_mw: int = 10**9
    shared: bool = False
    given: bool = False
    sets_per_s: float | None = None

    def is_for(self, uid: int) -> bool:
        return self.users is None or uid in self.users

    def text(self, uuids: Sequence[str]) -> str:
        lines = ["[[rule]]", f"devices = {[uuids[gpu] for gpu in self.gpus]}"]
        lines += [f"users = {list(self.users)}"] if self.users is not None else []
        lines += [f"min_w = {self.min_mw / 1000}"] if self.min_mw else []
        lines += [f"max_w = {self.max_mw / 1000}"] if self.max_mw < _NOBODY_MW[1] else []
        lines += ["shared = true"] if self.shared else []
        lines += ["given = true"] if self.given else []
        lines += [f"sets_per_s = {self.sets_per_s}"] if self.sets_per_s is not None else []
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """computing: the users whose processes compute on each GPU, `None` for one that nobody can tell. rules: `None`
    where there is no policy."""

    machine: Machine
    users: Users
    computing: tuple[frozenset[int | None], ...]
    rules: tuple[Rule, ...] | None

    @property
    def uuids(self) -> tuple[str, ...]:
        return tuple(card.uuid for card in self.machine.cards)

    @property
    def policy(self) -> str | None:
        """The file's text."""
        if self.rules is None:
            return None
        return "version = 1\n" + "\n".join(rule.text(self.uuids) for rule in self.rules) + "\n"

    def may(self, uid: int, gpu: int) -> tuple[int, int] | None:
        """The lowest and highest cap that a user may set, milliwatts; `None` where they may not have the GPU at all."""
        card = self.machine.cards[gpu]
        rule = Rule(users=None, gpus=(gpu,))
        if self.rules is not None:
            about = [one for one in self.rules if gpu in one.gpus]
            own = next((one for one in about if one.is_for(uid)), None)
            if own is None or (not own.given and any(one.given and not one.is_for(uid) for one in about)):
                return None
            rule = own
        if not (rule.shared or rule.given) and self.computing[gpu] - {uid}:
            return None
        return max(card.min_mw, rule.min_mw), min(card.arrival_mw, rule.max_mw)

    def complaint(self, gpu: int, limit_mw: int) -> str | None:
        """What is wrong about a limit that was requested by whoever it was; the one found may always be."""
        if limit_mw == ARRIVALS_MW[gpu]:
            return None
        allowed = [self.may(uid, gpu) for uid in (*self.users.hostile, self.users.witness)]
        if any(one is not None and one[0] <= limit_mw <= one[1] for one in allowed):
            return None
        return f"GPU {gpu} was set to {limit_mw / 1000:g} W, which nobody may"


class Computing:
    """Processes that seem to compute on the GPUs; a context manager that ends them."""

    def __init__(self, people: Users) -> None:
        self._of: dict[int, int] = {}
        self._people = people

    def __enter__(self) -> "Computing":
        for uid in {self._people.a, self._people.b, self._people.d, self._people.witness}:
            self._of[uid] = forked(uid, lambda: time.sleep(100_000))
        gone = forked(self._people.a, lambda: None)
        os.waitpid(gone, 0)
        self._of[OUTSIDER], self._gone = 1, gone
        return self

    def __exit__(self, *error: object) -> None:
        for uid, pid in self._of.items():
            if uid != OUTSIDER:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def law(self, with_policy: bool) -> Law:
        """On a machine of eight GPUs."""
        a, b, c, d, w = (getattr(self._people, name) for name in ("a", "b", "c", "d", "witness"))
        groups: list[tuple[int, ...]] = [(a,), (b,), (), (a, b), (OUTSIDER,), (), (d,), (w,)]
        made = machine("quadro-rtx-6000/alexnet", gpus=len(ARRIVALS_MW), arrivals_mw=ARRIVALS_MW)
        pids = [tuple(self._of[one] for one in group) for group in groups]
        pids[5] = (self._gone,)  # whose that was cannot be told
        cards = tuple(replace(card, pids=own) for card, own in zip(made.cards, pids, strict=True))
        outside = Path("/proc/1").stat().st_uid
        whose: list[frozenset[int | None]] = [
            frozenset(outside if one == OUTSIDER else one for one in group) for group in groups
        ]
        whose[5] = frozenset({None})
        rules = (
            Rule(users=(a,), gpus=(0,), min_mw=150_000, max_mw=220_000),
            Rule(users=(b,), gpus=(0, 1), max_mw=180_000, shared=True),
            Rule(users=None, gpus=(2,), sets_per_s=2.0),
            Rule(users=(a, b), gpus=(3,), min_mw=200_000, shared=True),
            Rule(users=(c,), gpus=(5,), given=True),
            Rule(users=(w,), gpus=(7,)),
            Rule(users=(d,), gpus=(0, 4)),  # where others compute
        )
        return Law(
            machine=replace(made, cards=cards, job_gpus=()),
            users=self._people,
            computing=tuple(whose),
            rules=rules if with_policy else None,
        )
