"""The process above a manager: starts it again where it is killed, and passes signals on. It opens nothing itself."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from types import FrameType

from autocap.streams import note

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
        finally:
            os._exit(status)
    os.close(leash)

    def pass_on(signum: int, frame: FrameType | None) -> None:
        os.kill(pid, signum)  # not reaped yet, so the number is still its own

    before = {signum: signal.signal(signum, pass_on) for signum in _PASSED_ON}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        os.close(ours)
    return os.waitpid(pid, 0)[1]
