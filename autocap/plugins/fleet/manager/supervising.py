"""The process above a manager: starts it again where it is killed or stopped, and passes signals on. It opens nothing
itself. And what a manager has to know again after it was killed."""

import math
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from autocap.errors import AutocapError, GuardError
from autocap.job.keeper import keeper
from autocap.job.processes import has_ended
from autocap.limits.state_dir import StateDir
from autocap.limits.times import STOPPED_LOOKS, SUPERVISOR_LOOK_S
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.openadr.events import Span
from autocap.text import note, printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_MOST_DEATHS, _WITHIN_S = 5, 60.0
STATE, SITE_STATE = "budget.state", "budget.site.state"
_MOST_BYTES = 1 << 24


def supervised(manage: Callable[[int, bool], int]) -> int:
    """Run a manager in a child process until it ends by itself; its exit status. manage: told a descriptor that is
    readable once we are gone, and whether it takes up where a killed one left. To be called before threads start."""
    deaths: deque[float] = deque(maxlen=_MOST_DEATHS)
    resumed = False
    while True:
        status = _one(manage, resumed)
        if not os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)
        signum = os.WTERMSIG(status)
        deaths.append(time.monotonic())
        if len(deaths) == _MOST_DEATHS and deaths[-1] - deaths[0] < _WITHIN_S:
            note(
                f"the budget's manager was killed {_MOST_DEATHS} times within {_WITHIN_S:g} s, and is not started again"
            )
            return 1
        note(f"the budget's manager was killed by {signal.Signals(signum).name}, and is started again")
        resumed = True


def _one(manage: Callable[[int, bool], int], resumed: bool) -> int:
    """The wait status of one manager."""
    parent_fd, ours = os.pipe2(os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ours)
            os.setpgid(0, 0)  # so that the terminal's ^C comes through us alone
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            status = manage(parent_fd, resumed)
        except AutocapError as error:
            note(str(error))
            status = error.exit_status
        except Exception:  # noqa: BLE001 - a process of its own: nobody above it would say so
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(parent_fd)

    def pass_on(signum: int, frame: FrameType | None) -> None:
        os.kill(pid, signum)  # not reaped yet, so the number is still its own

    before = {signum: signal.signal(signum, pass_on) for signum in _PASSED_ON}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    try:
        _await_end(pid)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        os.close(ours)
    return os.waitpid(pid, 0)[1]


def _await_end(pid: int) -> None:
    """One that was stopped holds no budget: its watchdog puts the limits back, so it is killed, and followed."""
    stopped, end = 0, os.pidfd_open(pid)
    try:
        while not has_ended(end, SUPERVISOR_LOOK_S):
            stopped = stopped + 1 if _is_stopped(pid) else 0
            if stopped == STOPPED_LOOKS:
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(end)


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_bytes()  # not reaped yet
    return stat[stat.rindex(b")") + 2 :][:1] == b"T"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """Kept while a budget runs. asked_w: the last word of a user, `None` before one. watts: there are, before events
    lower them. began_wall_s: seconds since 1970. record: the run directory, absolute. weights: of jobs, as `Weights`
    knows them. spans: of events."""

    asked_w: float | None
    watts: float
    policy: Policy
    began_wall_s: float
    record: str
    weights: tuple[tuple[int, float], ...] = ()
    spans: tuple[Span, ...] = ()


def save(state_dir: Path, state: BudgetState, name: str = STATE) -> None:
    """Raises GuardError where it cannot be written."""
    root, text = keeper(), printable_json(encode(state))
    try:
        if root is not None:
            root.keep(text)
            return
        with StateDir(state_dir) as place:
            place.write(name, text.encode())
    except OSError as error:
        raise GuardError(f"{state_dir / name} cannot be written: {error.strerror}; free some space") from error


def load(state_dir: Path, name: str = STATE) -> BudgetState | None:
    """What a manager that was killed has left; `None` where nothing that can be used is there. Raises GuardError where
    the directory is refused."""
    with suppress(ValueError, OSError):
        found = decode(BudgetState, parse(_kept(state_dir, name), _MOST_BYTES))
        return found if math.isfinite(found.watts + found.began_wall_s) else None
    return None


def _kept(state_dir: Path, name: str) -> bytes:
    """Raises GuardError, OSError."""
    root = keeper()
    if root is not None:
        return (root.kept() or "").encode()
    with StateDir(state_dir) as place:
        return place.read(name) or b""


def forget(state_dir: Path, name: str = STATE) -> None:
    with suppress(OSError, GuardError):
        root = keeper()
        if root is not None:
            root.forget()
            return
        with StateDir(state_dir) as place:
            place.unlink(name)
