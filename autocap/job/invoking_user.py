"""Under sudo: who typed the command, and how to act with their rights, or be theirs, instead of root's.

A rule that lets a user run autocap as root then lends them nothing but power limits, whatever a path leads to.
"""

import os
import pwd
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from autocap.errors import TargetError

_HIGHEST_ID = 2**32 - 2  # 2**32 - 1 is the kernel's "leave unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvokingUser:
    """The user behind sudo. groups: supplementary groups, as a login would give them."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str

    def environment(self) -> dict[str, str]:
        """The variables that sudo set to root's values, set to the user's."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def invoking_user(environ: Mapping[str, str] = os.environ) -> InvokingUser | None:
    """The user who typed `sudo autocap …`; `None` when we are not root, or root without sudo (or root's own sudo).

    Raises TargetError when SUDO_UID or SUDO_GID cannot be what sudo wrote: a guess would run the job as root for
    somebody who did not ask for that.
    """
    if os.geteuid() != 0 or "SUDO_UID" not in environ:
        return None
    uid = _number("SUDO_UID", environ["SUDO_UID"])
    if uid == 0:
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a directory service that is down, or a uid that only a container knows
        if "SUDO_GID" not in environ:
            raise TargetError(f"user {uid} (SUDO_UID) has no passwd entry and SUDO_GID is not set; set both") from None
        gid = _number("SUDO_GID", environ["SUDO_GID"])
        return InvokingUser(uid=uid, gid=gid, groups=(gid,), name=environ.get("SUDO_USER") or str(uid), home="/")
    gid = _number("SUDO_GID", environ["SUDO_GID"]) if "SUDO_GID" in environ else entry.pw_gid
    groups = tuple(os.getgrouplist(entry.pw_name, gid))
    return InvokingUser(uid=uid, gid=gid, groups=groups, name=entry.pw_name, home=entry.pw_dir)


def this_user() -> InvokingUser:
    """Whose this process is, where root has started it for them with their variables."""
    home, name = os.environ["HOME"], os.environ["USER"]
    return InvokingUser(uid=os.getuid(), gid=os.getgid(), groups=tuple(os.getgroups()), name=name, home=home)


def _number(variable: str, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= _HIGHEST_ID:
        return int(text)
    raise TargetError(
        f"{variable} is '{text}', not a number from 0 to {_HIGHEST_ID} as sudo writes it, so the command would run as "
        "root for nobody knows whom; unset SUDO_UID and SUDO_GID to run it as root on purpose"
    )


_switching = threading.RLock()  # ids belong to the whole process: one thread at a time changes them


@contextmanager
def acting_as(user: InvokingUser | None) -> Iterator[None]:
    """Inside, whatever this process does it does with the user's rights: files are opened, made and removed as theirs,
    signals are sent as theirs. `None` changes nothing. Raises TargetError where the kernel forbids it.

    The real ids change as well: by them signals and access(2) go. Root stays the saved id, to come back.
    """
    if user is None or os.geteuid() == user.uid:
        yield
        return
    uids, gids, groups = os.getresuid(), os.getresgid(), os.getgroups()
    try:
        try:
            os.setgroups(user.groups)
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, 0)
        except OSError as error:  # a container that does not know this user
            raise TargetError(
                f"nothing can be done with the rights of user {user.uid} (SUDO_UID) here: {error.strerror}; run "
                "autocap without sudo, or as root on purpose with SUDO_UID and SUDO_GID unset"
            ) from error
        yield
    finally:
        os.setresuid(*uids)
        os.setresgid(*gids)
        os.setgroups(groups)


@contextmanager
def file_rights_of(uid: int, gid: int) -> Iterator[None]:
    """Inside, root has no more rights to files than that user; whoever is not root keeps their own.

    The effective ids alone change: a process with somebody's real id would take their signals. Raises OSError where
    the kernel forbids it.
    """
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    with _switching:
        gid_before, groups = os.getegid(), os.getgroups()
        try:
            os.setgroups([gid])
            os.setegid(gid)
            os.seteuid(uid)
            yield
        finally:
            os.seteuid(0)
            os.setegid(gid_before)
            os.setgroups(groups)


def give_up_root(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Have these ids alone from now on, with no way back. Raises OSError for who is not root."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
