"""An emulated library that keeps account of the processor time it takes, so that a controller's own is known."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autocap.clock import Clock
from autocap.testing.nvml.board import Board
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
