"""Where a fault is injected in virtual time: the machine, its clock, and what should stand there in the end."""

from dataclasses import dataclass, replace
from pathlib import Path

from autocap.clock import VirtualClock
from autocap.testing.nvml import Fault, Machine, MemoryBoard
from autocap.testing.nvml.board import requested, requested_mw
from autocap.testing.nvml.library import EmulatedLibrary
from bench.faults.outcome import difference
from bench.simulation.clock import EventClock

ARRIVALS_MW = (287_123, 291_007)
_VIRTUAL_LIMIT_S = 100_000.0


class Hang(BaseException):
    """Not an Exception: nothing that catches those may keep it from ending the injection."""


class Script(EventClock):
    """A virtual clock that is not waited on for ever."""

    def step(self, seconds: float) -> None:
        """Jump, as when nobody let this process run for so long."""
        VirtualClock.wait_until(self, self.now() + seconds)

    def wait_until(self, t_s: float) -> int | None:
        if t_s > _VIRTUAL_LIMIT_S:
            raise Hang(f"still waiting at {t_s:.0f} s")
        return super().wait_until(t_s)


@dataclass
class Stage:
    """Where a fault is injected.

    expected_mw: the limits that should stand there in the end. wall_step_s: by how much our wall clock was set. syncs:
    how many times the journal's disk takes something, `None` for always. synced: how many times it has. late: which
    limits were not back when they should have been.
    """

    board: MemoryBoard
    clock: Script
    library: EmulatedLibrary
    state_dir: Path
    expected_mw: list[int]
    wall_step_s: float = 0.0
    syncs: int | None = None
    synced: int = 0
    late: str | None = None
    held_up_s: float = 0.0
    _turned_s: float | None = None

    def begin(self) -> None:
        """The devices are open: what it took until then was no turn."""
        self._turned_s, self.held_up_s = None, 0.0

    def turn(self) -> None:
        """The loop looks whether the job lives, as once a turn."""
        now_s = self.clock.now()
        if self._turned_s is not None:
            self.held_up_s = max(self.held_up_s, now_s - self._turned_s)
        self._turned_s = now_s

    def card(self, gpu: int, **changes: object) -> None:
        """Let a card be another from now on."""
        made = self.board.read().machine
        card = replace(made.cards[gpu], **changes)  # type: ignore[arg-type]  # checked by the dataclass, at run time
        self.board.update(lambda state: replace(state, machine=made.with_card(gpu, card)))

    def fail(self, fault: Fault) -> None:
        """From now on the library fails so."""
        self.board.update(lambda state: replace(state, machine=replace(state.machine, faults=(fault,))))

    def fail_also(self, fault: Fault) -> None:
        """The same, beside how it fails already."""
        made = self.board.read().machine
        self.board.update(lambda state: replace(state, machine=replace(made, faults=(*made.faults, fault))))

    def answer(self) -> None:
        """From now on the library does not fail."""
        self.board.update(lambda state: replace(state, machine=replace(state.machine, faults=())))

    def demand(self, when: str) -> None:
        """The limits should be back by now."""
        wrong = difference(self.expected_mw, self.limits_mw())
        if wrong is not None:
            self.late = f"{wrong}, {when}"

    def limits_mw(self) -> list[int]:
        state = self.board.read()
        return [requested_mw(state, gpu, self.clock.now()) for gpu in range(len(state.machine.cards))]

    def heal(self, well: Machine) -> None:
        """The fault is over."""
        self.board.update(lambda state: replace(state, machine=well))
        self.syncs = None

    def sync(self, fd: int) -> None:
        """In place of fsync: on a full disk."""
        if self.syncs is not None and self.synced >= self.syncs:
            raise OSError(28, "No space left on device")
        self.synced += 1

    def write_as_other(self, gpu: int, limit_mw: int) -> None:
        """Another tool sets a limit, which is to stay."""
        self.board.update(lambda state: requested(state, gpu, limit_mw, self.clock.now()))
        self.expected_mw[gpu] = limit_mw
