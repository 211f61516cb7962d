"""An enforcer on an emulated machine, in virtual time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from autocap.devices.base import PowerSource
from autocap.events import Event
from autocap.limits import Guardian
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.manager.allocation import Allocation
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.finding import FoundJob
from autocap.testing.nvml import machine
from autocap.testing.nvml.board import PlayedJob
from bench.faults.virtual import Unwatched
from tests.doubles.nvml_stand import PROFILE, Stand, stand

TICK_S = 0.2
_OURS = os.getpid()


@dataclass
class Stage:
    """jobs: those that compute. told: ceilings that tuners were told of. said: all events."""

    stand: Stand
    enforcer: BudgetEnforcer
    guardian: Guardian
    said: list[Event]
    told: list[tuple[str, float]]
    jobs: list[FoundJob] = field(default_factory=list)

    @property
    def now_s(self) -> float:
        return self.stand.clock.now()

    def uuids(self, *gpus: int) -> tuple[str, ...]:
        return tuple(self.stand.uuid(gpu) for gpu in gpus)

    def come(self, pid: int, *gpus: int, profile: str | None = None) -> FoundJob:
        """A job begins to compute."""
        job = FoundJob(pid=pid, uuids=self.uuids(*gpus))
        # The test's own process stands for all of them on the board, where a dead one would draw nothing.
        played = PlayedJob(gpus=gpus, pid=_OURS, start_s=self.now_s, profile=profile)
        self.stand.board.update(lambda state: state.with_job(played))
        self.jobs.append(job)
        return job

    def run(self, seconds: float) -> None:
        """What a manager's loop does meanwhile."""
        for _ in range(round(seconds / TICK_S)):
            self.stand.advance(TICK_S)
            self.enforcer.beat(self.now_s)
            self.enforcer.look(self.now_s, self.jobs)
            self.enforcer.sample(self.now_s)
            self.enforcer.act(self.now_s)

    def limits_w(self) -> list[float]:
        """On the board."""
        count = len(self.stand.board.read().machine.cards)
        return [self.stand.requested_mw(gpu) / 1000 for gpu in range(count)]

    def allocation(self, *gpus: int) -> Allocation:
        return next(one for one in self.enforcer.allocations.values() if one.gpus == gpus)


@contextmanager
def stage(
    folder: Path, budget_w: float, *, gpus: int = 4, arrivals_mw: Sequence[int] | None = None,
    node: PowerSource | None = None, floor_w: float = 100.0,
) -> Iterator[Stage]:  # fmt: skip
    """gpus: cards without a job yet."""
    made = replace(machine(PROFILE, gpus=gpus, arrivals_mw=arrivals_mw), start_s=None, sensor="v100")
    with stand(made) as there:
        device = there.device()
        guardian = Guardian(
            kind="nvml",
            gpus=device.gpus,
            limits=device.limits(),
            job=None,
            state_dir=folder / "state",
            sync=lambda fd: None,
            start_watch=Unwatched,
        )
        with guardian:
            said: list[Event] = []
            told: list[tuple[str, float]] = []
            enforcer = BudgetEnforcer(
                device=device,
                guard=guardian,
                ledger=Ledger(budget_w),
                least_w=[floor_w] * gpus,
                say=said.append,
                node=node,
            )
            enforcer.tell = lambda allocation: told.append((allocation.name, allocation.ceiling_w))
            enforcer.begin(there.clock.now())
            yield Stage(there, enforcer, guardian, said, told)
