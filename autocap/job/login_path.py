"""The PATH that a user has after a login, asked of their login shell with their rights alone."""

import os
import pwd
import re
import select
import signal
import subprocess
import time
from contextlib import suppress

from autocap.job.invoking_user import InvokingUser

_SHELL = "/bin/sh"  # of who has none in the passwd entry
_PATIENCE_S = 2.0
_END_S = 1.0
_MOST_BYTES = 1 << 18  # of what a profile prints as well
# Quoted so that every shell understands it, csh and fish included.
_QUESTION = """/bin/sh -c 'printf "\\0autocap PATH=%s\\0" "$PATH"'"""
_ANSWER = re.compile(rb"\0autocap PATH=([^\0]{1,32768})\0")  # a variable of four times that cannot be passed on


def login_path(
    user: InvokingUser, path: str, shell: str | None = None, *, patience_s: float = _PATIENCE_S
) -> str | None:
    """What `su - USER` would give them as PATH; `None` where they have no such shell, or it does not say.

    Their profile runs, as theirs, without a terminal and with nothing to read. path: what it begins with. Nothing of it
    is left when this returns. shell: theirs; by default as the passwd entry has it. Raises TimeoutError where it does
    not say in time.
    """
    shell = _shell(user) if shell is None else shell
    if shell is None:
        return None
    environment = {**user.environment(), "SHELL": shell, "PATH": path}
    try:
        child = subprocess.Popen(
            [f"-{os.path.basename(shell)}", "-c", _QUESTION],  # the dash makes it a login, as su and login do
            executable=shell,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # there is no such shell, or they may not execute it
        return None
    assert child.stdout is not None  # it is a pipe
    with child.stdout:
        try:
            return _answer(child.stdout.fileno(), time.monotonic() + patience_s)
        finally:
            _end(child)


def _shell(user: InvokingUser) -> str | None:
    try:
        return pwd.getpwuid(user.uid).pw_shell or _SHELL
    except KeyError:  # a user that only a container knows
        return None


def _answer(fd: int, deadline_s: float) -> str | None:
    """Does not wait for the end of the output: something that the profile started may hold it open."""
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    said = b""
    while len(said) < _MOST_BYTES:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not ready.poll(left_s * 1000):
            raise TimeoutError
        part = os.read(fd, _MOST_BYTES)
        if not part:
            return None
        said += part
        found = _ANSWER.search(said)
        if found is not None:
            return os.fsdecode(found[1])
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)  # not yet reaped, so the number is its own
    with suppress(subprocess.TimeoutExpired):
        child.wait(_END_S)
