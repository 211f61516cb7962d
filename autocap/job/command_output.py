"""What a command prints, which may hang, print for ever, or leave something running: none of that is waited for."""

import os
import time

from autocap.config.values import shown
from autocap.errors import AutocapError
from autocap.job.supervised import Supervised

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
