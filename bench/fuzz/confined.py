"""Cases in forked children, some at a time: each with its folder, limits, and streams that go into files.

What a case needs is imported before, once, so that it costs milliseconds and not half a second.
"""

import ctypes
import os
import resource
import select
import shutil
import signal
import time
import traceback
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench.fuzz.case import LIMIT_S, Call, Case, Outcome, judged

OUT, ERR, CALL = ".stdout", ".stderr", ".call"
_READ_BYTES = 16 << 20
_ADDRESS_SPACE = 4 << 30  # beyond what is there: it guards the machine, and the peak is measured
_FILE_BYTES = 256 << 20
_PR_SET_CHILD_SUBREAPER = 36
_ORPHAN_S = 10.0
_LOOK_EVERY_S = 0.1  # for an interrupt, and for a case that takes too long

Play = Callable[[Case, Path], NoReturn]


@dataclass(slots=True)
class _Running:
    case: Case
    pid: int
    pidfd: int
    folder: Path
    began_s: float

    def took_s(self, now_s: float) -> float:
        """Seconds so far, without those in which it waited for a processor that others had."""
        return now_s - self.began_s - _kept_waiting_s(self.pid)


class Confined:
    """Plays cases; a context manager that ends what still runs.

    play: called in the child, in the case's folder. root: where the folders are made. keep: leave those of failures.
    """

    def __init__(self, play: Play, root: Path, *, at_once: int, keep: bool) -> None:
        self._play, self._root, self._at_once, self._keep = play, root, at_once, keep
        self._running: list[_Running] = []
        self._orphans: dict[int, float] = {}

    def __enter__(self) -> "Confined":
        # An exception out of a handler would be lost where it comes in the middle of a fork.
        self._interrupted = False
        self._previous = signal.signal(signal.SIGINT, self._interrupt)
        # Whatever a case leaves behind becomes our child, so that we can end it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return self

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        self._interrupted = True

    def __exit__(self, *error: object) -> None:
        for one in self._running:
            self._end(one)
        for pid in self._children():
            _kill(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        signal.signal(signal.SIGINT, self._previous)

    def outcomes(self, cases: Iterable[Case]) -> Iterator[Outcome]:
        """What becomes of each, in the order in which they end."""
        for case in cases:
            self._running.append(self._start(case))
            while len(self._running) >= self._at_once:
                yield from self._ended()
        while self._running:
            yield from self._ended()

    def _start(self, case: Case) -> _Running:
        folder = self._root / f"{case.kind.replace(' ', '-')}-{case.seed}-{case.index}"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        began_s = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._be(case, folder)
        return _Running(case, pid, os.pidfd_open(pid), folder, began_s)

    def _be(self, case: Case, folder: Path) -> NoReturn:
        """In the child: limits, and the case."""
        try:
            os.setsid()
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _limit(resource.RLIMIT_CORE, 0)
            _limit(resource.RLIMIT_FSIZE, _FILE_BYTES)
            _limit(resource.RLIMIT_AS, _address_space() + _ADDRESS_SPACE)
            os.chdir(folder)
            self._play(case, folder)
        except BaseException:  # noqa: BLE001 - the parent says that no case was made
            (folder / ERR).write_text(traceback.format_exc(), errors="backslashreplace")
        finally:
            os._exit(99)

    def _ended(self) -> Iterator[Outcome]:
        poll = select.poll()
        for one in self._running:
            poll.register(one.pidfd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000 * _LOOK_EVERY_S)}
        if self._interrupted:
            raise KeyboardInterrupt
        now_s = time.monotonic()
        for one in tuple(self._running):
            if one.pidfd in ready or one.took_s(now_s) >= LIMIT_S:
                self._running.remove(one)
                yield self._outcome(one, killed=one.pidfd not in ready)
        self._reap(now_s)

    def _outcome(self, one: _Running, *, killed: bool) -> Outcome:
        wall_s = one.took_s(time.monotonic())
        status, peak_mb = self._end(one)
        out, err = _head(one.folder / OUT), _head(one.folder / ERR)
        call = _call(one.folder)
        given = None if killed else os.waitstatus_to_exitcode(status)
        outcome = judged(one.case, call, status=given, wall_s=wall_s, peak_mb=peak_mb, out=out, err=err)
        if not (self._keep and outcome.complaints):
            shutil.rmtree(one.folder, ignore_errors=True)
        return outcome

    def _end(self, one: _Running) -> tuple[int, float]:
        """Wait status and peak of resident memory, megabytes."""
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        _kill(one.pid)
        _, status, used = os.wait4(one.pid, 0)
        os.close(one.pidfd)
        return status, used.ru_maxrss / 1024

    def _children(self) -> list[int]:
        found: list[int] = []
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
        return found

    def _reap(self, now_s: float) -> None:
        """End what cases left behind: a watchdog leaves by itself, within seconds."""
        ours = {one.pid for one in self._running}
        orphans = [pid for pid in self._children() if pid not in ours]
        self._orphans = {pid: self._orphans.get(pid, now_s) for pid in orphans}
        for pid, since_s in self._orphans.items():
            if now_s - since_s > _ORPHAN_S:
                _kill(pid)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _limit(which: int, most: int) -> None:
    resource.setrlimit(which, (most, most))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _kept_waiting_s(pid: int) -> float:
    """How long a process was ready to run and did not."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # a kernel that does not say
        return 0.0


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _head(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_READ_BYTES)
    except FileNotFoundError:
        return b""


def _call(folder: Path) -> Call | None:
    """What the child said that it would call."""
    try:
        text = (folder / CALL).read_bytes().decode("utf-8", "surrogatepass")
    except FileNotFoundError:
        return None
    return Call(**literal_eval(text))
