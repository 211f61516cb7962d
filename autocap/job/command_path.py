"""Under sudo: which program the name of a command stands for, and the PATH that the job has.

sudo's own PATH holds the system's folders alone, and so another Python than the one that the user trains with.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autocap.job.invoking_user import InvokingUser, acting_as
from autocap.job.login_path import login_path
from autocap.job.own_command import SYSTEM_FOLDERS, own_folders

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
