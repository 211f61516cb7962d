"""Signals to a controller that its watchdog, the supervisor of its job and the relay of its output do not obey."""

import signal

IGNORED = (
    *(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2),
)


def ignore_signals() -> None:
    """What is sent to the controller, its terminal or its group is not for us."""
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)
