"""May we set a power limit? Told from what the GPU supports and from our privileges, without trying."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autocap.job.own_command import helper_advice, sudo_advice
from autocap.wire.who import is_namespaced

ROOT_FOR_GPUS = "setting a limit needs root or CAP_SYS_ADMIN"
OWN_NAMESPACE = "we have CAP_SYS_ADMIN in a user namespace of our own alone, which the driver may not accept"
ROOT_FOR_FILES = "setting a limit needs root"
_SELF = Path("/proc/self")
_CAP_SYS_ADMIN = 1 << 21  # CAP_SYS_ADMIN of the kernel's capability.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileges:
    """admin: we have CAP_SYS_ADMIN. namespaced: only in a user namespace of our own, as in a rootless container."""

    admin: bool
    namespaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settable:
    """Whether limits can be set; "unknown" where only trying shows it. why: a sentence."""

    answer: bool | Literal["unknown"]
    why: str


def own_privileges(process: Path = _SELF) -> Privileges:
    """Those of this process. process: its folder in /proc."""
    lines = (process / "status").read_text().splitlines()
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return Privileges(admin=bool(effective & _CAP_SYS_ADMIN), namespaced=is_namespaced(process / "uid_map"))


def settable_files(obstacle: str | None, *, writable: bool, switched_on: bool) -> Settable:
    """For a CPU package, whose limits are files. obstacle: as below. writable: we may write them. switched_on: its
    limit is in force; the kernel says no as well of one that the firmware has locked."""
    if obstacle is not None:
        return Settable(answer=False, why=obstacle)
    if not writable:
        return Settable(
            answer=False,
            why=f"{ROOT_FOR_FILES}; {sudo_advice()}, {helper_advice()}, let a group of yours write the limit's files, "
            "or pass --observe to measure without setting",
        )
    if not switched_on:
        return Settable(
            answer="unknown", why="its limit is switched off, perhaps locked by the firmware; `autocap run` will tell"
        )
    return Settable(answer=True, why="nothing speaks against it: it has a long-term limit, and we may write it")


def denial(privileges: Privileges) -> str | None:
    """Why they are not enough to set a GPU's limit, or may not be, a clause; `None` where they are."""
    if not privileges.admin:
        return ROOT_FOR_GPUS
    return OWN_NAMESPACE if privileges.namespaced else None


def settable(obstacle: str | None, privileges: Privileges) -> Settable:
    """obstacle: why the GPU itself takes no limit, `None` where nothing speaks against it."""
    if obstacle is not None:
        return Settable(answer=False, why=obstacle)
    if not privileges.admin:
        return Settable(
            answer=False,
            why=f"{ROOT_FOR_GPUS}; {sudo_advice()}, {helper_advice()}, start the container with --cap-add SYS_ADMIN, "
            "or pass --observe to measure without setting",
        )
    if privileges.namespaced:
        return Settable(
            answer="unknown",
            why=f"{OWN_NAMESPACE}; `autocap run` will tell",
        )
    return Settable(answer=True, why="nothing speaks against it: the driver offers it, and we have CAP_SYS_ADMIN")
