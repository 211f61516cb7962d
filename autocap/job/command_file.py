"""The file that a command names, and what the kernel's refusal to execute it means.

Which one is searched for in a PATH, as a shell would; the errors are CommandNotFound and CommandNotExecutable, with the
status that a shell gives.
"""

import errno
import os
import shutil
from collections.abc import Mapping, Sequence

from autocap.config.values import shown
from autocap.errors import CommandNotExecutable, CommandNotFound, TargetError

_NAME_SHOWN = 300  # characters of a command in an error
_FIRST_LINE_BYTES = 80  # as much as bash looks at to tell a script from a binary


def require_named(command: Sequence[str]) -> None:
    """Raises CommandNotFound or CommandNotExecutable for what names nothing."""
    if not command or not command[0]:
        raise CommandNotFound("the command is empty; give one after --")
    if not all(map(_can_be_given, command)):
        raise CommandNotExecutable("the command holds a character that no program can be given; leave it out")


def _can_be_given(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:  # half of a character
        return False


def executable(name: str, environment: Mapping[str, str], *, under_sudo: bool = False) -> str:
    """The file that a command names. Raises CommandNotFound or CommandNotExecutable."""
    path = located(name, environment)
    if path is None:
        raise diagnosed(name, None, OSError(errno.ENOENT, os.strerror(errno.ENOENT)), under_sudo=under_sudo)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        raise diagnosed(name, path, OSError(errno.EACCES, os.strerror(errno.EACCES)))
    return path


def located(name: str, environment: Mapping[str, str]) -> str | None:
    """The file that a command names, executable or not."""
    if os.sep in name:
        return name if os.path.lexists(name) else None
    path = os.pathsep.join(os.get_exec_path(environment))
    return shutil.which(name, path=path) or shutil.which(name, mode=os.F_OK, path=path)


def is_binary(path: str) -> bool:
    """Whether a file that the kernel does not execute is no script either."""
    try:
        with open(path, "rb") as file:
            return b"\0" in file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:  # unreadable for us: let the shell say so
        return False


def diagnosed(name: str, path: str | None, error: OSError, *, under_sudo: bool = False) -> TargetError:
    """What the kernel's refusal to execute a command means, and what to do about it."""
    named = shown(name, _NAME_SHOWN)
    if path is None and error.errno == errno.ENOENT:
        if os.sep in name:
            return CommandNotFound(f"command {named} does not exist; check its path")
        if under_sudo:
            return CommandNotFound(
                f"command {named} was not found in PATH, which under sudo is autocap's folder, your login's PATH and "
                "sudo's; give its full path"
            )
        return CommandNotFound(f"command {named} was not found in PATH; check its spelling or give its full path")
    if error.errno == errno.ENOENT:
        return CommandNotExecutable(
            f"command {named} cannot be executed: an interpreter it needs does not exist; check its first line"
        )
    if os.path.isdir(path or name):
        return CommandNotExecutable(f"{named} is a directory; name a program in it")
    if error.errno == errno.EACCES:
        advice = f"allow it with: chmod +x {path or name}"
        if under_sudo:
            advice = f"it must be where you may execute {path or 'it'} without sudo"
        return CommandNotExecutable(f"command {named} is not executable: {error.strerror}; {advice}")
    if error.errno == errno.ENOEXEC:
        return CommandNotExecutable(
            f"command {named} is neither a script nor a program for this machine; name one that is"
        )
    return CommandNotExecutable(f"command {named} cannot be executed: {error.strerror}; check its path and arguments")
