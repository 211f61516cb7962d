"""The step counter of `autocap run` and `autocap.tune`, and of whoever counts by hand before anybody asks: the map that
the job's processes write to, and what is read out of it.

What writes is `hook/sitecustomize.py`, which runs in the job's Python; the layout of the map is described there.
"""

import atexit
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId, Roots, tree
from autocap.job.shared_files import SharedFile, is_name, new_file, remove_dead
from autocap.progress.ranks import SHORTEST_STEP_NS, JobSteps, ProcessSteps
from autocap.progress.steps.hook import sitecustomize as step_hook
from autocap.records import StepReading

SLOTS = 256
_MAP_BYTES = step_hook.HEADER_BYTES + SLOTS * step_hook.SLOT_BYTES
_HEADER = struct.pack(step_hook.HEADER_FORMAT, step_hook.MAGIC, SLOTS, step_hook.SLOT_BYTES)
_SLOT = struct.Struct(step_hook.SLOT_FORMAT)
_PID_BYTES = 8
_NOBODY = bytes(_PID_BYTES)
_TRIES, _BETWEEN_TRIES_S = 50, 0.01  # to find a map that is being made
_HIGHEST_PID = 1 << 22  # the kernel gives none above
_HOOK_DIRECTORY = Path(step_hook.__file__).parent


def hooked(base: Mapping[str, str]) -> dict[str, str]:
    """An environment with the hook's directory on PYTHONPATH, first where it was not."""
    others = base.get("PYTHONPATH")
    paths = others.split(os.pathsep) if others else []
    if str(_HOOK_DIRECTORY) not in paths:
        paths = [str(_HOOK_DIRECTORY), *paths]
    return {**base, "PYTHONPATH": os.pathsep.join(paths)}


class StepMap:
    """The shared file that holds a slot for each process of the job. Whoever made it removes it by closing it.

    The job can write anything to it, and put anything in its place: what is read is what a job can have done, or
    nothing.
    """

    def __init__(self, fd: int, file: SharedFile | None = None) -> None:
        self._fd, self._file = fd, file
        self._is_ours: Callable[[ProcessId], bool] | None = None  # `None` for whoever counts there
        self._job = JobSteps()
        self._slots: dict[int, ProcessSteps] = {}  # by offset: what was last read whole
        self._used = _MAP_BYTES  # as far as a slot was taken, and one more
        self._table = b""  # as it was read last, and what it said
        self._reading: StepReading | None = None

    @classmethod
    def create(cls, directory: Path | None = None) -> Self:
        """Create the file, in memory where that is possible.

        directory: where, instead of /dev/shm or else the directory for temporary files. Raises AutocapError when it
        cannot be created.
        """
        file = new_file(_MAP_BYTES, "the step counter", _HEADER, directory)
        return cls(file.fd, file)

    @classmethod
    def of_name(cls, path: Path, is_ours: Callable[[ProcessId], bool]) -> Self:
        """The map of that very name: what another process of this machine has made, or else made here, as on another
        machine. is_ours: whether a process is to be counted.

        Raises AutocapError when there is none and it cannot be made.
        """
        for _ in range(_TRIES):
            try:
                file = SharedFile(path.parent, _MAP_BYTES, path.name)
                os.pwrite(file.fd, _HEADER, 0)
                made = cls(file.fd, file)
                made._is_ours = is_ours
                return made
            except FileExistsError:
                pass
            except OSError as error:
                raise AutocapError(f"the step counter {path} cannot be made here: {error.strerror}") from error
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise AutocapError(f"the step counter {path} cannot be opened: {error.strerror}") from error
            complaint = _complaint(fd)
            if complaint is None:
                opened = cls(fd)
                opened._is_ours = is_ours
                return opened
            os.close(fd)
            time.sleep(_BETWEEN_TRIES_S)  # whoever makes it may be about to
        raise AutocapError(f"the step counter {path} {complaint}; remove it, and start again")

    @classmethod
    def adopt(cls, fd: int) -> Self:
        """The map that another process, the job itself, has made and handed down as an open descriptor.

        Raises AutocapError where the descriptor is no map of our own user's.
        """
        complaint = _complaint(fd)
        if complaint is not None:
            raise AutocapError(f"descriptor {fd} {complaint}, so it is no step map; autocap.tune alone hands one down")
        os.set_inheritable(fd, False)
        return cls(fd)

    @classmethod
    def of_job(cls, job: Roots) -> Self | None:
        """The map in which a job that runs already counts by itself (`step`): of its processes, the first that has one
        open; `None` where none has, or it is not for us to see."""
        for process in tree(job):
            with suppress(OSError):
                folder = Path(f"/proc/{process.pid}/fd")
                owner_uid = folder.parent.stat().st_uid
                for link in folder.iterdir():
                    fd = _opened(link)
                    if fd is not None and _complaint(fd, owner_uid) is None:
                        return cls(fd)
                    if fd is not None:
                        os.close(fd)
        return None

    @property
    def path(self) -> Path:
        """Its name; of one that we made."""
        assert self._file is not None, "a map that was handed down is known by its descriptor alone"
        return self._file.path

    @property
    def fd(self) -> int:
        """Its descriptor, to be handed down; -1 once it is closed, and in a fork of us."""
        return self._fd if self._file is None else self._file.fd

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment in which the child counts its steps: `base` with the map's name and the hook's directory
        first on PYTHONPATH."""
        return {**hooked(base), step_hook.MAP_VARIABLE: str(self.path)}

    def read(self, origin_s: float) -> StepReading | None:
        """The job's steps so far, and when the last of them ended, on the clock that was zero at `origin_s` of the
        system's monotonic clock.

        `None` before the first step, and when the map was tampered with.
        """
        # Not mapped: reading a mapping of a file that was truncated would kill us.
        table = self._look()
        if table is None:
            return None
        if table != self._table:
            self._table, self._reading = table, self._read_slots(table)
        reading = self._reading
        return None if reading is None else StepReading(count=reading.count, t_s=reading.t_s - origin_s)

    def _look(self) -> bytes | None:
        """The map as far as the first free slot, as slots are taken in order; `None` where it was tampered with."""
        table = self._read_bytes(self._used)
        taken = table is not None and table[-step_hook.SLOT_BYTES :][:_PID_BYTES] != _NOBODY
        return self._read_bytes(_MAP_BYTES) if taken else table

    def _read_bytes(self, size: int) -> bytes | None:
        try:
            table = os.pread(self.fd, size, 0)
        except OSError:
            return None
        return table if len(table) == size else None

    def _read_slots(self, table: bytes) -> StepReading | None:
        now_ns = time.monotonic_ns()  # no step that we read can have ended later
        for at in range(step_hook.HEADER_BYTES, _MAP_BYTES, step_hook.SLOT_BYTES):
            if table[at : at + _PID_BYTES] == _NOBODY:
                self._used = at + step_hook.SLOT_BYTES
                break  # slots are taken in order, and none is given back
            steps = _slot(table, at, now_ns)
            if steps is not None and (self._is_ours is None or self._is_ours(steps.process)):
                self._slots[at] = steps
        return self._job.update(list(self._slots.values()))

    def close(self) -> None:
        """Remove the file if we made it, or if its maker is dead. Processes that still write to it are not disturbed,
        and whatever was put in its place stays."""
        if self._file is not None:
            self._file.close()
        elif self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            remove_dead()

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
    """Count one iteration of this process by hand: for who tunes it, or may attach to it later."""
    global _count
    if _count is None:
        counter = step_hook.counter() or _own_counter()
        _count = _nothing if counter is None else counter.step
    _count()


_count: Callable[[], None] | None = None  # what `step` does, from its first call on


def _nothing() -> None:
    pass


def _own_counter() -> "step_hook.StepCounter | None":
    """In a map of this process's own, which it holds open until its end; `None` where none can be made."""
    try:
        step_map = StepMap.create()
    except AutocapError:
        return None
    atexit.register(step_map.close)
    counter = step_hook.StepCounter(str(step_map.path))
    os.register_at_fork(after_in_child=counter.restart)
    return counter


