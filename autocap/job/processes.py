"""Processes by identity: a PID may be recycled, a PID with its start time is not. Linux, standard library only, but
where programs are named."""

import errno
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_SCHED_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's posix-timers.h: time on a CPU, in nanoseconds
_MOST_BYTES = 1 << 22  # of an environment
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class ProcessId:
    """pid: process number. start_ticks: start time in clock ticks since boot (`/proc/PID/stat`, field 22)."""

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Whether this very process, not a later one of the same number, still runs (a zombie does not).

        Raises OSError where no file can be opened any more: nobody is dead because of that.
        """
        stat = _stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks and stat.state not in ("Z", "X")


Roots = ProcessId | tuple[ProcessId, ...]  # of a job: what it began with here, or each of those that an engine started


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    ppid: int
    session: int
    start_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise
        return None  # gone, or hidden from us: not ours to speak of
    fields = _fields(text)
    return _Stat(state=fields[0].decode(), ppid=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))


def _fields(stat: bytes) -> list[bytes]:
    """From the third on, as proc(5) counts."""
    return stat[stat.rindex(b")") + 2 :].split()  # the command's name may hold spaces and brackets


def spent_ticks(pid: int, tid: int | None = None) -> int:
    """CPU time of all threads of a process, or of one of them, clock ticks; 0 where it has ended."""
    place = _PROC / str(pid) if tid is None else _PROC / str(pid) / "task" / str(tid)
    try:
        fields = _fields((place / "stat").read_bytes())
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def spent_ns(pid: int) -> int:
    """CPU time of all threads of a process, those that have ended included, nanoseconds: by the clock that
    clock_getcpuclockid(3) gives, which takes no rights. Raises OSError where there is no such process."""
    return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)


def identify(pid: int) -> ProcessId | None:
    """The identity of a running process, or `None` when there is none of that number, or no file can be opened."""
    try:
        stat = _stat(pid)
    except OSError:
        return None
    return None if stat is None else ProcessId(pid, stat.start_ticks)


def own_identity() -> ProcessId:
    """The calling process."""
    identity = identify(os.getpid())
    if identity is None:
        raise OSError("/proc does not show this process; autocap needs a Linux /proc")
    return identity


def tree(roots: Roots) -> tuple[ProcessId, ...]:
    """Every live process that descends from one of the roots or stands in the session that it leads, the roots first.

    The session finds children whose parent has died; descent finds those that began a session of their own.
    """
    given = (roots,) if isinstance(roots, ProcessId) else roots
    stats = {pid: stat for pid in pids() if (stat := _stat(pid)) is not None}
    # A number that was given to another process: its session and children are not ours either.
    begun = {root.pid for root in given if root.pid not in stats or stats[root.pid].start_ticks == root.start_ticks}
    found = {pid for pid, stat in stats.items() if pid in begun or stat.session in begun}
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat.ppid in found and pid not in found}
        found |= more
        grown = bool(more)
    ordered = sorted(found, key=lambda pid: (pid not in begun, pid))
    return tuple(ProcessId(pid, stats[pid].start_ticks) for pid in ordered if stats[pid].state not in ("Z", "X"))


def ancestors(pid: int) -> Iterator[int]:
    """A process's parent, that one's parent, and so on, as far as /proc shows them."""
    stat = _stat(pid)
    while stat is not None and stat.ppid > 0:
        yield stat.ppid
        stat = _stat(stat.ppid)


def environment(pid: int, proc: Path = _PROC) -> dict[bytes, bytes]:
    """What a process was started with, by name. proc: instead of /proc. Raises OSError where it is not to be read."""
    with (proc / str(pid) / "environ").open("rb") as file:
        entries = file.read(_MOST_BYTES).split(b"\0")
    return {name: value for name, given, value in (entry.partition(b"=") for entry in entries) if given}


def status(pid: int, proc: Path = _PROC) -> dict[str, str]:
    """What /proc/PID/status says, by name. proc: instead of /proc. Raises OSError where it is not to be read."""
    lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def has_ended(pidfd: int, within_s: float = 0.0) -> bool:
    """Whether the process of a pidfd has ended, or does so soon enough; a zombie has."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(1000 * within_s))


def pids() -> list[int]:
    """Of every process that /proc shows."""
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def boot_id() -> str:
    """The kernel's identifier of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def import_path() -> list[str]:
    """Where this process imports from, in absolute terms, with the place of this very autocap (an editable install's
    is in no path)."""
    path = [os.path.abspath(entry) for entry in sys.path]
    home = package_root()
    return path if home in path else [*path, home]


def package_root() -> str:
    """The folder that holds this very autocap, in absolute terms."""
    return str(Path(os.path.abspath(__file__)).parents[2])


class SpareDescriptors:
    """As many descriptors as may be had, up to `count`; they stand for nothing until they are lent."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._take()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, so many more files can be opened; afterwards what is free is taken again."""
        self.close()
        try:
            yield
        finally:
            self._take()

    def close(self) -> None:
        """Give them up."""
        while self._held:
            os.close(self._held.pop())

    def _take(self) -> None:
        with suppress(OSError):  # those that others have taken meanwhile, until they are free again
            while len(self._held) < self._count:
                self._held.append(os.open("/dev/null", os.O_RDONLY))


_OURS = "another autocap"
# By what the kernel calls the process, which is at most 15 characters.
_KNOWN = {
    "nv-hostengine": "DCGM (nv-hostengine)",
    "lact": "LACT (lact)",
    "lactd": "LACT (lactd)",
    "nvidia-powerd": "NVIDIA's Dynamic Boost (nvidia-powerd)",
    "nvidia-smi": "nvidia-smi",
    "zeusd": "zeusd",
    "autocap": _OURS,
}


def likely_setters() -> tuple[tuple[str, int], ...]:
    """What each that runs is called, and its PID; told by the name alone, so not whether it sets anything now. Neither
    we ourselves nor what has started us (sudo)."""
    import psutil  # not above: a session seldom asks

    own = {os.getpid(), *ancestors(os.getpid())}
    found = ((process.info["name"], process.pid) for process in psutil.process_iter(["name"]))
    return tuple((_KNOWN[name], pid) for name, pid in found if name in _KNOWN and pid not in own)


def other_setters() -> tuple[tuple[str, int], ...]:
    """The same without other runs of autocap, which take no device that is ours, and its helper."""
    return tuple((name, pid) for name, pid in likely_setters() if name != _OURS)
