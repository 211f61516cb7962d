"""The process beside a program of ours that must not outlive us: it sleeps until either has ended, and ends the rest.

It holds one end of a pipe and we the other, which the kernel closes with us however we die.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress

from autocap.job.processes import ProcessId, identify, tree
from autocap.job.signals import IGNORED, ignore_signals

_PASSES = 3  # against processes that start others meanwhile
_LAST_S = 0.5  # for the kernel to end what it was told to; what hangs in a device stays with it


def main(parent_fd: int, grace_s: float, argv: list[str]) -> None:
    """The whole life of a supervisor. parent_fd: our end of it. grace_s: between SIGTERM and SIGKILL. Its exit status
    is the program's."""
    ignore_signals()  # it ends with us and with the program, not before
    os.set_inheritable(parent_fd, False)
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    pid = os.fork()
    if pid == 0:
        _become(argv)
    program = identify(pid)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # the program's alone, so that they end with it
        os.dup2(null, stream)
    watch = select.poll()
    watch.register(parent_fd, select.POLLIN)
    watch.register(ended, select.POLLIN)
    while not _has_ended(pid):
        if any(fd == parent_fd for fd, _ in watch.poll()):
            break
        _drain(ended)
    found = _all_of(program)
    if not _has_ended(pid) and grace_s > 0:
        _send(pid, found, signal.SIGTERM)
        _await_end(pid, ended, grace_s)
    for _ in range(_PASSES):
        found = tuple({*found, *_all_of(program)})
        _send(pid, found, signal.SIGKILL)
    _await_end(pid, ended, _LAST_S)
    reaped, status = os.waitpid(pid, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status) if reaped else -signal.SIGKILL
    os._exit(code if code >= 0 else 128 - code)


def _become(argv: list[str]) -> None:
    """Be the program, in a session of its own, with signals as at a login."""
    os.setsid()
    for signum in (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _all_of(program: ProcessId | None) -> tuple[ProcessId, ...]:
    """What descends from the program, or stands in its session, beside itself."""
    return () if program is None else tuple(each for each in tree(program) if each != program)


def _send(pid: int, others: tuple[ProcessId, ...], signum: signal.Signals) -> None:
    with suppress(OSError):  # all of it is dead; its number is its own until it is reaped
        os.killpg(pid, signum)
    for each in others:
        if each.is_alive():
            with suppress(OSError):
                os.kill(each.pid, signum)


def _await_end(pid: int, ended: int, within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    watch = select.poll()
    watch.register(ended, select.POLLIN)
    while not _has_ended(pid) and (left_s := deadline_s - time.monotonic()) > 0:
        watch.poll(left_s * 1000)
        _drain(ended)


def _has_ended(pid: int) -> bool:
    """Whether a child has, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(ended: int) -> None:
    with suppress(BlockingIOError):
        os.read(ended, 4096)
