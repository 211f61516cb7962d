"""Putting an emulated library beneath pynvml, in this process or in those that are started; one that keeps account of
the processor time it takes, so that a controller's own is known, where `COST_VARIABLE` asks for it."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

from autocap.clock import Clock, MonotonicClock
from autocap.testing.nvml.board import Board, FileBoard
from autocap.testing.nvml.library import EmulatedLibrary

COST_VARIABLE = "AUTOCAP_EMULATED_NVML_COST"
_TELL_S = 0.5


def emulated_s(log: Path, pid: int) -> float:
    """The CPU seconds that the library has taken in a process, at most half a second before its last call."""
    own = log.with_name(f"{log.name}.{pid}")
    return float(own.read_text().split()[1]) if own.exists() else 0.0


def spent_s(pid: int) -> float:
    """CPU seconds of a process, all its threads, to the nanosecond: by its own clock, which has this number."""
    return time.clock_gettime((~pid << 3) | 2)


class MeteredLibrary(EmulatedLibrary):
    """log: a file that holds, anew every half second, the calls so far and their CPU seconds; one for each process,
    with its PID behind the name."""

    def __init__(self, board: Board, clock: Clock, log: Path) -> None:
        super().__init__(board, clock)
        self._log, self._logged_s = log, 0.0
        self._spent_s, self._called = 0.0, 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = super().__getattr__(name)

        def metered(*arguments: Any) -> int:  # as Functions has them
            began_s = time.thread_time()
            try:
                return function(*arguments)
            finally:
                self._called += 1
                self._tell()
                self._spent_s += time.thread_time() - began_s

        return metered

    def _tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s > _TELL_S:
            self._logged_s = now_s
            own = f"{self._log.name}.{os.getpid()}"  # now, as we may have been forked since
            temporary = self._log.with_name(f"{own}.{threading.get_ident()}")  # of many threads
            temporary.write_text(f"{self._called} {self._spent_s}")
            temporary.rename(self._log.with_name(own))


SHIM = Path(__file__).parent / "shim"
STATE_VARIABLE = "AUTOCAP_EMULATED_NVML"
CARDS_VARIABLE = "EMULATED_NVML_CARDS"  # numbers of those that may be opened, by comma; all unless it is set
_EPOCH_S = 1_700_000_000.0  # time 0 of a virtual clock, by the driver's stamps
_ROOT = Path(__file__).resolve().parents[3]


class Times(TypedDict):
    """What `open_library` takes: the keyword arguments of that call."""

    pause: Callable[[float], object]
    wall_s: Callable[[], float]


def times(clock: Clock) -> Times:
    """How to wait and which time it is on a machine that lives by that clock."""
    return Times(pause=lambda seconds: clock.wait_until(clock.now() + seconds), wall_s=lambda: _EPOCH_S + clock.now())


@contextmanager
def emulated(board: Board, clock: Clock) -> Iterator[EmulatedLibrary]:
    """Put the machine of a board beneath the pynvml of this process, and take it away again."""
    import pynvml  # not above: a pynvml that is being imported imports this module

    before = (pynvml.nvmlLib, pynvml.CDLL)
    library = EmulatedLibrary(board, clock, **times(clock))
    put(pynvml, library, board)
    try:
        yield library
    finally:
        pynvml.nvmlLib, pynvml.CDLL = before
        pynvml._nvmlGetFunctionPointer_cache.clear()


def put(module: Any, library: EmulatedLibrary, board: Board) -> None:
    """Let a pynvml find its functions in an emulated library, or no library where the machine has no driver.

    module: pynvml, which has no types.
    """

    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file (emulated)")

    module._nvmlGetFunctionPointer_cache.clear()
    module.nvmlLib = library if board.read().machine.has_driver else None
    module.CDLL = no_library  # whatever happens, a real one is not loaded


def install(module: object) -> None:
    """For the shim: put the machine that the environment names beneath a pynvml that was just imported."""
    board = FileBoard(Path(os.environ[STATE_VARIABLE]))
    library = EmulatedLibrary(board, shared_clock(board), visible=_visible())
    if COST_VARIABLE in os.environ:
        library = MeteredLibrary(board, shared_clock(board), Path(os.environ[COST_VARIABLE]))
    put(module, library, board)


def _visible() -> list[int] | None:
    """The cards that CARDS_VARIABLE leaves, as a cgroup would; `None` for all."""
    given = os.environ.get(CARDS_VARIABLE)
    return None if given is None else [int(number) for number in given.split(",") if number]


def shared_clock(board: FileBoard) -> Clock:
    """The machine's time, the same in every process."""
    clock = MonotonicClock()
    clock.origin_s = board.read().origin_s
    return clock


def plain(*others: str) -> dict[str, str]:
    """Our own environment without what is said to autocap, and what begins with one of these others."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("AUTOCAP_", "SUDO_", *others))}


def environment(state: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process that is to meet the machine written to a file."""
    path = [str(SHIM), str(_ROOT), *filter(None, base.get("PYTHONPATH", "").split(os.pathsep))]
    return {**base, STATE_VARIABLE: str(state), "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}