def _opened(link: Path) -> int | None:
    """What a process has open, where its name is that of a map; `None` where it is not, or not any more."""
    try:
        is_map = is_name(os.readlink(link).rpartition("/")[2])
        return os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if is_map else None
    except OSError:
        return None


def _complaint(fd: int, owner_uid: int | None = None) -> str | None:
    """Why a descriptor is no map that a job of that user, by default our own, has made; `None` where it is one."""
    owner_uid = os.geteuid() if owner_uid is None else owner_uid
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return "is no regular file"
        if status.st_uid != owner_uid:
            return f"belongs to user {status.st_uid}, not to user {owner_uid}"
        if status.st_size != _MAP_BYTES:
            return f"holds {status.st_size} bytes, not {_MAP_BYTES}"
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            return "is not open for reading"
        if os.pread(fd, len(step_hook.MAGIC), 0) != step_hook.MAGIC:
            return "holds something else"
    except (OSError, OverflowError):
        return "is not open"
    return None


def _slot(table: bytes, at: int, now_ns: int) -> ProcessSteps | None:
    """The slot at that offset; `None` while it is free, caught while it is being written, or holds what no process
    gives."""
    pid, start_ticks, rank, explicit, first_ns, count, last_ns, check = _SLOT.unpack_from(table, at)
    if count == 0 or check != count ^ last_ns ^ step_hook.salt(pid, start_ticks):
        return None
    if not (0 < pid <= _HIGHEST_PID and first_ns <= last_ns <= now_ns and count <= 1 + last_ns // SHORTEST_STEP_NS):
        return None
    return ProcessSteps(
        process=ProcessId(pid, start_ticks),
        rank=rank if rank >= 0 else None,
        explicit=bool(explicit),
        first_s=first_ns / 1e9,
        last_s=last_ns / 1e9,
        count=count,
    )
