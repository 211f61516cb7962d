"""Under sudo: may what would become root's code, or what root writes to, be changed by somebody else?

Python imports from wherever its path leads: from PYTHONPATH, a user's own packages, the current directory of
`python -m autocap`. A place is beyond others' reach when neither it nor a directory or link on the way to it can be
written by them; in a directory with the sticky bit nobody replaces what is root's.
"""

import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec

from autocap.errors import UsageError
from autocap.job.invoking_user import InvokingUser
from autocap.job.processes import package_root

SYSFS_VARIABLE = "AUTOCAP_SYSFS"  # where sysfs is, as in a container that sees the host's in another place
_MOST_LINKS = 40  # as many as the kernel follows
_SYSTEM_GIDS = 1000  # below are groups of the system's own, which mostly nobody is in
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ACL = "system.posix_acl_access"
_NO_DIRECTORY = ".__path_hook__"


def require_trusted(user: InvokingUser) -> None:
    """Raises UsageError where somebody else than root could put code, or the files of devices, in our way.

    The installation itself may be the user's as well: whoever lets them run it as root has decided that.
    """
    # What setuptools adds for an editable install stands for no directory, until somebody makes one of that name.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(_NO_DIRECTORY)]
    for entry in sys.path:
        _require_code(os.path.abspath(entry), user)
    for place in filter(None, (sys.executable, os.path.join(package_root(), "autocap"))):
        _require_installation(place, user)
    sysfs = os.environ.get(SYSFS_VARIABLE)
    found = writable(sysfs) if sysfs else None
    if found is not None:
        raise UsageError(
            f"{SYSFS_VARIABLE} is {sysfs}, and {found}, so root would read and write what they choose; unset it"
        )


def require_trusted_module(name: str, user: InvokingUser) -> None:
    """The same for a module that a plug-in names, before it is imported."""
    with suppress(ImportError, ValueError):  # what cannot be found is not imported either
        spec = find_spec(name.partition(".")[0])
        for place in (spec.origin, *(spec.submodule_search_locations or ())) if spec else ():
            if place is not None and os.path.isabs(place):
                _require_code(place, user)


def writable(path: str, *, of_user: InvokingUser | None = None) -> str | None:
    """Who else than root could change or replace what a path leads to, as a clause; `None` for nobody.

    of_user: who may as well. What is not there yet counts by the directory that it would be made in.
    """
    visited = list(_visited(os.path.abspath(path)))
    for number, (place, status) in enumerate(visited):
        who = _writer(place, status, of_user, sticky_is_enough=number < len(visited) - 1)
        if who is not None:
            return _clause(who, place)
    return None


def replaceable(path: str) -> str | None:
    """Who else than root could replace a directory by one that it is reached through; `None` for nobody."""
    for place, status in _visited(os.path.dirname(os.path.abspath(path))):
        who = _writer(place, status, None, sticky_is_enough=True)
        if who is not None:
            return _clause(who, place)
    return None


def writer_of(fd: int, uid: int) -> str | None:
    """Who else than root and that user could have written an open file, as a clause; `None` for nobody.

    More is asked than of an installation: a group is theirs where it has their name and nobody else in it.
    """
    status = os.fstat(fd)
    if status.st_uid not in (0, uid):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "any user can write it"
    if not status.st_mode & stat.S_IWGRP:
        return None
    if _has_acl(fd):
        return "whoever its access control list names can write it"
    return None if status.st_gid == 0 or _is_own(status.st_gid, uid) else f"group {status.st_gid} can write it"


def _is_own(gid: int, uid: int) -> bool:
    """Whether it is the group that a user's account was made with, and holds nobody else."""
    import grp
    import pwd

    try:
        group, name = grp.getgrgid(gid), pwd.getpwuid(uid).pw_name
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def _clause(who: str, place: str) -> str:
    return f"{who} can write {place}"


def _require_code(place: str, user: InvokingUser) -> None:
    if _is_installed(place):
        _require_installation(place, user)
        return
    found = writable(place)
    if found is not None:
        raise UsageError(
            f"Python would import from {place}, and {found}, so their code would run as root under sudo; unset "
            "PYTHONPATH, and start an autocap that root has installed, as into /opt/autocap"
        )


def _require_installation(place: str, user: InvokingUser) -> None:
    found = writable(place, of_user=user)
    if found is not None:
        raise UsageError(
            f"{place} belongs to this autocap, and {found}, so their code would run as root under sudo; have root "
            "install it, as into /opt/autocap"
        )


def _is_installed(place: str) -> bool:
    """Whether a place belongs to Python's installation, or to ours."""
    roots = {sys.prefix, sys.base_prefix, sys.exec_prefix, package_root()}
    return any(place == root or place.startswith(root.rstrip("/") + "/") for root in roots)


def _visited(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every directory and link that the kernel meets on the way to an absolute path, and the end of it, as far as they
    are there."""
    here, ahead, links = "/", deque(path.split("/")), 0
    yield here, os.lstat(here)
    while ahead:
        name = ahead.popleft()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            continue
        place = os.path.join(here, name)
        try:
            status = os.lstat(place)
        except OSError:
            return
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        target = os.readlink(place)
        here = "/" if target.startswith("/") else here
        ahead.extendleft(reversed(target.split("/")))


def _writer(place: str, status: os.stat_result, of_user: InvokingUser | None, *, sticky_is_enough: bool) -> str | None:
    """Who else may write there. sticky_is_enough: only what is in there matters, and that is root's."""
    users_own = of_user is not None and status.st_uid == of_user.uid
    if status.st_uid != 0 and not users_own:
        return f"user {status.st_uid}"
    if stat.S_ISLNK(status.st_mode) or not status.st_mode & _OTHERS:
        return None
    if sticky_is_enough and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "any user"
    if _has_acl(place):
        return "whoever its access control list names"
    private = users_own and of_user is not None and status.st_gid == of_user.gid
    return None if status.st_gid == 0 or private or _is_empty(status.st_gid) else f"group {status.st_gid}"


def _has_acl(place: str | int) -> bool:
    """place: a path, or an open descriptor."""
    try:
        return _ACL in (os.listxattr(place) if isinstance(place, int) else os.listxattr(place, follow_symlinks=False))
    except OSError:  # a file system without
        return False


def _is_empty(gid: int) -> bool:
    """Whether nobody but root is in a group of the system's own, as in Debian's staff, which may write /usr/local."""
    import grp
    import pwd

    if gid >= _SYSTEM_GIDS:
        return False
    try:
        members = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        return False
    members |= {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid}
    return members <= {"root"}
