"""Users of a machine. Without root's rights there is only one: who runs the bench."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypedDict

GROUP = 54_300  # that may connect
USER = 54_321  # none of them has an entry in passwd, as in a container


class Rights(TypedDict, total=False):
    """Of a process, as `subprocess.Popen` takes them."""

    user: int
    group: int
    extra_groups: list[int]


def as_user(uid: int = USER) -> Rights:
    """Keyword arguments that start a process as a user of the group."""
    return Rights(user=uid, group=uid, extra_groups=[GROUP]) if os.geteuid() == 0 else Rights()


def become(uid: int) -> None:
    """From now on this process is that user's."""
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([GROUP])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def forked(uid: int, act: Callable[[], object]) -> int:
    """The PID of a forked process of a user's that does something, and ends."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            become(uid)
            act()
            status = 0
        finally:
            os._exit(status)
    return pid


@cache
def python() -> str | None:
    """An interpreter that such a user may execute, and that has all of ours; `None` where there is none."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        try:
            words = [path, "-P", "-c", "import autocap.session, numpy, scipy, pynvml, psutil, optuna"]
            if subprocess.run(words, env=modules(os.environ), stderr=subprocess.DEVNULL, **as_user()).returncode == 0:
                return path
        except OSError:
            continue
    return None


def modules(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which another interpreter finds our modules."""
    path = [*filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)), *filter(os.path.isdir, sys.path)]
    return {**environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), "PYTHONDONTWRITEBYTECODE": "1"}


def home(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """An environment in which a folder is the user's home."""
    return {**environ, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder}
