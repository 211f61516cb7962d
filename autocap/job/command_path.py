"""Which program the name of a command stands for, under sudo too, and the PATH that the job has.

sudo's own PATH holds the system's folders alone, and so another Python than the one that the user trains with: the PATH
that they have after a login is asked of their login shell, with their rights alone.

The file of a command is searched for as a shell would; what the kernel's refusal to execute it means are the errors
CommandNotFound and CommandNotExecutable, with the status that a shell gives.
"""

import errno
import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from autocap.config.values import shown
from autocap.errors import CommandNotExecutable, CommandNotFound, TargetError
from autocap.job.invoking_user import InvokingUser, acting_as
from autocap.job.own_command import SYSTEM_FOLDERS, own_folders

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


_ADVICE = "give the command's full path if another program was meant"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand:
    """A command as it is to be started.

    path: the job's PATH, `None` for ours. taken: the program, where our own PATH gives another one or none. plain: what
    that gives, `None` for nothing. doubt: why it may be another program than the user means, a sentence.
    """

    argv: tuple[str, ...]
    path: str | None = None
    taken: str | None = None
    plain: str | None = None
    doubt: str | None = None

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The job's variables. ours: those that it would have without sudo."""
        return {**ours, **({} if self.path is None else {"PATH": self.path})}


def job_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    user: InvokingUser | None,
    own: Sequence[str] | None = None,
    login: Callable[[InvokingUser, str], str | None] = login_path,
) -> JobCommand:
    """Where a command is, with the rights of the user behind sudo; `None` changes nothing.

    Looked at are autocap's own folders, then the PATH of a login of that user (or sudo's, where that is theirs), then
    sudo's. They are the job's PATH as well, so that what it starts by name is found in the same way; but a folder of
    autocap's that is in one of the two PATHs stays in its place there. own: autocap's folders. login: gives the PATH of
    a login, `None` where there is none. Raises TargetError where nothing can be done with the rights of that user.
    """
    if user is None:
        return JobCommand(argv=tuple(command))
    with acting_as(user):
        own = [folder for folder in (own_folders() if own is None else own) if _searchable(folder)]
        plain = os.get_exec_path(environ)
        doubt = None
        try:
            folders = _at_login(plain, user, login)
        except TimeoutError:
            doubt = f"the login shell of {user.name} did not tell its PATH in time, so sudo's own was used; {_ADVICE}"
            folders = []
        folders = list(dict.fromkeys([*folders, *plain]))
        known = {os.path.realpath(folder) for folder in folders if folder}
        folders = [*(folder for folder in own if os.path.realpath(folder) not in known), *folders]
        path = os.pathsep.join(folders)
        found = JobCommand(argv=tuple(command), path=path, doubt=doubt)
        name = command[0] if command else ""
        if not name or os.sep in name:
            return found
        beside, by_path, by_plain = (
            shutil.which(name, path=os.pathsep.join(places)) for places in (own, folders, plain)
        )
        taken = beside or by_path
        if taken is None:  # whoever starts it says so
            return found
        if taken != by_path:
            found = replace(found, argv=(taken, *command[1:]))
        if by_plain is not None and _place(taken) == _place(by_plain):
            return found
        return replace(found, taken=taken, plain=by_plain)


def _at_login(plain: Sequence[str], user: InvokingUser, login: Callable[[InvokingUser, str], str | None]) -> list[str]:
    """The folders of their login; none where sudo was told to keep the PATH that they had when they called it."""
    if any(_owner(folder) == user.uid for folder in plain if folder not in SYSTEM_FOLDERS):
        return []
    found = login(user, os.pathsep.join(plain))
    return [] if found is None else found.split(os.pathsep)


def _searchable(folder: str) -> bool:
    """Whether it can be in a PATH: one that they may not look into would be said to hold what is nowhere."""
    return os.pathsep not in folder and os.access(folder, os.X_OK)


def _owner(folder: str) -> int | None:
    try:
        return os.stat(folder).st_uid
    except (OSError, ValueError):
        return None


def _place(program: str) -> tuple[str, str]:
    """Programs are the same that have the same: /bin is often /usr/bin. A link to a program may be another one, as an
    environment's Python."""
    folder, name = os.path.split(program)
    return os.path.realpath(folder), name
