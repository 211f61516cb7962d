"""The job's processes and threads as this machine has them, and the function that is looked for in them."""

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autocap.job.processes import ProcessId, Roots, environment, spent_ticks, tree
from autocap.progress.calls.cost import call_cost_s
from autocap.progress.calls.mapped import mapped_file, open_mapped
from autocap.progress.calls.target import CallTarget
from autocap.progress.calls.uprobe import ThreadCalls, Uprobes

_PROC = Path("/proc")
_FIRST_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function in a file that a process maps. cost_s: what counting a call costs."""

    file: BinaryIO
    offset: int
    cost_s: float


class Host:
    """What a counter needs of the machine; a double stands for it in tests.

    Raises CallsUnavailable, from everything but `close`, where the machine does not let calls be counted.
    """

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self._stack = ExitStack()
        self._uprobes: Uprobes | None = None
        self._functions: dict[tuple[int, int], Function] = {}  # by the file's device and inode

    def rehearse(self) -> None:
        """Count calls of our own."""
        call_cost_s(self._kernel(), b"")

    def processes(self, job: Roots) -> tuple[ProcessId, ...]:
        """The job's, those alone that belong to the user who asks. Raises OSError where no file can be opened."""
        own = os.getuid()  # under sudo the user's who typed the command
        return tuple(each for each in tree(job) if own == 0 or _owner(each.pid) == own)

    def rank(self, pid: int) -> int | None:
        """RANK in the process's environment."""
        with suppress(OSError, KeyError, ValueError):
            return int(environment(pid)[b"RANK"])
        return None

    def threads(self, pid: int) -> list[int]:
        """The process's first thread, then the others, those that have computed most first; none of a process that has
        ended."""
        with suppress(OSError):
            tids = [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
            return sorted(tids, key=lambda tid: (tid != pid, -spent_ticks(pid, tid)))
        return []

    def is_there(self, pid: int, tid: int) -> bool:
        """Whether the process has such a thread."""
        return (_PROC / str(pid) / "task" / str(tid)).exists()

    def function(self, pid: int) -> Function | None:
        """The function in what the process has loaded; `None` while it has not loaded its file."""
        mapped = mapped_file(pid, self._target)
        if mapped is None:
            return None
        file = open_mapped(mapped)
        status = os.fstat(file.fileno())
        known = self._functions.get((status.st_dev, status.st_ino))
        if known is not None:
            file.close()
            return known
        from autocap.progress.calls.symbols import function_offset  # elftools: where it is needed

        self._stack.enter_context(file)
        offset = function_offset(file, self._target)
        cost_s = call_cost_s(self._kernel(), os.pread(file.fileno(), _FIRST_BYTES, offset))
        return self._functions.setdefault((status.st_dev, status.st_ino), Function(file, offset, cost_s))

    def open(self, tid: int, function: Function) -> ThreadCalls | None:
        """Count a thread's calls from now on; `None` where it has ended."""
        return self._kernel().open(tid, function.file, function.offset)

    def close(self) -> None:
        if self._uprobes is not None:
            self._uprobes.close()
        self._stack.close()

    def _kernel(self) -> Uprobes:
        if self._uprobes is None:
            self._uprobes = Uprobes()
        return self._uprobes


def _owner(pid: int) -> int | None:
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None
