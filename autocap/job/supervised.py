"""A program of ours that must not outlive us, such as a meter: ended with all that it started, however we end; and what
a command prints, which may hang, print for ever, or leave something running: none of that is waited for."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from autocap.config.values import shown
from autocap.errors import AutocapError
from autocap.job.processes import package_root

# As for a watchdog: -I and -S keep the environment and every sitecustomize out of it.
_START = "import sys; sys.path.append(sys.argv[1]); "
_START += "from autocap.job.supervisor import main; main(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])"
_END_S = 2.0  # for a supervisor to end, beside the grace that it gives
_MOST_BYTES = 1 << 16  # what a pipe holds


class Supervised:
    """A program in a session of its own, under a supervisor that lives as long as we do.

    grace_s: between SIGTERM and SIGKILL, when it is closed or we die. talks: we write to its standard input, which else
    is empty. Its output and its errors are read without waiting. Raises OSError where no process can be started; a
    program that cannot be executed ends with status 127.
    """

    def __init__(
        self, argv: Sequence[str], *, grace_s: float, talks: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        self._grace_s = grace_s
        theirs, self._parent_fd = os.pipe()
        try:
            words = [sys.executable, "-I", "-S", "-c", _START, package_root(), str(theirs), str(grace_s), *argv]
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(theirs,),
                env=env,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._parent_fd)
            raise
        finally:
            os.close(theirs)
        for stream in self._streams():
            os.set_blocking(stream.fileno(), False)

    @property
    def returncode(self) -> int | None:
        """The exit status, 128 + n for a death by signal n; `None` while it runs, as far as `poll` has seen."""
        return self._process.returncode

    def poll(self) -> int | None:
        """The exit status; `None` while it runs."""
        return self._process.poll()

    def tell(self, data: bytes) -> None:
        """Write to its standard input. Raises OSError where nobody reads any more, or the pipe is full."""
        assert self._process.stdin is not None  # talks
        os.write(self._process.stdin.fileno(), data)

    def output(self) -> bytes:
        """What it has written since the last look."""
        assert self._process.stdout is not None  # a pipe, as asked for
        return available(self._process.stdout.fileno()) or b""

    def errors(self) -> bytes:
        """What it has written to its standard error since the last look."""
        assert self._process.stderr is not None
        return available(self._process.stderr.fileno()) or b""

    def close(self) -> None:
        """End it with all that it started. What the kernel does not end is waited for no longer than a few seconds."""
        if self._parent_fd < 0:
            return
        os.close(self._parent_fd)
        self._parent_fd = -1
        try:
            self._process.wait(self._grace_s + _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
        for stream in self._streams():
            stream.close()

    def _streams(self) -> list[IO[bytes]]:
        streams = (self._process.stdin, self._process.stdout, self._process.stderr)
        return [stream for stream in streams if stream is not None]


def available(fd: int) -> bytes | None:
    """What can be read from a pipe that does not block, nothing at its end; `None` where nothing is there yet."""
    with suppress(BlockingIOError):
        return os.read(fd, _MOST_BYTES)
    return None


_LOOK_EVERY_S = 0.01
_GRACE_S = 0.5  # for a command that is asked to end
_MIB = 1 << 20


class CommandFailed(AutocapError):
    """A command has not done what it was to do; the message says which, and how it failed."""


def output_of(command: str, *, within_s: float, most_bytes: int) -> bytes:
    """The standard output of a command, which /bin/sh carries out; whatever it has started ends with it.

    Raises CommandFailed where it cannot be started, ends with another status than 0, not in time, or prints more.
    """
    try:
        child = Supervised(("/bin/sh", "-c", command), grace_s=_GRACE_S)
    except OSError as error:
        raise CommandFailed(f"{shown(command)} cannot be run: {os.strerror(error.errno or 0)}") from error
    try:
        return _all_of(child, command, within_s, most_bytes)
    finally:
        child.close()


def _all_of(child: Supervised, command: str, within_s: float, most_bytes: int) -> bytes:
    deadline_s = time.monotonic() + within_s
    said, errors = bytearray(), b""
    while True:
        ended = child.poll()
        piece, complaint = child.output(), child.errors()
        said += piece
        errors = (errors + complaint)[-_MIB:]
        if len(said) > most_bytes:
            raise CommandFailed(f"{shown(command)} prints more than {most_bytes // _MIB} MiB")
        if piece or complaint:
            continue
        if ended is not None:
            break
        if time.monotonic() > deadline_s:
            raise CommandFailed(f"{shown(command)} has not ended within {within_s:g} s")
        time.sleep(_LOOK_EVERY_S)
    if ended != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        why = f": {shown(lines[-1].strip())}" if lines else ""
        raise CommandFailed(f"{shown(command)} ended with status {ended}{why}")
    return bytes(said)
