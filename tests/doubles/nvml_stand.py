"""An NVML device on an emulated machine, in virtual time, with its parts at hand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from autocap.clock import VirtualClock
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.library import Library, open_library
from autocap.records import Reading
from autocap.testing.nvml import Fault, Machine, MemoryBoard, emulated, machine, times
from autocap.testing.nvml.board import requested, requested_mw

PROFILE = "quadro-rtx-6000/resnet50"


def one_card(**changes: Any) -> Machine:
    """A machine of one card that differs from the usual one in some fields; those of the machine itself included."""
    made = machine(PROFILE)
    of_machine = {name: changes.pop(name) for name in list(changes) if name in Machine.__slots__}
    return replace(made.with_card(0, replace(made.cards[0], **changes)), **of_machine)


@dataclass
class Stand:
    """library: opened on the machine. board: where the machine is."""

    library: Library
    board: MemoryBoard
    clock: VirtualClock

    def device(self, *, observe: bool = False, gpus: Sequence[int] | None = None) -> NvmlDevice:
        cards = self.board.read().machine.cards
        chosen = range(len(cards)) if gpus is None else gpus
        return NvmlDevice(self.library, [cards[gpu].uuid for gpu in chosen], self.clock, observe=observe)

    def advance(self, seconds: float) -> None:
        self.clock.wait_until(self.clock.now() + seconds)

    def uuid(self, gpu: int = 0) -> str:
        return self.board.read().machine.cards[gpu].uuid

    def requested_mw(self, gpu: int = 0) -> int:
        return requested_mw(self.board.read(), gpu, self.clock.now())

    def request(self, limit_mw: int, gpu: int = 0) -> None:
        """Set a limit as another tool would."""
        self.board.update(lambda state: requested(state, gpu, limit_mw, self.clock.now()))

    def change(self, **changes: Any) -> None:
        """Let the first card be another from now on."""
        made = self.board.read().machine
        self.board.update(lambda state: replace(state, machine=made.with_card(0, replace(made.cards[0], **changes))))

    def fail(self, *faults: Fault) -> None:
        """Let these faults be, from the next call on."""
        self.board.update(lambda state: replace(state, machine=replace(state.machine, faults=faults)))

    def series(self, device: NvmlDevice, seconds: float, every_s: float = 0.05) -> list[Reading]:
        """Readings of the first GPU."""
        readings = []
        for _ in range(round(seconds / every_s)):
            self.advance(every_s)
            readings.append(device.read()[0])
        return readings


@contextmanager
def stand(
    made: Machine | None = None, ahead_s: Callable[[], float] = lambda: 0.0, clock: VirtualClock | None = None
) -> Iterator[Stand]:
    """ahead_s: by how much our wall clock is ahead of the driver's."""
    clock, board = clock or VirtualClock(), MemoryBoard(made or machine(PROFILE))
    pause, wall_s = times(clock)["pause"], times(clock)["wall_s"]
    with emulated(board, clock), open_library(pause=pause, wall_s=lambda: wall_s() + ahead_s()) as library:
        yield Stand(library, board, clock)
