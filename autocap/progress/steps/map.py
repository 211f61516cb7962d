"""The step counter of `autocap run` and `autocap.tune`: the map that the job's processes write to, and what is read
out of it.

What writes is `hook/sitecustomize.py`, which runs in the job's Python; the layout of the map is told there.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId
from autocap.progress.steps.hook import sitecustomize as stephook
from autocap.records import StepReading

SLOTS = 256
_MAP_BYTES = stephook.HEADER_BYTES + SLOTS * stephook.SLOT_BYTES
_SLOT = struct.Struct(stephook.SLOT_FORMAT)
_PID_BYTES = 8
_NOBODY = bytes(_PID_BYTES)
_HOOK_DIRECTORY = Path(stephook.__file__).parent

# A process that has not stepped for this long while others have is left behind; a slow one has longer.
_IDLE_S = 10.0
_IDLE_INTERVALS = 20
_LATE_INTERVALS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSteps:
    """What one process has published.

    rank: its RANK in the job, `None` where that is unset. explicit: it counts by hand, with autocap.step().
    first_s, last_s: when its first and its last step ended, seconds on the system's monotonic clock.
    """

    process: ProcessId
    rank: int | None
    explicit: bool
    first_s: float
    last_s: float
    count: int

    def is_left_behind(self, newest_s: float) -> bool:
        """Whether, with the job's newest step at `newest_s`, this process no longer takes part in it."""
        return newest_s - self.last_s > max(_IDLE_S, _IDLE_INTERVALS * self.interval_s)

    def is_late(self, newest_s: float) -> bool:
        """Whether, with the job's newest step at `newest_s`, this process may have ended."""
        return newest_s - self.last_s > _LATE_INTERVALS * self.interval_s

    @property
    def interval_s(self) -> float:
        """Mean time from step to step."""
        return (self.last_s - self.first_s) / max(1, self.count - 1)


class JobSteps:
    """Makes one count out of those of a job's processes: the slowest rank's.

    Processes that are dead are left out, and so are those left behind: without a step for 10 s (or 20 times their
    own mean interval) before the newest step of another live process. That way a helper that trained a little at
    start-up and lives on does not hold the count, while a job that pauses as a whole leaves nobody behind. Where any
    of the rest counts by hand, only those that do are looked at. Of several processes with the same RANK (a rank's
    own children inherit it) the busiest speaks for the rank, and of the ranks the slowest for the job. Where no
    process has a RANK, the busiest speaks for the job.

    The count never falls: a process that comes to speak for the job with a lower count, such as a rank that was
    started again, goes on from the count published so far.
    """

    def __init__(self) -> None:
        self._published: StepReading | None = None
        self._last_s: dict[ProcessId, float] = {}
        self._raised: dict[ProcessId, int] = {}

    def update(
        self, processes: Sequence[ProcessSteps], is_alive: Callable[[ProcessId], bool] = ProcessId.is_alive
    ) -> StepReading | None:
        """The job's steps, given what its processes have published by now; `None` before the first.

        Times are those of the records given. is_alive is asked only for processes that are late beside another and did
        not step since last time: the last steps of one that ended in between count.
        """
        newest_s = max((each.last_s for each in processes), default=0.0)
        alive = [
            each for each in processes if self._stepped(each) or not each.is_late(newest_s) or is_alive(each.process)
        ]
        self._last_s = {each.process: each.last_s for each in processes}
        speaker = self._speaker(alive)
        if speaker is None:
            return self._published
        count = self._value(speaker)
        before = self._published
        if before is not None and count < before.count:
            self._raised[speaker.process] = before.count - speaker.count
        elif before is None or (count > before.count and speaker.last_s > before.t_s):
            self._published = StepReading(count=count, t_s=speaker.last_s)
        return self._published

    def _stepped(self, now: ProcessSteps) -> bool:
        before_s = self._last_s.get(now.process)
        return before_s is None or now.last_s > before_s

    def _value(self, each: ProcessSteps) -> int:
        return each.count + self._raised.get(each.process, 0)

    def _speaker(self, alive: Sequence[ProcessSteps]) -> ProcessSteps | None:
        newest_s = max((each.last_s for each in alive), default=0.0)
        active = [each for each in alive if not each.is_left_behind(newest_s)]
        candidates = [each for each in active if each.explicit] or active
        by_rank: dict[int, list[ProcessSteps]] = {}
        for each in candidates:
            if each.rank is not None:
                by_rank.setdefault(each.rank, []).append(each)
        if by_rank:
            return min((max(group, key=self._value) for group in by_rank.values()), key=self._value)
        return max(candidates, key=self._value, default=None)


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
    def create(cls, directory: Path | None = None, owner_uid_gid: tuple[int, int] | None = None) -> Self:
        """Create the file, in memory where that is possible.

        directory: where, instead of /dev/shm or else the directory for temporary files. owner_uid_gid: whose it is to
        be, when the job runs as somebody else. Raises AutocapError when it cannot be created.
        """
        import tempfile  # costs a child that only counts steps more than all the rest of this module

        directories = [Path("/dev/shm"), Path(tempfile.gettempdir())] if directory is None else [directory]
        failures = []
        for each in directories:
            path = each / f"autocap-steps-{os.urandom(16).hex()}"
            try:
                return cls(path, _create(path, owner_uid_gid))
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
        return {**base, stephook.MAP_VARIABLE: str(self.path), "PYTHONPATH": path}

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
        for at in range(stephook.HEADER_BYTES, _MAP_BYTES, stephook.SLOT_BYTES):
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def counted(step_map: StepMap) -> Iterator[None]:
    """Inside, this process counts its steps in that map: those of torch's optimisers, or those of autocap.step()."""
    counter = stephook.counter()
    os.environ[stephook.MAP_VARIABLE] = str(step_map.path)
    if counter is None:
        stephook.start()
    else:
        counter.restart(str(step_map.path))
    try:
        yield
    finally:
        del os.environ[stephook.MAP_VARIABLE]
        counter = stephook.counter()
        if counter is not None:
            counter.stop()


def are_counted() -> bool:
    """Whether somebody counts the steps of this process already."""
    return bool(os.environ.get(stephook.MAP_VARIABLE))


def count_step() -> Callable[[], None]:
    """What autocap.step() does in this process: count one iteration, or nothing where nobody tunes it."""
    counter = stephook.counter()
    return _nothing if counter is None else counter.step


def _nothing() -> None:
    pass


def _create(path: Path, owner_uid_gid: tuple[int, int] | None) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # Allocated, not merely long: on a full disk the hole of a sparse map would kill the job that writes to it.
        os.posix_fallocate(fd, 0, _MAP_BYTES)
        header = struct.pack(stephook.HEADER_FORMAT, stephook.MAGIC, SLOTS, stephook.SLOT_BYTES)
        os.pwrite(fd, header, 0)
        if owner_uid_gid is not None:
            os.fchown(fd, *owner_uid_gid)
    except OSError:
        os.close(fd)
        path.unlink(missing_ok=True)
        raise
    return fd


def _slot(table: bytes, at: int) -> ProcessSteps | None:
    """The slot at that offset; `None` while it is free, or caught while it is being written."""
    pid, start_ticks, rank, explicit, first_ns, count, last_ns, check = _SLOT.unpack_from(table, at)
    if count == 0 or check != count ^ last_ns ^ stephook.salt(pid, start_ticks):
        return None
    return ProcessSteps(
        process=ProcessId(pid, start_ticks),
        rank=rank if rank >= 0 else None,
        explicit=bool(explicit),
        first_s=first_ns / 1e9,
        last_s=last_ns / 1e9,
        count=count,
    )
