"""How a command under sudo becomes two processes: this one goes on as its user, by an exec, and a keeper has root's
rights for it. Nothing of what root's process had in memory is in either of them."""

import errno
import json
import os
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from autocap.job import own_command
from autocap.job.invoking_user import InvokingUser, acting_as, give_up_root
from autocap.job.processes import import_path, package_root
from autocap.limits.keeper.charge import Charge
from autocap.limits.watchdog import interpreter
from autocap.wire.codec import encode

_START = "import sys; n = int(sys.argv[1]); sys.path[:] = sys.argv[2 : 2 + n]; words = sys.argv[2 + n :]; "
_START += "from autocap.cli.session import main; main(words)"


def part(user: InvokingUser, charge: Charge, words: Sequence[str]) -> NoReturn:
    """Start a keeper with that charge, and be autocap with these words as the user. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own = os.pidfd_open(os.getpid())
    socket.send_fds(ours, [json.dumps(encode(charge)).encode()], [own])
    child = os.fork()
    if child == 0:  # its child is nobody's: the session need not wait for it
        try:
            interpreter("autocap.limits.keeper.process", stdin=theirs.fileno())
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise OSError("no process can be started that keeps root's rights")
    theirs.close()
    os.close(own)
    go_on_as(user, words, ours)


def go_on_as(user: InvokingUser, words: Sequence[str], keeper: socket.socket | None = None) -> NoReturn:
    """Be autocap with these words as the user. keeper: the channel to it; without one, what needs no device is done,
    with no variables but the user's for where their own files are. Raises OSError."""
    held: list[int] = []
    program, path, libraries = _reached(user, held)
    kept = {name: value for name, value in os.environ.items() if keeper is not None or not name.startswith("XDG_")}
    environ = {**kept, **user.environment()}
    if keeper is not None:
        os.set_inheritable(keeper.fileno(), True)
    before = environ.get(own_command.VARIABLE, "") if libraries else own_command.UNCHANGED
    if libraries:
        environ[own_command.VARIABLE] = libraries
    told = [",".join(map(str, (-1 if keeper is None else keeper.fileno(), *held))), before, sys.argv[0], *words]
    give_up_root(user.uid, user.gid, user.groups)
    os.execve(program, [program, "-I", "-c", _START, str(len(path)), *path, *told], environ)


def _reached(user: InvokingUser, held: list[int]) -> tuple[str, list[str], str]:
    """Our Python, where it imports from, and where its libraries are ("" for the usual places), as the user reaches
    them: what lies where only root may look, through descriptors (`held`) that stay open as long as this process."""

    def through(folder: str) -> str:
        held.append(os.open(folder, os.O_PATH | os.O_DIRECTORY))
        os.set_inheritable(held[-1], True)
        return f"/proc/{os.getpid()}/fd/{held[-1]}"

    def shown(place: str) -> str:
        return place if not os.path.isdir(place) or _may(user, place, os.R_OK | os.X_OK) else through(place)

    prefix, program = sys.base_prefix, os.path.realpath(sys.executable)
    path = [place for place in import_path() if os.path.exists(place)]
    if _may(user, program, os.X_OK) and _may(user, prefix, os.X_OK):
        return sys.executable, [shown(place) for place in path], ""
    there = through(prefix)
    path = [there + place.removeprefix(prefix) if _is_in(place, prefix) else shown(place) for place in path]
    return there + program.removeprefix(prefix), path, os.path.join(there, "lib")


def require_readable(user: InvokingUser) -> None:
    """Raises PermissionError where this installation is not for the user, wherever it lies: descriptors do not help."""
    package = Path(package_root()) / "autocap"
    for place in (package.parent, package, package / "cli", package / "cli" / "session.py"):
        status = place.stat()
        mode, is_folder = status.st_mode, stat.S_ISDIR(status.st_mode)
        ours = mode >> 6 if status.st_uid == user.uid else mode >> 3 if status.st_gid in user.groups else mode
        if ours & (needed := 0o5 if is_folder else 0o4) != needed:
            raise PermissionError(errno.EACCES, f"they may not read {place}; let them with `chmod -R go+rX {place}`")


def _is_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def _may(user: InvokingUser, place: str, mode: int) -> bool:
    with acting_as(user):
        return os.access(place, mode)
