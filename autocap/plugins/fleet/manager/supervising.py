"""The process above a manager: starts it again where it is killed or stopped, and passes signals on. It opens nothing
itself."""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from autocap.errors import AutocapError
from autocap.job.processes import has_ended
from autocap.limits.times import STOPPED_LOOKS, SUPERVISOR_LOOK_S
from autocap.text import note

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_MOST_DEATHS, _WITHIN_S = 5, 60.0


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
    leash, ours = os.pipe2(os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ours)
            os.setpgid(0, 0)  # so that the terminal's ^C comes through us alone
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            status = manage(leash, resumed)
        except AutocapError as error:
            note(str(error))
            status = error.exit_status
        except Exception:  # noqa: BLE001 - a process of its own: nobody above it would say so
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(leash)

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
