"""The step counter of `autocap run` and `autocap.tune`: the map that the job's processes write to, and what is read
out of it.

What writes is `hook/sitecustomize.py`, which runs in the job's Python; the layout of the map is described there.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId
from autocap.progress.steps.hook import sitecustomize as step_hook
from autocap.progress.steps.ranks import JobSteps, ProcessSteps
from autocap.records import StepReading

SLOTS = 256
_MAP_BYTES = step_hook.HEADER_BYTES + SLOTS * step_hook.SLOT_BYTES
_SLOT = struct.Struct(step_hook.SLOT_FORMAT)
_PID_BYTES = 8
_NOBODY = bytes(_PID_BYTES)
_HOOK_DIRECTORY = Path(step_hook.__file__).parent


class StepMap:
    """The shared file that holds a slot for each process of the job. Owned by the controller; closing removes it."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._job = JobSteps()
        self._slots: dict[int, ProcessSteps] = {}  # by offset: what was last read whole
        self._table = b""  # as it was read last, and what it said
        self._reading: StepReading | None = None

    @classmethod
    def create(cls, directory: Path | None = None) -> Self:
        """Create the file, in memory where that is possible.

        directory: where, instead of /dev/shm or else the directory for temporary files. Raises AutocapError when it
        cannot be created.
        """
        import tempfile  # costs a child that only counts steps more than all the rest of this module

        directories = [Path("/dev/shm"), Path(tempfile.gettempdir())] if directory is None else [directory]
        failures = []
        for each in directories:
            path = each / f"autocap-steps-{os.urandom(16).hex()}"
            try:
                return cls(path, _create(path))
            except OSError as error:
                failures.append(f"{each}: {error.strerror}")
        raise AutocapError(
            f"no file of {_MAP_BYTES} bytes for the step counter can be created ({'; '.join(failures)}); "
            "set TMPDIR to a directory that takes one"
        )

    @classmethod
    def open(cls, path: Path) -> Self:
        """The map that another process, the job itself, has created. Raises AutocapError where it cannot be opened."""
        try:
            return cls(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
        except OSError as error:
            raise AutocapError(f"the step counter's map {path} cannot be opened: {error.strerror}") from error

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment in which the child counts its steps: `base` with the map's name and the hook's directory
        first on PYTHONPATH."""
        others = base.get("PYTHONPATH")
        path = f"{_HOOK_DIRECTORY}{os.pathsep}{others}" if others else str(_HOOK_DIRECTORY)
        return {**base, step_hook.MAP_VARIABLE: str(self.path), "PYTHONPATH": path}

    def read(self, origin_s: float) -> StepReading | None:
        """The job's steps so far, and when the last of them ended, on the clock that was zero at `origin_s` of the
        system's monotonic clock.

        `None` before the first step, and when the map was tampered with.
        """
        # Not mapped: reading a mapping of a file that was truncated would kill us.
        table = os.pread(self._fd, _MAP_BYTES, 0)
        if len(table) != _MAP_BYTES:
            return None
        if table != self._table:
            self._table, self._reading = table, self._read_slots(table)
        reading = self._reading
        return None if reading is None else StepReading(count=reading.count, t_s=reading.t_s - origin_s)

    def _read_slots(self, table: bytes) -> StepReading | None:
        for at in range(step_hook.HEADER_BYTES, _MAP_BYTES, step_hook.SLOT_BYTES):
            if table[at : at + _PID_BYTES] == _NOBODY:
                break  # slots are taken in order, and none is given back
            steps = _slot(table, at)
            if steps is not None:
                self._slots[at] = steps
        return self._job.update(list(self._slots.values()))

    def close(self) -> None:
        """Remove the file. Processes that still write to it are not disturbed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def counted(step_map: StepMap) -> Iterator[None]:
    """Inside, this process counts its steps in that map: those of torch's optimisers, or those of autocap.step()."""
    global _count
    counter, _count = step_hook.counter(), None  # what `step` did before
    os.environ[step_hook.MAP_VARIABLE] = str(step_map.path)
    if counter is None:
        step_hook.start()
    else:
        counter.restart(str(step_map.path))
    try:
        yield
    finally:
        del os.environ[step_hook.MAP_VARIABLE]
        counter = step_hook.counter()
        if counter is not None:
            counter.stop()


def are_counted() -> bool:
    """Whether the steps of this process are counted already."""
    return bool(os.environ.get(step_hook.MAP_VARIABLE))


def step() -> None:
    """Count one iteration of this process by hand; nothing where nobody tunes it."""
    global _count
    if _count is None:
        counter = step_hook.counter()
        _count = _nothing if counter is None else counter.step
    _count()


_count: Callable[[], None] | None = None  # what `step` does, from its first call on


def _nothing() -> None:
    pass


def _create(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # Allocated, not merely long: on a full disk the hole of a sparse map would kill the job that writes to it.
        os.posix_fallocate(fd, 0, _MAP_BYTES)
        header = struct.pack(step_hook.HEADER_FORMAT, step_hook.MAGIC, SLOTS, step_hook.SLOT_BYTES)
        os.pwrite(fd, header, 0)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    return fd


def _slot(table: bytes, at: int) -> ProcessSteps | None:
    """The slot at that offset; `None` while it is free, or caught while it is being written."""
    pid, start_ticks, rank, explicit, first_ns, count, last_ns, check = _SLOT.unpack_from(table, at)
    if count == 0 or check != count ^ last_ns ^ step_hook.salt(pid, start_ticks):
        return None
    return ProcessSteps(
        process=ProcessId(pid, start_ticks),
        rank=rank if rank >= 0 else None,
        explicit=bool(explicit),
        first_s=first_ns / 1e9,
        last_s=last_ns / 1e9,
        count=count,
    )
